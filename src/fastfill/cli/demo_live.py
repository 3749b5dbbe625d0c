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
from typing import TYPE_CHECKING

import numpy as np

from fastfill.cli.main import console, say
from fastfill.cli.reporting import Reporter
from fastfill.errors import MissingExtraError, StoreError

if TYPE_CHECKING:
    from fastfill.digits import Upgrade
    from fastfill.gallery import Gallery

ENCODER = "fastfill.digits:encode"
PAIRS, RATE = 200, 60  # rows learned from; rows per second of the run that is killed
BATCH, REFIT = 20, "20%"  # so few rows: small batches and not many refits
STEP = 0.05  # of the rows, between two points of the curve
KILL_AT, PATIENCE = 0.5, 60.0  # fraction at which it is killed; seconds to wait for that
LEASE = 3  # seconds
METRICS = ("cmc@1", "map")

Point = dict[str, float]  # fraction and metrics


def live(upgrade: Upgrade, folder: Path) -> list[Point]:
    """Start, backfill, be killed, resume, complete; the quality measured in the store meanwhile."""
    from fastfill.align import FitOptions
    from fastfill.digits import encode
    from fastfill.migrate import Migration
    from fastfill.wiring import connect

    url = make_store(upgrade, folder / "store")
    console.print("\n[bold]4. The same live[/], on a LanceDB table with the old vectors:")
    say(f"   $ fastfill start '{url}' --input pixels --encoder {ENCODER} --pairs {PAIRS}")
    gallery = connect(url, id="id", input="pixels", distance="l2")
    migration = Migration(gallery, encode, encoder_name=ENCODER)
    with Reporter("start", as_json=False) as reporter:
        migration.start(PAIRS, fit=FitOptions("kernel"), progress=reporter.stage)
    points = [measure(upgrade, gallery)]
    options = ["--batch", str(BATCH), "--refit", REFIT]
    say(f"   $ fastfill backfill '{url}' {' '.join(options)} --rate {RATE}  # and kill -9")
    kill_in_the_middle(url, options, lambda: look(upgrade, gallery, points))
    look(upgrade, gallery, points, step=0.0)
    say(f"   killed at {100 * points[-1]['fraction']:.0f} %; every row still serves. Again:")
    say(f"   $ fastfill backfill '{url}' {' '.join(options)}")
    refit = float(REFIT.removesuffix("%")) / 100
    with Reporter("backfill", as_json=False) as reporter:
        for progress in migration.backfill(batch=BATCH, refit=refit):
            reporter.progress(progress)
            look(upgrade, gallery, points)
    look(upgrade, gallery, points, step=0.0)
    migration.complete()
    refits = migration.status().state
    learned = 0 if refits is None else refits.refits
    say(f"   complete: every row is new, the map was learned again {learned} times on the way, the")
    say("   old vectors are untouched.")
    show(points, folder)
    return points


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


def look(upgrade: Upgrade, gallery: Gallery, points: list[Point], step: float = STEP) -> float:
    """The fraction now; measures one more point where a step has been gained since the last."""
    now = fraction(gallery)
    if now > points[-1]["fraction"] and now - points[-1]["fraction"] >= step:
        points.append(measure(upgrade, gallery))
    return now


def kill_in_the_middle(url: str, options: list[str], look: Callable[[], float]) -> None:
    """Run the real command and take its process away without a warning."""
    command = [sys.executable, "-m", "fastfill", "backfill", url, *options, "--rate", str(RATE)]
    command += ["--lease", str(LEASE)]  # so that its rows are soon free for the next run
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603
    deadline = time.monotonic() + PATIENCE
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


def measure(upgrade: Upgrade, gallery: Gallery) -> Point:
    """Quality of the vectors that serve now, read from the store; queries by the new model."""
    from fastfill.align import Aligned
    from fastfill.evaluate import backfill_curves

    new = upgrade.new(upgrade.gallery)
    serving = np.empty_like(new)
    for rows in gallery.store.scan(None, batch=4096, new=True):
        serving[rows.ids.astype(np.int64)] = rows.new
    curves = backfill_curves(
        Aligned(serving, np.zeros(len(new))), new, upgrade.labels,
        policy="random", metrics=METRICS, points=[0.0],
    )  # fmt: skip
    return {"fraction": fraction(gallery), **{m: float(curves[m].values[0]) for m in METRICS}}


def show(points: list[Point], folder: Path) -> None:
    """The measured curve as a table, and as a picture where matplotlib is installed."""
    from rich.table import Table

    from fastfill.evaluate import Curve
    from fastfill.report import curves_figure, save

    table = Table("backfilled", "top-1", "mAP", box=None, pad_edge=False)
    for point in points:
        table.add_row(
            f"{100 * point['fraction']:5.1f} %", *(f"{100 * point[m]:5.1f} %" for m in METRICS)
        )
    console.print("\n   Measured in the store on the way:")
    console.print(table)
    fractions = np.array([point["fraction"] for point in points])
    curves = [
        Curve(m, fractions, np.array([p[m] for p in points]), name="measured live") for m in METRICS
    ]
    try:
        save(curves_figure(curves, {}), folder / "live")
    except MissingExtraError as error:
        console.print(f"[dim]No figure: {error}[/]")
