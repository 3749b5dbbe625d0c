"""python -m benchmarks.transform

Applying a map, against the bare matrix products of the same shapes: same run, same threads.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks._results import write_section
from fastfill.align import Alignment
from fastfill.align.alignment import BLOCK
from fastfill.align.streaming import transform_file
from fastfill.features import Features, Matrix, Pairs

ROWS, OLD, NEW = 200_000, 128, 128


def main() -> None:
    """Time each method's map in memory, and from file to file."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, OLD)).astype(np.float32)
    y = np.tanh(x @ (rng.normal(size=(OLD, NEW)) / OLD**0.5)).astype(np.float32)
    lines = ["| method | bare products, rows/s | transform, rows/s | share | file to file |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for method, part in (("ridge", 1), ("kernel", 10), ("residual", 1), ("paper", 10)):
        pairs = Pairs(Features(x[:5000]), Features(y[:5000]))
        alignment = Alignment.fit(pairs, method=method, epochs=1, device="cpu")
        bare, ours, files = measure(alignment, x[: ROWS // part])
        lines.append(
            f"| {method} | {bare:,.0f} | {ours:,.0f} | {ours / bare:.0%} | {files / bare:.0%} |"
        )
    lines.append(f"\n{OLD}→{NEW} dimensions; to reach: a share of at least 60 %.")
    write_section("Applying a map", "python -m benchmarks.transform", "\n".join(lines))


def measure(alignment: Alignment, x: Matrix) -> tuple[float, float, float]:
    """Rows per second of the bare products, of the map, and of the command's work on files."""
    with tempfile.TemporaryDirectory() as folder:
        old, out = Path(folder) / "old.npy", Path(folder) / "out.npz"
        np.save(old, x)
        seconds = fastest(
            lambda: products(alignment, x),
            lambda: alignment(x),
            lambda: transform_file(alignment, old, out),
        )
    bare, ours, files = (len(x) / s for s in seconds)
    return bare, ours, files


def products(alignment: Alignment, x: Matrix) -> None:
    """The map's matrix products alone, block by block as the map does them."""
    weights = [np.ones_like(a) for a in alignment.arrays.values() if a.ndim == 2]
    inputs = {len(w): np.ones((BLOCK, len(w)), dtype=np.float32) for w in weights}
    for _ in range(0, len(x), BLOCK):
        for weight in weights:
            inputs[len(weight)] @ weight


def fastest(*works: Callable[[], object], times: int = 7) -> list[float]:
    """The shortest time of each, taken in turns, so that a busy machine troubles all alike."""
    spent: list[list[float]] = [[] for _ in works]
    for turn in range(times + 1):
        for work, times_of in zip(works, spent, strict=True):
            began = time.perf_counter()
            work()
            if turn:  # the first turn warms up
                times_of.append(time.perf_counter() - began)
    return [min(times_of) for times_of in spent]


if __name__ == "__main__":
    main()
