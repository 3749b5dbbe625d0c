"""An encoder that is a Python function: `module:function`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fastfill.errors import EncoderError


def open_encoder(spec: str) -> Callable[[Sequence[Any]], ArrayLike]:
    """The function; modules of the working directory can be named too.

    >>> open_encoder("builtins:sorted")(["b", "a"])
    ['a', 'b']
    """
    module, _, name = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise EncoderError(
            f"Encoder {spec!r}: the module {module!r} cannot be imported ({error})."
        ) from error
    except AttributeError:
        raise EncoderError(
            f"Encoder {spec!r}: the module {module!r} has no function {name!r}."
        ) from None
    if not callable(function):
        raise EncoderError(f"Encoder {spec!r}: {name!r} is not a function.")
    encode: Callable[[Sequence[Any]], ArrayLike] = function
    return encode
