"""What runs the pieces: processes of this machine (`local`), Ray, or Daft. None is written here."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from fastfill.errors import InputError, unknown_choice
from fastfill.scale.pieces import Engine

ENGINES = ("local", "ray", "daft")


def open_engine(name: str = "local", *, address: str | None = None, workers: int = 0) -> Engine:
    """The engine of a name; `address` is that of a Ray cluster, `workers` 0 means all there are.

    >>> open_engine("local", workers=2)
    LocalEngine(workers=2)
    """
    if name not in ENGINES:
        raise InputError(unknown_choice("engine", name, ENGINES))
    if address is not None and name == "local":
        raise InputError(f"--address {address} is that of a Ray cluster: use --engine ray or daft.")
    make: Callable[[str | None, int], Engine]
    make = importlib.import_module(f"fastfill.scale.engines.{name}").make_engine
    return make(address, workers)
