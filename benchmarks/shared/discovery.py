"""Which benchmarks there are, and which of them can run here.

A benchmark is a module of `benchmarks` that is no helper. It declares what it needs:

    NEEDS_GPU = False
    NEEDS_DATA: tuple[str, ...] = ("features",)  # folders of $FASTFILL_DATA

The declarations are read without importing the module, which may need what is not here.
"""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from benchmarks.shared.paths import ROOT

FOLDER = ROOT / "benchmarks"


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: its name and what it needs."""

    name: str
    needs_gpu: bool
    needs_data: tuple[str, ...]

    @property
    def needs(self) -> str:
        """What it needs, in a few words."""
        needs = ["a GPU"] if self.needs_gpu else []
        return ", ".join([*needs, *(f"$FASTFILL_DATA/{folder}" for folder in self.needs_data)])

    def obstacle(self) -> str | None:
        """Why it cannot run here; None if it can."""
        if self.needs_gpu and not has_gpu():
            return "there is no GPU"
        base = os.environ.get("FASTFILL_DATA")
        if self.needs_data and not base:
            return "FASTFILL_DATA is not set"
        missing = [name for name in self.needs_data if not (Path(base or "") / name).is_dir()]
        return f"{base} has no {' and no '.join(missing)}" if missing else None


def find_benchmarks(folder: Path = FOLDER) -> list[Benchmark]:
    """All benchmarks of a folder by name; an error for a module that does not say what it needs."""
    paths = sorted(path for path in folder.glob("*.py") if not path.stem.startswith("_"))
    return [_read(path) for path in paths]


def _read(path: Path) -> Benchmark:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    declared = dict(filter(None, map(_constant, tree.body)))
    gpu, data = declared.get("NEEDS_GPU"), declared.get("NEEDS_DATA")
    if not isinstance(gpu, bool) or not isinstance(data, tuple):
        raise ValueError(f"{path}: declare NEEDS_GPU (a bool) and NEEDS_DATA (a tuple of folders).")
    return Benchmark(path.stem, gpu, data)


def _constant(node: ast.stmt) -> tuple[str, object] | None:
    """Name and value of a declaration at the top of a module."""
    target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    if not isinstance(target, ast.Name) or not target.id.startswith("NEEDS_"):
        return None
    value = getattr(node, "value", None)
    return target.id, None if value is None else ast.literal_eval(value)


@cache
def has_gpu() -> bool:
    """Does torch see a CUDA device?"""
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
