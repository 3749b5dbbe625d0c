"""`Relevance`: which gallery items answer which query, from labels or from judgements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import IdError, LabelError, ShapeError, some
from fastfill.features import Array, Ints, as_column
from fastfill.metrics.frozen import frozen
from fastfill.metrics.names import Metric

Qrels = Mapping[str, Mapping[str, float]]
LabelSets = Array | Sequence[Iterable[Any]]


@dataclass(frozen=True, eq=False)
class Relevance:
    """Lists of relevant gallery rows with their gains, and the list of each query.

    Queries that ask for the same (one class) share a list, so that the size is that of the labels
    and not of queries × relevant items. A query that is itself a gallery item is not ranked.

    >>> relevance = Relevance.from_labels([3, 3, 5, 3])
    >>> relevance.of(0), relevance.counts
    (array([1, 3]), array([2, 2, 0, 2]))
    """

    items: int  # n, rows of the gallery
    which: Ints  # (q,) the list of each query, −1 for none
    starts: Ints  # (l + 1,) where each list begins in `rows`
    rows: Ints  # gallery rows, rising within a list
    gains: NDArray[np.float64]  # gain of each of `rows`, above 0
    own: Ints  # (q,) the gallery row that is the query itself, −1 where it is none

    def __post_init__(self) -> None:
        for field in ("which", "starts", "rows", "gains", "own"):
            kind = np.float64 if field == "gains" else np.int64
            array = np.asarray(getattr(self, field), dtype=kind)
            object.__setattr__(self, field, frozen(array))

    def __len__(self) -> int:
        return len(self.which)

    @cached_property
    def counts(self) -> Ints:
        """Number of relevant items of each query, itself not counted, (q,)."""
        lengths = np.append(np.diff(self.starts), 0)  # −1, no list, reads the last entry
        lists = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        keys = lists * self.items + self.rows  # rising: lists in order, rows within a list
        mine = self.which * self.items + self.own
        here = np.minimum(np.searchsorted(keys, mine), max(len(keys) - 1, 0))
        listed = (keys[here] == mine) if len(keys) else np.zeros(len(mine), dtype=bool)
        return np.asarray(lengths[self.which] - (listed & (self.which >= 0) & (self.own >= 0)))

    def of(self, query: int) -> Ints:
        """The relevant gallery rows of one query, itself left out."""
        rows = self.rows[self._span(query)]
        return np.asarray(rows[rows != self.own[query]])

    def gains_of(self, query: int) -> NDArray[np.float64]:
        """The gains of `of(query)`."""
        span = self._span(query)
        return np.asarray(self.gains[span][self.rows[span] != self.own[query]])

    def take(self, queries: ArrayLike) -> Relevance:
        """The same gallery, asked by some of the queries.

        >>> Relevance.from_labels([3, 3, 5, 3]).take([3, 0]).counts
        array([2, 2])
        """
        rows = np.asarray(queries)
        which, own = self.which[rows], self.own[rows]
        return Relevance(self.items, which, self.starts, self.rows, self.gains, own)

    def _span(self, query: int) -> slice:
        which = self.which[query]
        return slice(0, 0) if which < 0 else slice(self.starts[which], self.starts[which + 1])

    @classmethod
    def from_labels(cls, labels: ArrayLike, query_labels: ArrayLike | None = None) -> Relevance:
        """An item is relevant where it has the label of the query.

        Without `query_labels` the gallery is the query set, each item asking for the others.
        """
        given = np.asanyarray(labels)
        gallery = as_column(given, len(given) if given.ndim else 0, "labels")
        same = query_labels is None
        asked = gallery if query_labels is None else np.asanyarray(query_labels)
        asked = as_column(asked, len(asked) if asked.ndim else 0, "query labels")
        if (gallery.dtype.kind == "U") != (asked.dtype.kind == "U"):
            raise LabelError(
                f"The gallery's labels are {gallery.dtype} and the queries' are {asked.dtype}: "
                "no label could match. Give both as numbers or both as texts."
            )
        classes, inverse = np.unique(gallery, return_inverse=True)
        which = np.searchsorted(classes, asked)
        which[which == len(classes)] = 0
        exists = classes[which] == asked if len(classes) else np.zeros(len(asked), dtype=bool)
        counts = np.bincount(inverse, minlength=len(classes))
        return cls(
            items=len(gallery),
            which=np.where(exists, which, -1),
            starts=np.concatenate([[0], np.cumsum(counts)]),
            rows=np.argsort(inverse, kind="stable"),
            gains=np.ones(len(gallery)),
            own=np.arange(len(gallery)) if same else np.full(len(asked), -1),
        )

    @classmethod
    def from_label_sets(cls, labels: LabelSets, query_labels: LabelSets | None = None) -> Relevance:
        """Items of several labels: relevant where at least one label is shared.

        Each side is a boolean matrix (items, classes) or one collection of labels per item.

        >>> Relevance.from_label_sets([{"cat"}, {"cat", "dog"}, {"dog"}, set()]).counts
        array([1, 2, 1, 0])
        """
        gallery = _label_sets(labels, "labels")
        asked = gallery if query_labels is None else _label_sets(query_labels, "query labels")
        members: dict[Any, list[int]] = {}
        for row, names in enumerate(gallery):
            for label in names:
                members.setdefault(label, []).append(row)
        lists: dict[frozenset[Any], int] = {}
        which = np.array([lists.setdefault(names, len(lists)) for names in asked], dtype=np.int64)
        matches = [
            np.unique(np.concatenate([members.get(label, []) for label in names]).astype(np.int64))
            if names
            else np.zeros(0, dtype=np.int64)
            for names in lists
        ]
        own = np.arange(len(gallery)) if query_labels is None else np.full(len(asked), -1)
        return from_lists(
            len(gallery), which, matches, [np.ones(len(rows)) for rows in matches], own
        )

    @classmethod
    def from_qrels(
        cls,
        qrels: Qrels,
        query_ids: ArrayLike,
        item_ids: ArrayLike,
        *,
        ignore_same_ids: bool = False,
    ) -> Relevance:
        """Graded judgements {query id: {item id: gain}}; gains of 0 and below are not relevant.

        `ignore_same_ids` leaves out the item that has the query's own id, as BEIR does.

        >>> qrels = {"q1": {"b": 2, "a": 1}, "q2": {"c": 0}}
        >>> Relevance.from_qrels(qrels, ["q1", "q2"], ["a", "b", "c"]).counts
        array([2, 0])
        """
        position = {str(key): row for row, key in enumerate(np.asanyarray(item_ids).tolist())}
        asked = [str(key) for key in np.asanyarray(query_ids).tolist()]
        rows: list[Ints] = []
        gains: list[NDArray[np.float64]] = []
        for query in asked:
            judged = {item: gain for item, gain in qrels.get(query, {}).items() if gain > 0}
            missing = [item for item in judged if item not in position]
            if missing:
                raise IdError(
                    f"Query {query}: the judged items {some(missing)} are not in the gallery. "
                    "Add them to the gallery or drop them from the judgements."
                )
            at = np.array([position[item] for item in judged], dtype=np.int64)
            order = np.argsort(at)
            rows.append(at[order])
            gains.append(np.array(list(judged.values()), dtype=np.float64)[order])
        own = [position.get(query, -1) if ignore_same_ids else -1 for query in asked]
        return from_lists(len(position), np.arange(len(asked)), rows, gains, np.array(own))


def ideal_gains(relevance: Relevance, rows: Ints, metrics: Sequence[Metric]) -> NDArray[np.float64]:
    """For each nDCG among the metrics the discounted gain of the best order, (metrics, rows).

    >>> from fastfill.metrics import as_metrics
    >>> ideal_gains(Relevance.from_labels([1, 1, 1]), np.array([0]), as_metrics("ndcg@1,map"))
    array([[1.],
           [1.]])
    """
    ideals = np.ones((len(metrics), len(rows)))
    for i, metric in enumerate(metrics):
        if metric.family == "ndcg":
            discounts = np.log2(np.arange(2, 2 + min(metric.k, relevance.items)))
            for j, query in enumerate(rows):
                best = np.sort(relevance.gains_of(query))[::-1][: metric.k]
                ideals[i, j] = (best / discounts[: len(best)]).sum()
    return ideals


def from_lists(
    items: int, which: Ints, rows: list[Ints], gains: list[NDArray[np.float64]], own: Ints
) -> Relevance:
    """Relevance from the lists themselves: `which` of them is each query's."""
    lengths = [len(part) for part in rows]
    return Relevance(
        items=items,
        which=which,
        starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        rows=np.concatenate([np.zeros(0, dtype=np.int64), *rows]),
        gains=np.concatenate([np.zeros(0), *gains]),
        own=own,
    )


