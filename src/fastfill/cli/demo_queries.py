"""The demo's queries: digits that are not in the table, and how well it answers them now."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Ints, Matrix

if TYPE_CHECKING:
    from fastfill.align import Fusion, Serving
    from fastfill.digits import Upgrade
    from fastfill.evaluate import SearchTask
    from fastfill.gallery import Gallery

METRICS = ("cmc@1", "map")
QUERIES = 100  # of the digits that are held out


@dataclass(frozen=True)
class LivePoint:
    """What a search finds while a share of the rows is new, served as the migration says."""

    fraction: float
    serving: Serving
    values: dict[str, float]  # by metric

    def to_json(self) -> dict[str, Any]:
        """Plain values, the metrics by their names."""
        plain = asdict(self)
        return {**plain.pop("values"), **plain}


@dataclass(frozen=True, eq=False)
class DemoQueries:
    """Digits under both models, and the gallery that they are asked of."""

    old: Matrix  # (q, d_old)
    new: Matrix  # (q, d_new)
    labels: Ints  # (q,)
    upgrade: Upgrade  # its gallery holds the other digits

    @classmethod
    def hold_out(cls, upgrade: Upgrade, count: int = QUERIES) -> DemoQueries:
        """The last digits of the gallery ask, the others stay."""
        asked = upgrade.gallery[-count:]
        rest = replace(upgrade, gallery=upgrade.gallery[:-count], labels=upgrade.labels[:-count])
        return cls(upgrade.old(asked), upgrade.new(asked), upgrade.labels[-count:], rest)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The two files that `fastfill start` takes: vectors of both models, and judgements."""
        queries, judgements = folder / "queries.npz", folder / "judgements.tsv"
        np.savez(queries, old=self.old, new=self.new)
        right = self.labels[:, None] == self.upgrade.labels[None, :]  # (q, n): the same digit
        lines = (f"{query}\t{item}\t1\n" for query, item in zip(*np.nonzero(right), strict=True))
        judgements.write_text("".join(lines))
        return queries, judgements

    def before(self) -> dict[str, float]:
        """What the old search finds, by metric."""
        rows = len(self.upgrade.gallery)
        return self._values("old", None, self._task.vectors.new, np.zeros(rows, dtype=bool))

    def measure(self, gallery: Gallery) -> LivePoint:
        """What is found by the vectors that are in the store now, in the way that serves now."""
        added = np.empty_like(self._task.vectors.new)
        is_new = np.zeros(len(added), dtype=bool)
        for rows in gallery.store.scan(None, batch=4096, new=True):
            place = rows.ids.astype(np.int64)
            added[place], is_new[place] = rows.new, rows.generation == "new"
        serving = gallery.serving
        fusion = gallery.fusion if serving == "both" else None
        return LivePoint(
            float(is_new.mean()), serving, self._values(serving, fusion, added, is_new)
        )

    def _values(
        self, serving: Serving, fusion: Fusion | None, added: Matrix, is_new: NDArray[np.bool_]
    ) -> dict[str, float]:
        values = self._task.now(serving, fusion, added, is_new).values
        return {metric: float(values[metric].mean()) for metric in METRICS}

    @cached_property
    def _task(self) -> SearchTask:
        from fastfill.evaluate import SearchVectors, search_tasks

        digits = self.upgrade.gallery
        vectors = SearchVectors.of(
            self.upgrade.new(digits), self.new, "l2", self.upgrade.old(digits), self.old
        )
        [task] = search_tasks(vectors, METRICS, self.upgrade.labels, self.labels)
        return task
