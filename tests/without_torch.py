"""Tests that are run as where torch is not installed: everything but what needs networks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FOLDERS = {"adapters", "cli", "forecast", "gallery", "migrate", "order", "page", "upgrade"}
CLOSED_FORMS = {  # of align
    "test_align_calibration.py",
    "test_align_correction.py",
    "test_align_fusion.py",
    "test_align_kernel.py",
    "test_align_leave_one_out.py",
    "test_align_linear.py",
    "test_align_options.py",
}
NEED_TORCH = {
    "test_cli_align.py",
    "test_cli_output.py",
    "test_http_real_model.py",
    "test_order_policies.py",
    "test_sentence_transformers_encoder.py",
    "test_sentence_transformers_prompts.py",
}
STAND_ON_TORCH = ("fastfill.align.", "fastfill.metrics.cuda")  # as far as they import it


def does_without(path: Path) -> bool:
    """Must this test pass without torch?"""
    listed = path.parent.name in FOLDERS or path.name in CLOSED_FORMS
    return listed and path.name not in NEED_TORCH


class WithoutTorch:
    """Finds every module that another finder does, but torch."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None for torch, as if it were not there; importing it then fails as it should."""
        found: ModuleSpec | None = None
        if name != "torch":
            found = self.finder.find_spec(name, path, target)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def hidden(name: str, module: object) -> bool:
    """Is this torch, a part of it, or a module of ours that has imported it?"""
    ours = name.startswith(STAND_ON_TORCH) and hasattr(module, "torch")
    return name.partition(".")[0] == "torch" or ours


@contextmanager
def torch_hidden() -> Iterator[None]:
    """Nothing can import torch here; what has imported it before is put back afterwards."""
    if find_spec("torch") is None:
        yield
        return
    kept = {name: module for name, module in [*sys.modules.items()] if hidden(name, module)}
    for name in kept:
        del sys.modules[name]
    sys.meta_path[:] = map(WithoutTorch, sys.meta_path)
    try:
        yield
    finally:  # others may have come meanwhile
        finders = (
            each.finder if isinstance(each, WithoutTorch) else each for each in sys.meta_path
        )
        sys.meta_path[:] = finders
        sys.modules.update(kept)
