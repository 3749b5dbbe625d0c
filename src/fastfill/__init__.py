"""FastFill: upgrade the embedding model of a live vector search while it serves.

Everything public is here; the modules behind load when a name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastfill.align import Aligned as Aligned
    from fastfill.align import Alignment as Alignment
    from fastfill.errors import FastFillError as FastFillError
    from fastfill.evaluate import Curve as Curve
    from fastfill.features import Features as Features
    from fastfill.features import Pairs as Pairs
    from fastfill.features import read_features as read_features
    from fastfill.features import read_pairs as read_pairs
    from fastfill.forecast import Forecast as Forecast
    from fastfill.gallery import Gallery as Gallery
    from fastfill.migrate import Migration as Migration
    from fastfill.wiring import connect as connect

__version__ = "0.3.0"

_HOMES = {
    "Aligned": "align",
    "Alignment": "align",
    "Curve": "evaluate",
    "FastFillError": "errors",
    "Features": "features",
    "Forecast": "forecast",
    "Gallery": "gallery",
    "Migration": "migrate",
    "Pairs": "features",
    "connect": "wiring",
    "read_features": "features",
    "read_pairs": "features",
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fastfill' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fastfill.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
