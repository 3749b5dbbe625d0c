"""python -m benchmarks.onnx_node

Exported maps in Node (onnxruntime-web) against the library: how far vectors and σ² differ. Needs
node and npm, and downloads onnxruntime-web into a temporary folder; give one that has it in
FASTFILL_NODE_MODULES instead. Fails where a difference is larger than the docs say.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.shared.paths import ROOT
from benchmarks.shared.sections import write_section
from fastfill.align import METHODS, Aligned, Alignment, Corrected, correct
from fastfill.align.onnx_export import write_onnx
from fastfill.features import Features, Matrix, Pairs

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

PAIRS, ASKED, OLD_DIM, NEW_DIM, SIDE_DIM, CLASSES = 500, 256, 48, 64, 16, 5
SHARE = 0.15  # of the predicted error, as the distance penalty
CLOSE = 1e-5  # of the largest number of the vectors, and of each σ²
CLOSE_BY_KERNEL = 1e-4  # σ² that comes from 1 − Σ of squares, where float32 loses digits
SCRIPT = ROOT / "benchmarks" / "shared" / "run_onnx.js"


class Items(NamedTuple):
    """The same items under both models, and what else a map may take."""

    old: Matrix
    new: Matrix
    side: Matrix
    head: Matrix  # the new model's classifier


def main() -> None:
    """Export maps of every kind, run them all in one Node process, compare."""
    items = make_items()
    maps = learn_maps(items)
    asked, side = items.old[PAIRS:], items.side[PAIRS:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key, alignment in maps.items():
            write_onnx(alignment, folder / f"{key}.onnx")
        run_in_node(folder, asked, side)
        found = {
            key: differences(key, folder, alignment(asked, side if "side" in key else None))
            for key, alignment in maps.items()
        }
    write_section(
        "Exported maps in Node",
        "python -m benchmarks.onnx_node",
        "\n".join(
            [
                f"{ASKED} vectors, {OLD_DIM} → {NEW_DIM} dimensions, by onnxruntime-web "
                "(WebAssembly). The differences are relative: to the largest number of the "
                f"vectors, and to each σ². Maps with a penalty were learned with {SHARE} of the "
                "error from vectors that are not of unit length, unless the table says so.\n",
                "| map | vectors | σ² |",
                "| --- | --- | --- |",
                *(f"| {key} | {off:.0e} | {error:.0e} |" for key, (off, error) in found.items()),
            ]
        ),
    )
    check(maps, found)


def make_items() -> Items:
    """A curved upgrade to vectors of several lengths, one direction of which is hardly used."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(PAIRS + ASKED, OLD_DIM)).astype(np.float32)
    new = 3 * np.tanh(old @ rng.normal(size=(OLD_DIM, NEW_DIM)) / 3)
    new[:, -1] *= 1e-3
    side = rng.normal(size=(PAIRS + ASKED, SIDE_DIM)).astype(np.float32)
    head = 0.3 * rng.normal(size=(CLASSES, NEW_DIM))
    head[:, -1] = 0
    return Items(old, new.astype(np.float32), side, head.astype(np.float32))


def learn_maps(items: Items) -> dict[str, Alignment]:
    """One of every kind without and with a penalty, and the inputs that some kinds take."""
    old, new = Features(items.old[:PAIRS]), items.new[:PAIRS]
    pairs = Pairs(old, Features(new))
    beside = Pairs(old, Features(new), side=items.side[:PAIRS])
    unit = Pairs(old, Features(new / np.linalg.norm(new, axis=1, keepdims=True)))
    maps: dict[str, Alignment] = {}
    for name, method in METHODS.items():
        epochs = 2 if method.network else None
        plain = Alignment.fit(pairs, method=name, epochs=epochs, penalty=0)
        moved = Alignment.fit(pairs, method=name, epochs=epochs, penalty=SHARE)
        both = Alignment.fit(beside, method=name, epochs=epochs, penalty=SHARE)
        maps |= {name: plain, f"{name}, penalty": moved, f"{name}, penalty, side": both}
    fitted = Alignment.fit(unit, method="kernel", penalty=SHARE)
    by_class = Alignment.fit(pairs, method="ridge", head=items.head, penalty=SHARE)
    maps |= {"kernel, penalty, unit length": fitted, "ridge, penalty by class": by_class}
    maps |= {
        "corrected": correct(maps["ridge"], pairs, penalty=0),
        "corrected, penalty": correct(maps["ridge"], pairs, penalty=SHARE),
        "corrected, penalty, side": correct(maps["ridge, penalty, side"], beside, penalty=SHARE),
    }
    for key, alignment in maps.items():
        if (penalty_of(alignment) is not None) != ("penalty" in key):
            raise SystemExit(f"{key}: the data do not give it the penalty that its name says.")
    return maps


def penalty_of(alignment: Alignment) -> object | None:
    """What moves its vectors away from queries, if anything does."""
    return (alignment.correction if isinstance(alignment, Corrected) else alignment).penalty


def run_in_node(folder: Path, asked: Matrix, side: Matrix) -> None:
    """Every map of the folder on the same vectors."""
    (folder / "old.bin").write_bytes(asked.tobytes())
    (folder / "side.bin").write_bytes(side.tobytes())
    modules = os.environ.get("FASTFILL_NODE_MODULES")
    if modules is None:
        subprocess.run(["npm", "install", "--silent", "onnxruntime-web"], cwd=folder, check=True)
        modules = str(folder / "node_modules")
    command = ["node", str(SCRIPT), str(folder), str(len(asked))]
    subprocess.run(command, env={**os.environ, "NODE_PATH": modules}, check=True)


def differences(name: str, folder: Path, aligned: Aligned) -> tuple[float, float]:
    """The largest ones of one map: of its vectors, and of its σ²."""
    vectors = np.fromfile(folder / f"{name}.vectors", dtype=np.float32)
    variance = np.fromfile(folder / f"{name}.variance", dtype=np.float32)
    off = np.abs(vectors.reshape(aligned.vectors.shape) - aligned.vectors).max()
    error = np.abs(variance / aligned.variance - 1).max()
    return float(off / np.abs(aligned.vectors).max()), float(error)


def check(maps: dict[str, Alignment], found: dict[str, tuple[float, float]]) -> None:
    """End with one sentence where a map differs by more than the docs say."""
    for key, (off, error) in found.items():
        by_kernel = maps[key].method == "kernel" or isinstance(maps[key], Corrected)
        allowed = CLOSE_BY_KERNEL if by_kernel else CLOSE
        if not (off <= CLOSE and error <= allowed):  # NaN is a difference, too
            raise SystemExit(
                f"{key}: in Node vectors differ by {off:.1e} and σ² by {error:.1e} of the "
                f"library's, where {CLOSE:.0e} and {allowed:.0e} are allowed."
            )


if __name__ == "__main__":
    main()
