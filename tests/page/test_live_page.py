"""The live page in a real browser, during a real migration that is killed and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from browser import Chromium
from page_world import ROWS, make_gallery, run_command, start

from fastfill.cli.opening import open_by_url
from fastfill.cli.watch import page_state, serve_page
from fastfill.migrate import Migration
from fastfill.migrate.ledger.worker_reports import WorkerReport, WorkerReports
from fastfill.page import PageServer

RATE = r"/^\d[\d.,]* rows\/s\s+\d+ (s|min) left$/"  # and the time left
HEADER = "document.querySelector('header').innerText"
LOOK = """(() => {
    const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
        return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255; };
    const style = getComputedStyle(document.body);
    return [style.backgroundColor, style.color].map(light); })()"""


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory, chromium: Chromium
) -> Iterator[tuple[Migration, PageServer, str]]:
    """A migration of LanceDB that has been started, and the page that watches it."""
    with pytest.MonkeyPatch.context() as patch:
        url = make_gallery(tmp_path_factory.mktemp("watched"), patch)
        start(url)
        migration = open_by_url(url, encode=False)
        with serve_page(migration, url) as server:
            yield migration, server, url


def shows(chromium: Chromium, word: str) -> None:
    """Wait until the page says so, without being loaded again."""
    chromium.wait_for(f"document.getElementById('word').textContent === {word!r}")


def kill(run: subprocess.Popen[str], migration: Migration) -> None:
    """Take the process away without a warning, and let its last report be old."""
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=30)
    for who, report in WorkerReports.of(migration._job.store).items():
        WorkerReports.put(migration._job.store, who, replace(report, at=time.time() - 120))


def test_the_page_follows_a_migration(
    chromium: Chromium, watched: tuple[Migration, PageServer, str]
) -> None:
    """Loaded once, it shows the start, the work, a pause, a kill, the resumed work and the end."""
    migration, server, url = watched
    chromium.forget()
    chromium.open(server.url)
    shows(chromium, "Not running")
    assert chromium.text("#command") == f"fastfill backfill '{url}'"
    assert chromium.text("#share") == "30.0 %"
    run = run_command(
        "backfill", url, "--rate", "5", "--batch", "5", "--label", "album", "--lease", "2"
    )
    chromium.wait_for(
        "['Backfilling', 'Waiting'].includes(document.getElementById('word').textContent)"
    )
    said = f"{RATE}.test(document.querySelector('#facts dd').innerText)"
    chromium.wait_for(f"/Waiting\\s+Rate limit of 5 rows.s[.]/.test({HEADER}) && {said}")
    chromium.wait_for("document.querySelectorAll('#quality .curve').length >= 2")
    assert "old search" in chromium.text("#quality")
    migration.pause()
    shows(chromium, "Paused")
    assert chromium.text("#command") == f"fastfill resume '{url}'"
    migration.resume()
    kill(run, migration)
    shows(chromium, "Stopped")
    assert "2 min ago. Every row still serves." in chromium.text("#detail")
    before = page_state(migration, url)["progress"]["new"]
    assert 60 < before < ROWS
    again = run_command("backfill", url, "--lease", "2")
    assert again.wait(timeout=240) == 4  # one item cannot be embedded
    again.communicate()
    chromium.wait_for("document.getElementById('share').textContent === '99.5 %'")
    assert "cannot read <b>7</b>" in chromium.text("#failed")
    chromium.wait_for("document.getElementById('command').textContent.endsWith('--retry-failed')")
    migration.complete(partial=True)
    shows(chromium, "Complete")
    assert "completed" in chromium.text("#trail tr:first-child")
    own = {server.url, f"{server.url}state.json"}
    assert set(chromium.requests) == own
    assert chromium.complaints == []


@pytest.mark.parametrize("width", [320, 390, 1000])
def test_the_page_fits_its_window(
    chromium: Chromium, watched: tuple[Migration, PageServer, str], width: int
) -> None:
    """No width makes the page scroll sideways."""
    chromium.open(watched[1].url, width)
    chromium.wait_for("document.getElementById('trail').childElementCount > 2")
    assert chromium.run("document.documentElement.scrollWidth") <= width


def test_the_page_is_dark_where_the_system_is(
    chromium: Chromium, watched: tuple[Migration, PageServer, str]
) -> None:
    """Light text on a dark ground, or dark text on a light one."""
    for dark in (True, False):
        chromium.open(watched[1].url, dark=dark)
        ground, text = chromium.run(LOOK)
        assert min(ground, text) < 0.2
        assert max(ground, text) > 0.8
        assert (ground < text) == dark


def test_the_command_can_be_copied(
    chromium: Chromium, watched: tuple[Migration, PageServer, str]
) -> None:
    """The button copies the command, or marks it where there is no clipboard."""
    chromium.open(watched[1].url)
    chromium.wait_for("document.getElementById('command').textContent !== ''")
    chromium.click("#copy")
    chromium.wait_for(
        "['Copied', 'Selected'].includes(document.getElementById('copy').textContent)"
    )


def test_a_page_left_alone_says_so(
    chromium: Chromium, watched: tuple[Migration, PageServer, str]
) -> None:
    """When `fastfill watch` has ended, the page says of when its figures are."""
    with serve_page(watched[0], watched[2]) as server:
        chromium.open(server.url)
        chromium.wait_for("document.getElementById('command').textContent !== ''")
    chromium.wait_for("!document.getElementById('trouble').hidden")
    assert "does not answer since" in chromium.text("#trouble")


def test_reports_of_two_runs_are_added() -> None:
    """The rate is that of all runs; it waits where all of them do."""
    from fastfill.migrate import Progress, Status
    from fastfill.page import summary

    ann, bob = WorkerReport(at=99.0, rate=3.0, reason="paused"), WorkerReport(at=98.0, rate=2.0)
    status = Status("started", Progress(100, aligned=100), None, workers={"ann": ann, "bob": bob})
    shown = summary(status, now=100.0)
    assert (shown["rate"], shown["left"]) == (5.0, "20 s")
    assert shown["activity"]["word"] == "Backfilling"
    waiting = replace(status, workers={"ann": ann})
    assert summary(waiting, now=100.0)["activity"]["word"] == "Waiting"
    night = replace(ann, reason="outside 22:00-06:00")
    shown = summary(replace(status, workers={"ann": night}), now=100.0)["activity"]
    assert (shown["word"], shown["detail"]) == ("Waiting", "Outside 22:00-06:00.")
