"""Which marks rows have, told without a look at every row."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class KnowsMarks(Protocol):
    """A store that can tell the marks in use by an index; optional for an adapter."""

    def marks_in_use(self) -> set[tuple[str, str]] | None:
        """Pairs of generation and model that rows have, perhaps also of rows that are gone.

        None where only a look at every row would tell.
        """
        ...
