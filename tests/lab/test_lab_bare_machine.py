"""A machine that has torch, NumPy, safetensors, click and rich, and nothing else of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastfill

ABSENT = ("numba", "scipy", "pyarrow", "matplotlib", "sklearn", "PIL", "threadpoolctl", "lancedb",
          "psycopg", "qdrant_client", "sentence_transformers")  # fmt: skip

BARE = f"""
import sys
from importlib.machinery import PathFinder

class WithoutAbsent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        absent = name.partition(".")[0] in {ABSENT!r}
        return None if absent else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutAbsent
"""
# CIFAR's own networks are too large for a test: those of the digits take their place.
SMALL_NETWORKS = """
from fastfill.lab.model_updates import MODEL_UPDATES
MODEL_UPDATES["cifar100"] = MODEL_UPDATES["digits"]
"""
RUN = """
from fastfill.cli import main
main()
"""


def fastfill_in(machine: str, *arguments: str) -> str:
    """Run `fastfill` in a process that begins with some code; what it wrote for people."""
    done = subprocess.run(
        [sys.executable, "-c", machine + RUN, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(fastfill.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def tiny_cifar(folder: Path) -> None:
    """`cifar-100-binary` of ten classes: eight noisy images of each to train on, four to test."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    (folder / "fine_label_names.txt").write_text("\n".join(f"class{i}" for i in range(10)))
    for split, count in (("train", 8), ("test", 4)):
        fine = np.repeat(np.arange(10, dtype=np.uint8), count)
        pixels = 20 * fine[:, None] + rng.integers(0, 40, (len(fine), 3 * 32 * 32), dtype=np.uint8)
        np.hstack([fine[:, None] % 2, fine[:, None], pixels]).tofile(folder / f"{split}.bin")


def curves(folder: Path, experiment: str) -> list[float]:
    """Every point of every curve of a result."""
    result = json.loads((folder / "cifar100" / f"{experiment}-seed0.json").read_text())
    systems = result["tests"]["all"]["systems"].values()
    return [x for one in systems for curve in one["curves"].values() for x in curve["values"]]


def test_experiments_are_listed() -> None:
    """`fastfill lab list` needs none of the absent packages."""
    assert "side-information" in fastfill_in(BARE, "lab", "list")


def test_experiments_are_run_with_the_same_result(tmp_path: Path) -> None:
    """From image files to curves and rank correlations, equal to those of a full machine."""
    tiny_cifar(tmp_path / "data" / "cifar-100-binary")
    for name, machine in (("bare", BARE), ("full", "")):
        said = fastfill_in(
            machine + SMALL_NETWORKS,
            *("lab", "run", "flips", "sigma", "best", "--data", f"cifar100={tmp_path / 'data'}"),
            *("--work", str(tmp_path / f"work-{name}"), "--results", str(tmp_path / name)),
            *("--seeds", "1", "--effort", "0.1", "--map-epochs", "1", "--device", "cpu"),
        )
        assert "Next: fastfill lab report" in said
    for experiment, systems in (("flips", 2), ("sigma", 3), ("best", 5)):
        bare, full = (curves(tmp_path / name, experiment) for name in ("bare", "full"))
        assert len(bare) == 21 * 3 * systems
        assert bare == pytest.approx(full, abs=2e-6)
