"""Screens of 80 columns: no line is wider, and every word of a wide screen is there, uncut."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from evaluation_files import write_gallery

import fastfill.cli.status
from fastfill.align import Alignment
from fastfill.cli import reporting
from fastfill.cli.main import commands, console, load_commands, results
from fastfill.features import Pairs, read_pairs
from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration, Progress, Status
from fastfill.migrate.ledger.worker_reports import WorkerReport
from fastfill.migrate.progress import Quality

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "lab"
BUSY = "the encoder is busy: https://embeddings.example.org/v1/embeddings answers 429"
WAITS = Progress(
    total=1_000_000,
    new=12_400,
    aligned=987_588,
    failed=12,
    rate=230.0,
    reconnects=3,
    quality=Quality("map", 0.971, 0.004, measured=True),
    reason=BUSY,
    about=True,
)
SCREENS = [
    "curve map.safetensors --old old.npy --new new.npy --labels labels.npy --metrics cmc@1,map",
    "curve map.safetensors --old old.npy --new new.npy --labels labels.npy --metrics map "
    "--serving old,aligned,both",
    "forecast old.npy new.npy --items 240 --labels labels.npy --method ridge",
    "inspect map.safetensors",
    "inspect views.safetensors",
    "status lance://db#photos.vector",
    f"lab report --results {shlex.quote(str(RESULTS))}",
]


def shown(command: str) -> str:
    """What a command that succeeds tells people."""
    done = CliRunner().invoke(commands, shlex.split(command), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def make_status() -> Status:
    """A migration of which there is much to tell."""
    rows = {"id": range(40), "text": [f"text {n}" for n in range(40)]}
    vectors = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    store = MemoryStore({**rows, "vector": vectors}, distance="l2")
    migration = Migration(
        Gallery(store, input="text"), lambda texts: vectors[: len(texts)], encoder_name="of:a_test"
    )
    migration.start(40, serving="aligned")
    report = WorkerReport(at=time.time(), written=400, rate=230.0, reason=BUSY)
    failed = {f"item {n}": f"ValueError: item {n} has more words than I can read" for n in range(9)}
    return replace(migration.status(), progress=WAITS, workers={"a:1": report}, quarantined=failed)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alignments of a gallery in files, a migration, and no figures of the lab."""
    load_commands()
    monkeypatch.chdir(write_gallery(tmp_path))
    old, new = np.load("old.npy"), np.load("new.npy")
    Alignment.fit(read_pairs("old.npy", "new.npy"), method="auto").save("map.safetensors")
    views = Pairs.from_views(np.stack([old, old + np.float32(0.01)]), np.stack([new, new]))
    Alignment.fit(views, method="ridge").save("views.safetensors")
    status = make_status()
    monkeypatch.setattr(Migration, "status", lambda self: status)
    monkeypatch.setattr(Migration, "history", lambda self: [])
    monkeypatch.setattr(
        fastfill.cli.status,
        "open_by_url",
        lambda *_, **__: Migration(Gallery(MemoryStore({"id": [1], "vector": [[1.0]]}))),
    )
    for each in (console, results):
        monkeypatch.setattr(each, "_force_terminal", True)
        monkeypatch.setattr(each, "_color_system", None)


def words(text: str) -> set[str]:
    """What is said, without what is drawn."""
    return {word.strip("━╸╺") for word in text.split()}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("command", SCREENS, ids=lambda one: " ".join(one.split()[:2]))
def test_a_narrow_screen_tells_what_a_wide_one_tells(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines are folded between words, tables come in parts."""
    if command.startswith("lab"):
        pytest.importorskip("torch", reason="the lab is not installed")
        monkeypatch.setattr("fastfill.lab.markdown_report.write_report", lambda *_: [])
    texts = {}
    for width in (400, 80):
        monkeypatch.setattr(console, "_width", width)
        monkeypatch.setattr(results, "_width", width)
        texts[width] = shown(command)
    lines = [line.rstrip() for line in texts[80].splitlines()]
    assert max(map(len, lines)) <= 80
    assert words(texts[400]) <= words(texts[80])
    assert "…" not in texts[80]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_bar_tells_all_of_a_backfill(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb, a bar, the share and the rows in one line; quality and why it waits below it."""
    monkeypatch.setattr(console, "_force_terminal", True)
    monkeypatch.setattr(console, "_color_system", None)
    monkeypatch.setattr(console, "_width", width)
    with console.capture() as taken, reporting.Reporter("backfill", as_json=False) as reporter:
        reporter.progress(replace(WAITS, new=400_000))
    bar, *below = click.unstyle(taken.get()).split("\n")
    assert max(map(len, (bar, *below))) <= width
    verb, drawn, *rest = bar.split()
    assert (verb, drawn.strip("━╸"), rest) == (
        "backfill",
        "",
        ["40.0", "%", "about", "400,000/1,000,000"],
    )
    said = " ".join(" ".join(below).split())
    assert said.startswith("quality 97.1 ± 0.4 % 230 rows/s ")
    assert f"waiting: {BUSY}" in said
    assert sum(line.startswith("waiting: ") for line in below) == 1


def test_a_bar_tells_of_every_step_of_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step has a bar of its own, which stays."""
    monkeypatch.setattr(console, "_force_terminal", True)
    monkeypatch.setattr(console, "_color_system", None)
    monkeypatch.setattr(console, "_width", 80)
    with console.capture() as taken, reporting.Reporter("start", as_json=False) as reporter:
        reporter.stage("pairs", 2_000, 2_000)
        reporter.stage("rows", 12_400, 1_000_000)
    text = taken.get()
    assert "100.0 %" in text
    assert "2,000/2,000" in text
    assert "12,400/1,000,000" in text
