"""Packages of extras, imported where they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from fastfill.errors import MissingExtraError


def import_extra(module: str, package: str, extra: str, purpose: str) -> Any:
    """The module, or the error that names the extra which brings it.

    >>> import_extra("json", "json", "scale", "An example").dumps([])
    '[]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, extra, purpose) from error
