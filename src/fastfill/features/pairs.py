"""`Pairs`: the same items under both models, a validated, frozen value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fastfill.errors import IdError, ShapeError, some
from fastfill.features.values import Array, Features, Ints, Matrix, as_matrix, check_rows, frozen
from fastfill.features.views import PairViews, ViewShape


@dataclass(frozen=True, eq=False)
class Pairs:
    """The same items under both models, row by row, with labels and side-information if known.

    There may be several `views` of each item, from which maps are learned; `old` and `new` are then
    the plain look, as the gallery has it, and everything is measured on that.

    >>> Pairs(Features([[1.0], [2.0]]), Features([[1.0, 2.0], [3.0, 4.0]]))
    Pairs(2 × 1→2)
    """

    old: Features
    new: Features
    side: Matrix | None = None  # (n, d_side) features of a third model, known for the gallery too
    views: PairViews | None = None
    drawn: Array | None = None  # (n,) is it of a random sample of the gallery? None: all are

    def __post_init__(self) -> None:
        if len(self.old) != len(self.new):
            raise ShapeError(
                f"{self.old.name} has {len(self.old):,} rows and {self.new.name} has "
                f"{len(self.new):,}: pairs are the same items in the same order under both models."
            )
        _check_comparable(self.old, self.new)
        if not np.array_equal(self.old.ids, self.new.ids):
            differ = np.flatnonzero(self.old.ids != self.new.ids)
            raise IdError(
                f"The ids of {self.old.name} and {self.new.name} differ, first in row {differ[0]} "
                f"({self.old.ids[differ[0]]} and {self.new.ids[differ[0]]}). "
                "Use Pairs.match to pair items by id."
            )
        if self.side is not None:
            object.__setattr__(self, "side", _checked_side(self.side, len(self.old)))
        if self.drawn is not None:
            check_rows(len(self.drawn), len(self.old), "pairs that were drawn at random")
        if self.views is not None and self.views.rows is None:  # a part has been checked as a whole
            side_dim = None if self.side is None else self.side.shape[1]
            like = ViewShape(len(self.old), self.old.dim, self.new.dim, side_dim)
            object.__setattr__(self, "views", self.views.checked(like))

    def __len__(self) -> int:
        return len(self.old)

    def __repr__(self) -> str:
        extras = [k for k in ("labels", "side") if getattr(self, k) is not None]
        if self.views is not None:
            extras.append(f"{self.views.count} views")
        return f"Pairs({', '.join([f'{len(self):,} × {self.old.dim}→{self.new.dim}', *extras])})"

    @property
    def labels(self) -> Array | None:
        """The labels, from whichever of the two sides has them."""
        return self.new.labels if self.new.labels is not None else self.old.labels

    def take(self, rows: ArrayLike) -> Pairs:
        """Some of the pairs, in the order given, with all views of each."""
        side = None if self.side is None else self.side[np.asarray(rows)]
        views = None if self.views is None else self.views.take(rows)
        drawn = None if self.drawn is None else self.drawn[np.asarray(rows)]
        return Pairs(self.old.take(rows), self.new.take(rows), side, views, drawn)

    @classmethod
    def from_views(
        cls,
        old: ArrayLike,
        new: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        side: ArrayLike | None = None,
        names: tuple[str, str] = ("old views", "new views"),
    ) -> Pairs:
        """Pairs from arrays (views, n, dimensions): the FIRST view is the plain look.

        The same view of an item has gone through both models. Side-information is (n, dimensions),
        the same in all views, or has views of its own. A single view is the plain look alone.

        >>> rng = np.random.default_rng(0)
        >>> Pairs.from_views(rng.normal(size=(5, 30, 2)), rng.normal(size=(5, 30, 3)))
        Pairs(30 × 2→3, 5 views)
        """
        extra = None if side is None else np.asanyarray(side)
        with_views = extra is not None and extra.ndim == 3
        views = PairViews.of_arrays(
            old, new, extra if with_views else None, (*names, "side-information")
        )
        plain_old, plain_new, plain_side = views.look(0).on_host()
        return cls(
            Features(plain_old, ids, name=names[0]),
            Features(plain_new, ids, labels, name=names[1]),
            plain_side if with_views else extra,
            views if views.count > 1 else None,
        )

    @classmethod
    def match(cls, old: Features, new: Features) -> Pairs:
        """Pair the two sides by id; every id of the one must be found in the other.

        >>> Pairs.match(Features([[1.0], [2.0]], ids=["a", "b"]),
        ...             Features([[20.0], [10.0]], ids=["b", "a"])).new.vectors.ravel()
        array([10., 20.], dtype=float32)
        """
        return cls(old, new.take(matching_rows(old, new)))


def matching_rows(items: Features, others: Features) -> Ints:
    """The row of each item among the others, which are the same items in any order.

    >>> matching_rows(Features([[1.0], [2.0]], ids=["a", "b"]),
    ...               Features([[20.0], [10.0]], ids=["b", "a"]))
    array([1, 0])
    """
    _check_comparable(items, others)
    for here, there in ((items, others), (others, items)):
        missing = np.setdiff1d(here.ids, there.ids)
        if len(missing):
            raise IdError(
                f"{there.name} has no vector for {len(missing):,} ids of {here.name}: "
                f"{some(missing)}. Keep only the items that both models have embedded."
            )
    order = np.argsort(others.ids, kind="stable")
    return np.asarray(order[np.searchsorted(others.ids, items.ids, sorter=order)])


def _check_comparable(old: Features, new: Features) -> None:
    kinds = ["texts" if side.ids.dtype.kind == "U" else "numbers" for side in (old, new)]
    if kinds[0] != kinds[1]:
        raise IdError(
            f"The ids of {old.name} are {kinds[0]} and those of {new.name} are {kinds[1]}. "
            "Write both the same way."
        )


def _checked_side(side: Matrix, rows: int) -> Array:
    matrix = as_matrix(side, "side-information")
    if len(matrix) != rows:
        raise ShapeError(
            f"side-information has {len(matrix):,} rows for {rows:,} pairs: "
            "it belongs to the same items in the same order."
        )
    return frozen(matrix)
