"""The stages of a backfilling, and queries in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastfill.errors import InputError
from fastfill.features import Ints
from fastfill.metrics.frozen import frozen
from fastfill.metrics.relevance import Relevance


@dataclass(frozen=True, eq=False)
class Stages:
    """An order, and how many of its items are new at each stage.

    An item's step is the first stage at which it is new; the number of stages where it never is.
    """

    positions: Ints  # (n,) gallery row at each place of the order
    counts: Ints  # (f,) items that are new, never falling

    def __post_init__(self) -> None:
        for field in ("positions", "counts"):
            array = np.asarray(getattr(self, field), dtype=np.int64)
            object.__setattr__(self, field, frozen(array))
        inside = len(self.counts) and self.counts[0] >= 0 and self.counts[-1] <= len(self.positions)
        if not inside or (np.diff(self.counts) < 0).any():
            raise InputError(
                f"The numbers of backfilled items must rise within 0 … {len(self.positions):,}."
            )

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def edges(self) -> Ints:
        """Where each step begins in the order, and its end, (f + 2,)."""
        return np.concatenate([[0], self.counts, [len(self.positions)]]).astype(np.int64)

    @cached_property
    def steps(self) -> Ints:
        """The step of each gallery row, (n,)."""
        steps = np.empty(len(self.positions), dtype=np.int64)
        places = np.arange(len(steps))
        steps[self.positions] = np.searchsorted(self.counts, places, side="right")
        return steps


def query_blocks(
    relevance: Relevance, kept: Ints, stages: int, cells: int, most: int
) -> Iterator[Ints]:
    """The kept queries in blocks of at most `most`, whose tables hold at most `cells` numbers.

    A single query with a larger table than that is a block of its own.
    """
    widths = 2 * relevance.counts[kept] + 1
    sizes = np.cumsum(widths * (stages + 1))
    start = 0
    while start < len(kept):
        taken = sizes[start - 1] if start else 0
        stop = int(np.searchsorted(sizes, taken + cells, side="right"))
        stop = min(max(stop, start + 1), start + most)
        yield kept[start:stop]
        start = stop