def _label_sets(values: LabelSets, name: str) -> list[frozenset[Any]]:
    if isinstance(values, np.ndarray) and values.dtype != object:
        if values.ndim != 2 or values.dtype != bool:
            raise ShapeError(
                f"{name}: expected a boolean matrix (items, classes) or a collection of labels "
                f"per item, got {values.dtype} of shape {values.shape}."
            )
        return [frozenset(np.flatnonzero(row).tolist()) for row in values]
    wrong = [row for row, names in enumerate(values) if isinstance(names, str | int | np.generic)]
    if wrong:
        raise LabelError(
            f"{name}: rows {some(wrong)} hold one label where a collection of labels is expected."
        )
    return [frozenset(names) for names in values]


def as_relevance(
    labels: Relevance | ArrayLike | LabelSets, query_labels: ArrayLike | LabelSets | None = None
) -> Relevance:
    """Relevance from whatever labels there are: one per item, several per item, or ready made."""
    if isinstance(labels, Relevance):
        return labels
    if is_column(labels) and (query_labels is None or is_column(query_labels)):
        return Relevance.from_labels(labels, query_labels)  # type: ignore[arg-type]
    return Relevance.from_label_sets(labels, query_labels)  # type: ignore[arg-type]


def is_column(values: object) -> bool:
    """Whether there is one label per item, and not a collection of them each."""
    if isinstance(values, Relevance):
        return False
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.ndim == 1
    return all(isinstance(value, str | int | float | np.generic) for value in values)  # type: ignore[attr-defined]
