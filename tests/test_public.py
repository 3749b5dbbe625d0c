"""The public names, and what `import fastfill` costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastfill

PUBLIC = [
    "Aligned",
    "Alignment",
    "Curve",
    "FastFillError",
    "Features",
    "Forecast",
    "Gallery",
    "Migration",
    "Pairs",
    "__version__",
    "connect",
    "read_features",
    "read_pairs",
]
HEAVY = ["torch", "pyarrow", "numba", "scipy", "safetensors", "click", "rich", "matplotlib",
         "sklearn", "lancedb"]  # fmt: skip


def loaded_by(code: str) -> set[str]:
    """The heavy packages that a fresh process has loaded after some code."""
    report = f"import sys, json; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    environment = {**os.environ, "PYTHONPATH": str(Path(fastfill.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        capture_output=True, text=True, check=True, env=environment, timeout=60,
    )  # fmt: skip
    return set(json.loads(done.stdout))


def test_public_names_are_pinned() -> None:
    """Adding or removing a public name is a decision, made here."""
    assert fastfill.__all__ == PUBLIC
    assert dir(fastfill) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_used(name: str) -> None:
    """Each name is found where the package says it lives."""
    assert getattr(fastfill, name) is not None


def test_unknown_names_are_attribute_errors() -> None:
    """A name that does not exist is reported as by any module."""
    with pytest.raises(AttributeError, match="module 'fastfill' has no attribute 'nothing'"):
        _ = fastfill.nothing  # type: ignore[attr-defined]


def test_importing_loads_nothing_heavy() -> None:
    """`import fastfill` needs none of the large packages."""
    assert loaded_by("import fastfill") == set()


def test_values_and_arrays_load_nothing_heavy() -> None:
    """Reading arrays, and applying a linear map, need neither torch nor pyarrow nor numba."""
    code = """
import numpy as np, tempfile, pathlib, fastfill
path = pathlib.Path(tempfile.mkdtemp()) / "a.npy"
np.save(path, np.ones((3, 2), dtype=np.float32))
fastfill.read_pairs(path, path)
fastfill.Alignment
fastfill.Aligned([[1.0]], [0.0])
"""
    assert loaded_by(code) == set()


def test_the_command_line_starts_without_torch() -> None:
    """`fastfill --help` is quick: it loads the command line's own packages alone."""
    code = """
import sys
sys.argv = ["fastfill", "--help"]
sys.stdout = sys.stderr
from fastfill.cli import main
main()
sys.stdout = sys.__stdout__
"""
    assert loaded_by(code) <= {"click", "rich"}
