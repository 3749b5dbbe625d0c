"""An encoder that is a Python function: `module:function`.

Where queries are embedded in another way than items, `function_query` beside it does that (for
`encode`: `encode_query`), or an attribute `encode_query` of the function.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fastfill.errors import EncoderError

Function = Callable[[Sequence[Any]], ArrayLike]


@dataclass(frozen=True)
class FunctionEncoder:
    """A function for items, and one for queries.

    >>> FunctionEncoder(sorted, sorted).encode_query(["b", "a"])
    ['a', 'b']
    """

    encode: Function
    encode_query: Function

    def __call__(self, items: Sequence[Any]) -> ArrayLike:
        """Embed items."""
        return self.encode(items)

    @property
    def __wrapped__(self) -> Function:
        """The function for items, as `inspect.unwrap` looks for it."""
        return self.encode

    @property
    def identity(self) -> Mapping[str, str] | None:
        """What the function tells of its settings, if anything."""
        return getattr(self.encode, "identity", None)


def open_encoder(spec: str) -> Function:
    """The function; modules of the working directory can be named too.

    >>> open_encoder("builtins:sorted")(["b", "a"])
    ['a', 'b']
    """
    module_name, _, name = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, name)
    except ImportError as error:
        raise EncoderError(
            f"Encoder {spec!r}: the module {module_name!r} cannot be imported ({error})."
        ) from error
    except AttributeError:
        raise EncoderError(
            f"Encoder {spec!r}: the module {module_name!r} has no function {name!r}."
        ) from None
    if not callable(function):
        raise EncoderError(f"Encoder {spec!r}: {name!r} is not a function.")
    encode: Function = function
    for_queries = getattr(module, f"{name}_query", None)
    if hasattr(function, "encode_query") or not callable(for_queries):
        return encode
    return FunctionEncoder(encode, for_queries)
