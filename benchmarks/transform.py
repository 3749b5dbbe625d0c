"""python -m benchmarks.transform

Applying a map, against the bare matrix products of the same shapes: same run, same threads.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.shared.sections import write_section
from benchmarks.shared.timing import fastest
from fastfill.align import Alignment
from fastfill.align.alignment import BLOCK
from fastfill.align.streaming import transform_file
from fastfill.features import Features, Matrix, Pairs

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

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
    lines.append(f"\n{OLD}→{NEW} dimensions.")
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
            times=7,
            warm_up=1,
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


if __name__ == "__main__":
    main()
