"""Options that several commands share, handed down as one frozen value instead of twenty words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

Result = TypeVar("Result")
Command = Callable[..., Result]
Option = Callable[[Command[Any]], Command[Any]]


def bundled(
    kind: type[Any], name: str, options: Sequence[Option]
) -> Callable[[Command[Result]], Command[Result]]:
    """Give a command these options, as one argument `name` of the dataclass `kind`.

    The fields of the dataclass bear the names that click gives to the options.

    >>> import click
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int
    >>> @click.command()
    ... @bundled(Size, "size", [click.option("--width", type=int)])
    ... def draw(size: Size) -> None:
    ...     print(size)
    >>> draw(["--width", "3"], standalone_mode=False)
    Size(width=3)
    """
    names = [field.name for field in fields(kind)]

    def decorate(command: Command[Result]) -> Command[Result]:
        @functools.wraps(command)
        def bundling(*args: Any, **given: Any) -> Result:
            value = kind(**{key: given.pop(key) for key in names})
            return command(*args, **{name: value}, **given)

        decorated: Command[Any] = bundling
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate
