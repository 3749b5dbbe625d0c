"""The order of backfilling, kept between two picks from a LanceDB table.

Lance has no index that rows could be picked by, so that a pick reads the marks of all rows. One
reading serves many picks, for as long as no one else commits to the table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastfill.gallery import Generation

WINDOW = 1 << 19  # rows that are kept: bounds the memory


@dataclass
class _Line:
    """The first rows of a generation, by falling priority."""

    version: int  # of the table, when they were read
    rows: Any  # Arrow table with a column `_rowid`
    whole: bool  # are these all rows of the generation?
    offered: int = 0  # rows at the front that picks have seen


class Queue:
    """One line for each generation."""

    def __init__(self) -> None:
        self._lines: dict[Generation, _Line] = {}
        self._lock = threading.Lock()

    def first(self, generation: Generation, most: int, same_since: Callable[[int], bool]) -> Any:
        """The first `most` rows, or None where they have to be read from the table."""
        with self._lock:
            line = self._lines.get(generation)
            if line is None or not same_since(line.version):
                return None
            if len(line.rows) < most and not line.whole:
                return None
            line.offered = max(line.offered, most)
            return line.rows.slice(0, most)

    def fill(
        self, generation: Generation, version: int, blocks: Iterator[Any], priority: str, most: int
    ) -> Any:
        """Keep the best rows of a scan of the table at `version`, and offer the first `most`."""
        keep, count, whole = max(WINDOW, most), 0, True
        found: list[Any] = []
        for block in blocks:
            found.append(block)
            count += len(block)
            if count > 2 * keep:
                found, count, whole = [_best(found, priority, keep)], keep, False
        rows = _best(found, priority, keep) if found else None
        with self._lock:
            if rows is None:
                rows = pa.table({"_rowid": pa.array([], pa.uint64())})
            self._lines[generation] = _Line(version, rows, whole and count <= keep, most)
            return rows.slice(0, most)

    def done(self, row_ids: NDArray[np.uint64]) -> None:
        """These rows are new now: they leave their line."""
        with self._lock:
            for line in self._lines.values():
                front = line.rows.slice(0, line.offered)
                left = ~np.isin(front["_rowid"].to_numpy(), row_ids)
                rest = line.rows.slice(line.offered)
                line.rows = pa.concat_tables([front.filter(pa.array(left)), rest])
                line.offered = int(left.sum())

    def forget(self) -> None:
        """Read everything again."""
        with self._lock:
            self._lines.clear()


def _best(blocks: list[Any], priority: str, keep: int) -> Any:
    table = pa.concat_tables(blocks)
    order = pc.sort_indices(table, [(priority, "descending")])  # nulls last
    return table.take(order.slice(0, keep))
