"""python -m benchmarks.onnx_node

Exported maps in Node (onnxruntime-web) against the library: how far vectors and σ² differ. Needs
node and npm, and downloads onnxruntime-web into a temporary folder; give one that has it in
FASTFILL_NODE_MODULES instead.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.shared.paths import ROOT
from benchmarks.shared.sections import write_section
from fastfill.align import METHODS, Aligned, Alignment, correct
from fastfill.align.onnx_export import write_onnx
from fastfill.features import Features, Matrix, Pairs

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

PAIRS, ASKED, OLD_DIM, NEW_DIM = 500, 256, 48, 64
SCRIPT = ROOT / "benchmarks" / "shared" / "run_onnx.js"


def main() -> None:
    """Export a map of every kind, run them all in one Node process, compare."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(PAIRS + ASKED, OLD_DIM)).astype(np.float32)
    new = np.tanh(old @ rng.normal(size=(OLD_DIM, NEW_DIM)) / 3).astype(np.float32)
    maps = learn_maps(Pairs(Features(old[:PAIRS]), Features(new[:PAIRS])))
    asked = old[PAIRS:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key, alignment in maps.items():
            write_onnx(alignment, folder / f"{key}.onnx")
        run_in_node(folder, asked)
        rows = [row(key, folder, alignment(asked)) for key, alignment in maps.items()]
    write_section(
        "Exported maps in Node",
        "python -m benchmarks.onnx_node",
        "\n".join(
            [
                f"{ASKED} vectors, {OLD_DIM} → {NEW_DIM} dimensions, by onnxruntime-web "
                "(WebAssembly). The differences are relative: to the largest number of the "
                "vectors, and to each σ².\n",
                "| map | vectors | σ² |",
                "| --- | --- | --- |",
                *rows,
            ]
        ),
    )


def learn_maps(pairs: Pairs) -> dict[str, Alignment]:
    """One of every kind."""
    maps = {
        name: Alignment.fit(pairs, method=name, epochs=2 if method.network else None)
        for name, method in METHODS.items()
    }
    return {**maps, "corrected": correct(maps["ridge"], pairs)}


def run_in_node(folder: Path, asked: Matrix) -> None:
    """Every map of the folder on the same vectors."""
    (folder / "old.bin").write_bytes(asked.tobytes())
    modules = os.environ.get("FASTFILL_NODE_MODULES")
    if modules is None:
        subprocess.run(["npm", "install", "--silent", "onnxruntime-web"], cwd=folder, check=True)
        modules = str(folder / "node_modules")
    command = ["node", str(SCRIPT), str(folder), str(len(asked)), str(asked.shape[1])]
    subprocess.run(command, env={**os.environ, "NODE_PATH": modules}, check=True)


def row(name: str, folder: Path, aligned: Aligned) -> str:
    """The largest differences of one map, as a row of the table."""
    vectors = np.fromfile(folder / f"{name}.vectors", dtype=np.float32)
    variance = np.fromfile(folder / f"{name}.variance", dtype=np.float32)
    off = np.abs(vectors.reshape(aligned.vectors.shape) - aligned.vectors).max()
    relative = off / np.abs(aligned.vectors).max()
    error = np.abs(variance / aligned.variance - 1).max()
    return f"| {name} | {relative:.0e} | {error:.0e} |"


if __name__ == "__main__":
    main()
