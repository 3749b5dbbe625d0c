"""Where commands write to: never over what they read."""

from __future__ import annotations

from pathlib import Path

from fastfill.errors import InputError
from fastfill.features.sources import split_source


def refuse_overwriting(output: str | None, *inputs: str | None) -> None:
    """Refuse an output that is one of the inputs, however the two are written.

    What is not given is None.

    >>> refuse_overwriting("a/../new.npy", "old.npy", None, "./new.npy")
    Traceback (most recent call last):
    ...
    fastfill.errors.InputError: a/../new.npy is what this command reads (./new.npy). Write
    somewhere else.
    """
    if output is None:
        return
    for source in inputs:
        if source is not None and _same(Path(output), split_source(source)[0]):
            raise InputError(
                f"{output} is what this command reads ({source}). Write somewhere else."
            )


def _same(output: Path, source: Path) -> bool:
    try:
        return output.samefile(source)
    except OSError:  # one of them is not there
        return output.resolve() == source.resolve()
