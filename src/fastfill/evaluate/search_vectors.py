"""The vectors that are compared when queries are answered in one way or another.

| serving   | a query is                | compared with                                         |
| --------- | ------------------------- | ----------------------------------------------------- |
| `old`     | its old vector            | old vectors                                           |
| `aligned` | its new vector            | the added vectors: aligned, or new once backfilled    |
| `both`    | `Fusion.query_vectors`    | `Fusion.item_vectors`, under the inner product        |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from fastfill.align import Fusion, Serving
from fastfill.errors import InputError
from fastfill.features import Distance, Features, Ints, Matrix, as_matrix, check_rows


@dataclass(frozen=True, eq=False)
class SearchVectors:
    """Items and queries under the new model, and under the old one where that is known."""

    new: Matrix  # (n, d_new)
    queries: Matrix  # (q, d_new)
    same: bool  # the gallery asks itself
    distance: Distance
    old: Matrix | None = None  # (n, d_old)
    queries_old: Matrix | None = None  # (q, d_old)

    @classmethod
    def of(
        cls,
        new: Features | ArrayLike,
        queries: Features | ArrayLike | None,
        distance: Distance,
        old: Features | ArrayLike | None = None,
        queries_old: Features | ArrayLike | None = None,
    ) -> SearchVectors:
        """Checked; without queries the gallery asks itself, under both models."""
        items = matrix_of(new, "new gallery")
        before = None if old is None else matrix_of(old, "old gallery")
        if before is not None:
            check_rows(len(before), len(items), "old gallery")
        if queries is None:
            return cls(items, items, True, distance, before, before)
        asked = matrix_of(queries, "queries")
        asked_old = None if queries_old is None else matrix_of(queries_old, "old queries")
        if asked_old is not None:
            check_rows(len(asked_old), len(asked), "old queries")
        return cls(items, asked, False, distance, before, asked_old)

    def take(self, rows: Ints) -> SearchVectors:
        """Some of the items as a gallery of their own, asked by the same queries or by itself."""
        part = replace(self, new=self.new[rows], old=None if self.old is None else self.old[rows])
        return replace(part, queries=part.new, queries_old=part.old) if self.same else part

    def check(self, serving: Serving, fusion: Fusion | None) -> None:
        """Refuse a way to serve that needs what is not there."""
        if serving != "aligned":
            self._old_side(serving)
        if serving == "both":
            _needed(fusion)

    def asked(self, serving: Serving, fusion: Fusion | None) -> Matrix:
        """The queries, as they are compared."""
        if serving == "aligned":
            return self.queries
        _, queries_old = self._old_side(serving)
        if serving == "old":
            return queries_old
        return _needed(fusion).query_vectors(queries_old, self.queries)

    def items(
        self, serving: Serving, added: Matrix, is_new: ArrayLike, fusion: Fusion | None
    ) -> Matrix:
        """The items, as they are compared; `is_new` says which of the added vectors are new."""
        if serving == "aligned":
            return added
        old, _ = self._old_side(serving)
        return old if serving == "old" else _needed(fusion).item_vectors(old, added, is_new)

    def _old_side(self, serving: Serving) -> tuple[Matrix, Matrix]:
        """Items and queries under the old model."""
        if self.old is None or self.queries_old is None:
            raise InputError(
                f"Serving {serving!r} needs the old model: give the old vectors of the gallery "
                "(old), and of the queries where they are a set of their own (queries_old)."
            )
        return self.old, self.queries_old

    def compared_by(self, serving: Serving) -> Distance:
        """How they are compared."""
        return "ip" if serving == "both" else self.distance


def matrix_of(values: Features | ArrayLike, name: str) -> Matrix:
    """The vectors of features, or what was given as an array."""
    return values.vectors if isinstance(values, Features) else as_matrix(values, name)


def _needed(fusion: Fusion | None) -> Fusion:
    if fusion is None:
        raise InputError(
            "Serving 'both' needs a fusion of the two models' scores: give that of the alignment "
            "(Alignment.fusion), or learn one (Fusion.learn)."
        )
    return fusion
