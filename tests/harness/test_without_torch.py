"""Without torch everything but the networks works, and what needs them says which extra to install.

Whole folders of tests are run where torch is hidden (see `tests/without_torch.py`). Processes here
are started as where torch is not installed: see `absent_packages/sitecustomize.py`.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from without_torch import CLOSED_FORMS, FOLDERS, NEED_TORCH, does_without, torch_hidden

ROOT = Path(__file__).parents[2]
PATHS = (Path(__file__).parent / "absent_packages", ROOT / "src")
EXTRA = "pip install 'fastfill[networks]'"

REFUSED = """
import numpy as np
from fastfill import Alignment, Features, Gallery, Migration, Pairs
from fastfill.errors import MissingExtraError
from fastfill.gallery import MemoryStore

def encode(texts):
    raise SystemExit("an item was embedded")

old = np.random.default_rng(0).normal(size=(60, 4))
rows = {"id": list(range(60)), "text": ["a"] * 60, "vector": old.astype(np.float32)}
migration = Migration(Gallery(MemoryStore(rows), input="text"), encode)
for method in ("residual", "paper"):
    pairs = Pairs(Features(old), Features(old + 1))
    for work in (
        lambda: Alignment.fit(pairs, method=method),
        lambda: migration.start(pairs=30, method=method),
    ):
        try:
            work()
        except MissingExtraError as error:
            print(error)
"""
STARTED = """
import numpy as np
from fastfill import Gallery, Migration
from fastfill.align import methods
from fastfill.gallery import MemoryStore

methods.NETWORK_PAIRS = 50  # as if these were many
old = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
rows = {"id": list(range(100)), "text": [str(n) for n in range(100)], "vector": old.tolist()}

def encode(texts):
    return np.tanh(old[[int(text) for text in texts]])

def callback(event, details):
    print(event, details.get("reason", ""))

gallery = Gallery(MemoryStore(rows, distance="l2"), input="text")
Migration(gallery, encode, callback=callback).start(pairs=60)
"""
RELEARNED = """
from fastfill.align import FitOptions, relearned_by
from fastfill.gallery import Columns, Learning, State
from fastfill.migrate.run.map_trial import _refit_options

for learning in (Learning("residual", "residual", 100), Learning("auto", "residual", 100)):
    columns = Columns("id", "text", "vector")
    state = State("started", columns, "l2", "m:f", "1f", 8, learning=learning)
    print(_refit_options(state, 120).method)
print(relearned_by("paper"))
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python where torch cannot be imported."""
    path = os.pathsep.join(map(str, PATHS))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "ABSENT_PACKAGES": "torch", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_torch_cannot_be_imported_in_these_processes() -> None:
    """The other tests of this file test what they say."""
    assert "No module named 'torch'" in python("-c", "import torch").stderr


def test_torch_is_hidden_from_tests_and_comes_back() -> None:
    """Hidden, neither it nor a network of ours can be imported; then all is as before."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    networks = importlib.import_module("fastfill.align.networks")
    with torch_hidden():
        assert find_spec("torch") is None
        for name in ("torch", "torch.nn", "fastfill.align.networks"):
            with pytest.raises(ModuleNotFoundError, match="No module named 'torch'"):
                importlib.import_module(name)
    assert importlib.import_module("torch") is torch
    assert importlib.import_module("fastfill.align.networks") is networks
    assert find_spec("torch") is not None


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_folders_that_do_without_are_there(folder: str) -> None:
    """Each has tests that are run so."""
    assert any(does_without(path) for path in (ROOT / "tests" / folder).glob("test_*.py"))


def test_files_that_are_named_are_there() -> None:
    """Those that need torch, and those of maps in closed form."""
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert there >= NEED_TORCH | CLOSED_FORMS


def test_networks_are_refused_before_anything_is_embedded() -> None:
    """`residual` and `paper` name the extra that brings torch, on features and on a store."""
    done = python("-c", REFUSED)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(EXTRA in line for line in lines)


def test_auto_says_what_it_has_not_tried(tmp_path: Path) -> None:
    """`fastfill align` picks among the closed forms, and tells in one line what is missing."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(120, 6)).astype(np.float32)
    arrays = {"old": old, "new": np.tanh(old) + 1, "head": rng.normal(size=(3, 6))}
    for name, array in {**arrays, "labels": np.arange(120) % 3}.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = [str(tmp_path / f"{name}.npy") for name in ("old", "new")]
    more = ["--labels", str(tmp_path / "labels.npy"), "--head", str(tmp_path / "head.npy")]
    output = str(tmp_path / "map.safetensors")
    done = python("-m", "fastfill", "align", *files, *more, "-o", output)
    assert done.returncode == 0, done.stderr
    assert f"auto has not tried residual, which needs torch: to have it tried, run {EXTRA}" in (
        " ".join(done.stderr.split())
    )


def test_a_start_tells_what_auto_has_not_tried() -> None:
    """The callback of a migration hears of it."""
    done = python("-c", STARTED)
    assert "untried auto has not tried residual, which needs torch" in done.stdout, done.stderr


def test_a_network_of_another_machine_is_followed_by_a_kernel_map() -> None:
    """A refit goes on where the map was learned with torch and this machine has none."""
    done = python("-c", RELEARNED)
    assert done.stdout.split() == ["kernel"] * 3, done.stderr


def test_what_needs_torch_says_so() -> None:
    """The laboratory and a CUDA device are refused in one sentence."""
    assert "pip install 'fastfill[lab]'" in python("-m", "fastfill", "lab", "run").stderr
    code = "from fastfill.metrics.scores import _scores; _scores(*[None] * 5, 'cuda', None)"
    assert EXTRA in python("-c", code).stderr
