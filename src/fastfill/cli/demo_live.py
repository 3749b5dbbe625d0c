"""The demo's second half: the life of a real migration on LanceDB, with a kill on the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfill.cli.demo_queries import METRICS, QUERIES, DemoQueries, LivePoint
from fastfill.cli.main import console, say
from fastfill.cli.reporting import Reporter
from fastfill.cli.status_text import serving_lines
from fastfill.errors import MissingExtraError, StoreError

if TYPE_CHECKING:
    from fastfill.digits import Upgrade
    from fastfill.gallery import Gallery
    from fastfill.migrate import Migration

ENCODER = "fastfill.digits:encode"
PAIRS, RATE = 200, 60  # rows learned from; rows per second of the run that is killed
BATCH, REFIT = 20, "20%"  # so few rows: small batches and not many refits
STEP = 0.05  # of the rows, between two points of the curve
KILL_AT, WAIT = 0.5, 60.0  # fraction at which it is killed; seconds to wait for that
LEASE = 3  # seconds
WORDS = {"old": "old model", "aligned": "new model", "both": "both models"}


def live(upgrade: Upgrade, folder: Path) -> dict[str, Any]:
    """Start, backfill, be killed, resume, complete; the quality measured in the store meanwhile."""
    from fastfill.digits import encode
    from fastfill.migrate import Migration
    from fastfill.wiring import connect

    asked = DemoQueries.hold_out(upgrade)
    url = make_store(asked.upgrade, folder / "store")
    console.print("\n[bold]4. The same live[/], on a LanceDB table with the old vectors:")
    gallery = connect(url, id="id", input="pixels", distance="l2")
    migration = Migration(gallery, encode, encoder_name=ENCODER)
    start(migration, url, asked.write(folder))
    points = [asked.measure(gallery)]
    options = ["--batch", str(BATCH), "--refit", REFIT]
    say(f"   $ fastfill backfill '{url}' {' '.join(options)} --rate {RATE}  # and kill -9")
    kill_in_the_middle(url, options, lambda: look(asked, gallery, points))
    look(asked, gallery, points, step=0.0)
    say(f"   killed at {100 * points[-1].fraction:.0f} %; every row still serves. Again:")
    say(f"   $ fastfill backfill '{url}' {' '.join(options)}")
    refit = float(REFIT.removesuffix("%")) / 100
    with Reporter("backfill", as_json=False) as reporter:
        for progress in migration.backfill(batch=BATCH, refit=refit):
            reporter.progress(progress)
            look(asked, gallery, points)
    look(asked, gallery, points, step=0.0)
    end(migration)
    before = asked.before()
    show(points, before, folder)
    return {"before": before, "live": [point.to_json() for point in points]}


def start(migration: Migration, url: str, files: tuple[Path, Path]) -> None:
    """Learn the map, align every row, and say how to serve from then on."""
    from fastfill.align import FitOptions
    from fastfill.migrate import QuerySet

    queries, judgements = files
    say(f"   $ fastfill start '{url}' --input pixels --encoder {ENCODER} --distance l2 \\")
    say(f"       --pairs {PAIRS} --queries {queries} --judgements {judgements}")
    fit = FitOptions("kernel")
    with Reporter("start", as_json=False) as reporter:
        migration.start(PAIRS, fit=fit, queries=QuerySet.read(*files), progress=reporter.stage)
    for line in serving_lines(migration.status()):
        say(f"   {line}")


def end(migration: Migration) -> None:
    """Complete it, and say what was done."""
    migration.complete()
    state = migration.status().state
    learned = 0 if state is None else state.refits
    say(f"   complete: every row is new, the map was learned again {learned} times on the way, the")
    say("   old vectors are untouched.")


def make_store(upgrade: Upgrade, folder: Path) -> str:
    """A table as somebody else might have made it: id, image, digit, old vector."""
    try:
        import lancedb
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("lancedb", "demo", "The demo's migration") from None
    from fastfill.digits import as_bytes

    shutil.rmtree(folder, ignore_errors=True)
    old = upgrade.old(upgrade.gallery)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(old.ravel()), old.shape[1])
    table = pa.table(
        {
            "id": np.arange(len(old)),
            "pixels": pa.array(as_bytes(upgrade.gallery), pa.binary()),
            "digit": upgrade.labels,
            "vector": vectors,
        }
    )
    lancedb.connect(folder).create_table("digits", table)
    return f"lance://{folder}#digits.vector"


def look(
    asked: DemoQueries, gallery: Gallery, points: list[LivePoint], step: float = STEP
) -> float:
    """The fraction now; measures one more point where a step has been gained since the last."""
    now = fraction(gallery)
    if now > points[-1].fraction and now - points[-1].fraction >= step:
        points.append(asked.measure(gallery))
    return now


def kill_in_the_middle(url: str, options: list[str], look: Callable[[], float]) -> None:
    """Run the real command and take its process away without a warning."""
    command = [sys.executable, "-m", "fastfill", "backfill", url, *options, "--rate", str(RATE)]
    command += ["--lease", str(LEASE)]  # so that its rows are soon free for the next run
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603
    deadline = time.monotonic() + WAIT
    while look() < KILL_AT and worker.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if worker.poll() not in (None, 0):
        said = worker.stderr.read().decode() if worker.stderr else ""
        raise StoreError(f"The demo's backfill ended by itself: {said.strip()}")
    if worker.poll() is None:
        os.kill(worker.pid, signal.SIGKILL)
    worker.communicate()


def fraction(gallery: Gallery) -> float:
    """Share of the rows that are new, counted in the store."""
    counts = gallery.store.counts()
    new = sum(number for (generation, _), number in counts.items() if generation == "new")
    return new / sum(counts.values())


def show(points: list[LivePoint], before: dict[str, float], folder: Path) -> None:
    """The measured curve as a table, and as a picture where matplotlib is installed."""
    from rich.table import Table

    from fastfill.evaluate import Curve
    from fastfill.report import curves_figure, save

    table = Table("backfilled", "served by", "top-1", "mAP", box=None, pad_edge=False)
    table.add_row("before", WORDS["old"], *(f"{100 * before[m]:5.1f} %" for m in METRICS))
    for point in points:
        values = [(point.values[m], point.values[m] - before[m]) for m in METRICS]
        cells = (f"{100 * value:5.1f} % ({100 * gain:+.1f})" for value, gain in values)
        table.add_row(f"{100 * point.fraction:5.1f} %", WORDS[point.serving], *cells)
    console.print(f"\n   Measured in the store on the way, by {QUERIES} digits that are not in it:")
    console.print(table)
    fractions = np.array([point.fraction for point in points])
    curves = [
        Curve(m, fractions, np.array([p.values[m] for p in points]), name="measured live")
        for m in METRICS
    ]
    levels = {m: {"old search": before[m]} for m in METRICS}
    try:
        save(curves_figure(curves, levels), folder / "live")
    except MissingExtraError as error:
        console.print(f"[dim]No figure: {error}[/]")
