"""`Fusion`: makes the scores of two models comparable, so that both can answer one query.

While a gallery is half new, an item has an old vector o and an added one: h, aligned, or n, new. A
query has an old vector and a new one. Similarities of different models, queries and generations
have different means and spreads, so each is standardised *per query* over a few reference pairs,
items of the gallery whose vectors of both models are known:

    z_old = (s(q_old, o) − mean) / spread      over s(q_old, o_ref)
    z_new = (s(q_new, n) − mean) / spread      over s(q_new, n_ref); of h with the same two numbers

An item is ranked by what the new model would say of it, and keeps a share of what the old one says,
because two models that err in different ways are better than one:

    new item      keep · z_old + z_new
    aligned item  keep · z_old + a · z_old + b · z_aligned + c

a, b and c are those of a regression of z_new on the other two, among the most similar items; c also
moves aligned items up, so that they are found among the first answers (nearly) as often as they
will be when they are new. Without that a regression, which never promises much, leaves the first
places to the few items that are new. c depends on `keep`, and is learned for several shares: which
of them is best depends on how much better one model is than the other, and only judgements know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align.artefact import pack, unpack
from fastfill.align.reference import Reference
from fastfill.errors import ArtefactError, InputError, ShapeError, some
from fastfill.features import Distance, Matrix, as_matrix, check_distance, normalised

KEEP = 0.5  # share of the old score that every item keeps, where nobody has measured
KEEPS = (0.25, KEEP, 1.0, 2.0)  # shares that judged queries may choose from
TAIL = 0.1  # share of the comparisons, the most similar ones, that the weights are learned from
FAIR = 0.8  # how far aligned items are moved towards their fair share of the first answers
ANSWERS = 10  # that are looked at
ITEMS = 10_000  # of a gallery whose size is not known
LEAST = 100  # comparisons that a quantile is taken from
TINY = 1e-9

Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Weights:
    """Of an aligned item's standardised scores, and what is added to them."""

    old: float
    aligned: float
    constant: float


@dataclass(frozen=True)
class QueryScale:
    """What standardises the similarities of one query: means and spreads under both models."""

    old_mean: float
    old_spread: float
    new_mean: float
    new_spread: float


@dataclass(frozen=True, eq=False)
class Fusion:
    """Reference pairs and weights: data, learned from pairs and queries.

    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(200, 4)); new = old @ rng.normal(size=(4, 6))
    >>> near = new + 0.1 * rng.normal(size=new.shape)
    >>> fusion = Fusion.learn(Reference(old[:100], new[:100], near[:100]))
    >>> scale = fusion.scale(old[150], new[150])
    >>> is_new = np.arange(200) < 100
    >>> added = np.where(is_new[:, None], new, near)
    >>> int(np.argmax(fusion.scores(old[150], new[150], old, added, is_new)))
    150
    """

    old: Matrix  # (r, d_old) reference pairs under the old model
    new: Matrix  # (r, d_new)
    distance: Distance
    weights: Weights
    keep: float = KEEP
    constants: Mapping[float, float] = field(default_factory=dict)  # c for other shares than `keep`

    def __post_init__(self) -> None:
        check_distance(self.distance)
        if len(self.old) != len(self.new):
            raise ShapeError(
                f"A fusion has {len(self.old):,} old and {len(self.new):,} new reference vectors; "
                "they must be of the same items."
            )
        if not 0 <= self.keep <= 10:
            raise InputError(f"keep is a share from 0 on of the old score, not {self.keep}.")

    @classmethod
    def learn(
        cls,
        reference: Reference,
        queries: tuple[ArrayLike, ArrayLike] | None = None,
        *,
        distance: Distance = "l2",
        items: int = ITEMS,
        keep: float = KEEP,
    ) -> Fusion:
        """From reference pairs, and queries under both models (old, new) where there are some.

        Without queries the reference pairs ask each other. `items` is the size of the gallery.
        """
        own = queries is None
        asked = (reference.old, reference.new) if queries is None else queries
        old, new = (as_matrix(side, "queries") for side in asked)
        if len(old) != len(new):
            raise ShapeError(
                f"Queries under both models are needed: {len(old):,} old and {len(new):,} new "
                "ones were given."
            )
        mask = ~np.eye(len(old), len(reference), dtype=bool) if own else None
        z_old, _ = _standardised(similarities(old, reference.old, distance), None, mask)
        true, stats = _standardised(similarities(new, reference.new, distance), None, mask)
        near, _ = _standardised(similarities(new, reference.aligned, distance), stats, mask)
        chosen = slice(None) if mask is None else mask
        columns = (z_old[chosen].ravel(), near[chosen].ravel(), true[chosen].ravel())
        a, b, c = _regression(*columns)
        shift = partial(_shift, *columns, (a, b, c), items=items)
        fair = 1.0 if own else FAIR
        constants = {share: c + fair * shift(keep=share) for share in dict.fromkeys([keep, *KEEPS])}
        weights = Weights(a, b, constants.pop(keep))
        return cls(reference.old, reference.new, distance, weights, keep, constants)

    @property
    def keeps(self) -> tuple[float, ...]:
        """The shares of the old score that it was learned for, the present one among them."""
        return tuple(sorted([self.keep, *self.constants]))

    def keeping(self, keep: float) -> Fusion:
        """The same with another share of the old score, one of `keeps`.

        >>> new = np.random.default_rng(0).normal(size=(60, 4))
        >>> fusion = Fusion.learn(Reference(np.tanh(new), new, new + 1))
        >>> fusion.keeps, fusion.keeping(2.0).keeping(0.5).weights == fusion.weights
        ((0.25, 0.5, 1.0, 2.0), True)
        """
        if keep == self.keep:
            return self
        if keep not in self.constants:
            raise InputError(
                f"This fusion was learned for the shares {some(self.keeps)} of the old score, not "
                f"for {keep}: learn it again with keep={keep}."
            )
        others = {**self.constants, self.keep: self.weights.constant}
        weights = replace(self.weights, constant=others.pop(keep))
        return replace(self, weights=weights, keep=keep, constants=others)

    # --- one query -----------------------------------------------------------------------------

    def scale(self, query_old: ArrayLike, query_new: ArrayLike) -> QueryScale:
        """What standardises the similarities of a query."""
        sides = ((query_old, self.old), (query_new, self.new))
        numbers = []
        for query, reference in sides:
            values = similarities(_row(query), reference, self.distance)[0]
            numbers += [float(values.mean()), max(float(values.std()), TINY)]
        return QueryScale(*numbers)

    def combine(
        self, scale: QueryScale, old: ArrayLike, added: ArrayLike, is_new: ArrayLike
    ) -> Scores:
        """The score of each item, highest first, from its two similarities to one query."""
        z_old = (np.asarray(old, dtype=np.float64) - scale.old_mean) / scale.old_spread
        z_added = (np.asarray(added, dtype=np.float64) - scale.new_mean) / scale.new_spread
        weights = self.weights
        aligned = weights.old * z_old + weights.aligned * z_added + weights.constant
        return np.asarray(self.keep * z_old + np.where(is_new, z_added, aligned))

    def scores(
        self,
        query_old: ArrayLike,
        query_new: ArrayLike,
        old: Matrix,
        added: Matrix,
        is_new: ArrayLike,
    ) -> Scores:
        """The score of each item, (n,), from its vectors: the definition that searches follow."""
        return self.combine(
            self.scale(query_old, query_new),
            similarities(_row(query_old), old, self.distance)[0],
            similarities(_row(query_new), added, self.distance)[0],
            is_new,
        )

    def fuse(
        self,
        scale: QueryScale,
        old: Mapping[Any, float],
        added: Mapping[Any, tuple[float, bool]],
        k: int,
    ) -> list[tuple[Any, float]]:
        """The k best of two hit lists: similarities by id, those of the added column with whether
        the item is new.

        An item that one of the lists lacks gets the lowest similarity of that list, which is the
        most that it can have; an item that only the old list has counts as aligned.

        >>> some = np.float32([[0.0], [1.0], [2.0]])
        >>> fusion = Fusion(some, some, "l2", Weights(0.5, 0.5, 0.0))
        >>> scale = fusion.scale([0.0], [0.0])
        >>> hits = fusion.fuse(scale, {"a": -0.1, "b": -0.5}, {"a": (-0.2, True)}, k=2)
        >>> [key for key, _ in hits]
        ['a', 'b']
        """
        keys = list(dict.fromkeys([*old, *added]))
        if not keys:
            return []
        least_old = min(old.values(), default=scale.old_mean)
        least_added = min((value for value, _ in added.values()), default=scale.new_mean)
        columns = [(old.get(key, least_old), *added.get(key, (least_added, False))) for key in keys]
        scores = self.combine(scale, *(np.array(column) for column in zip(*columns, strict=True)))
        best = np.argsort(-scores, kind="stable")[:k]
        return [(keys[i], float(scores[i])) for i in best]

    # --- many queries: the same as an inner product --------------------------------------------

    def query_vectors(self, old: ArrayLike, new: ArrayLike) -> Matrix:
        """(q, d) vectors whose inner products with `item_vectors` are the scores."""
        parts = []
        for queries, reference in ((old, self.old), (new, self.new)):
            matrix = as_matrix(queries, "queries")
            values = similarities(matrix, reference, self.distance)
            spread = np.maximum(values.std(axis=1, keepdims=True), TINY)
            lifted = lift_queries(matrix, self.distance)
            parts += [lifted / spread, -values.mean(axis=1, keepdims=True) / spread]
        one = np.ones((len(parts[0]), 1))
        return np.concatenate([*parts, one], axis=1).astype(np.float32)

    def item_vectors(self, old: ArrayLike, added: ArrayLike, is_new: ArrayLike) -> Matrix:
        """(n, d) vectors of items, aligned or new."""
        new = np.asarray(is_new, dtype=bool)
        new = np.broadcast_to(new, len(np.asarray(old)))[:, None]
        weights = self.weights
        factor_old = np.where(new, self.keep, self.keep + weights.old)
        factor_added = np.where(new, 1.0, weights.aligned)
        constant = np.where(new, 0.0, weights.constant)
        parts = [
            factor_old * lift_items(as_matrix(old, "old vectors"), self.distance),
            factor_old,
            factor_added * lift_items(as_matrix(added, "added vectors"), self.distance),
            factor_added,
            constant,
        ]
        return np.concatenate(parts, axis=1).astype(np.float32)

    # --- as data -------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """Everything but the reference pairs."""
        weights = self.weights
        return {
            "distance": self.distance,
            "keep": self.keep,
            "weights": [weights.old, weights.aligned, weights.constant],
            "constants": [[share, constant] for share, constant in self.constants.items()],
        }

    def to_json(self) -> dict[str, Any]:
        """What a service in another language needs, as plain lists and numbers."""
        plain = {**self.document(), "old": self.old.tolist(), "new": self.new.tolist()}
        del plain["constants"]  # of shares that do not serve
        return plain

    def to_bytes(self) -> bytes:
        """As safetensors, for a store to keep beside the alignment, whose bytes are many more."""
        return pack({"old": self.old, "new": self.new}, {"fusion": self.document()})

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "fusion") -> Fusion:
        """From what `to_bytes` wrote; nothing in it is executed."""
        arrays, document = unpack(data, name)
        try:
            return cls.from_parts(arrays["old"], arrays["new"], document["fusion"])
        except (KeyError, TypeError, ValueError):
            raise ArtefactError(f"{name}: is not a fusion. Learn one again.") from None

    @classmethod
    def from_parts(cls, old: Matrix, new: Matrix, document: Mapping[str, Any]) -> Fusion:
        """From the reference pairs and the rest."""
        weights = Weights(*(float(value) for value in document["weights"]))
        constants = {float(share): float(c) for share, c in document.get("constants", ())}
        return cls(old, new, document["distance"], weights, float(document["keep"]), constants)


def similarities(queries: Matrix, items: Matrix, distance: Distance) -> Scores:
    """(q, n) similarities: products, cosines, or what a squared distance leaves of −‖q − x‖².

    ‖q‖² is left out: it is the same for all items, and standardising takes it away.
    """
    lifted = lift_queries(queries, distance) @ lift_items(items, distance).T
    return np.asarray(lifted, dtype=np.float64)


def lift_queries(queries: Matrix, distance: Distance) -> NDArray[np.float32]:
    """(q, d') queries whose products with lifted items are similarities."""
    if distance == "cosine":
        return normalised(queries, "queries")
    if distance == "ip":
        return queries
    return np.concatenate([2 * queries, np.ones((len(queries), 1), np.float32)], axis=1)


def lift_items(items: Matrix, distance: Distance) -> NDArray[np.float32]:
    """(n, d') items, as `lift_queries` wants them; zero vectors have no direction and stay zero."""
    if distance == "cosine":
        norms = np.linalg.norm(items, axis=1, keepdims=True)
        return np.asarray(items / np.where(norms > 0, norms, 1), dtype=np.float32)
    if distance == "ip":
        return items
    squares = np.einsum("ij,ij->i", items, items)[:, None]
    return np.concatenate([items, -squares], axis=1)


def _standardised(
    values: Scores, stats: tuple[Scores, Scores] | None, mask: Mask | None
) -> tuple[Scores, tuple[Scores, Scores]]:
    """(q, r) row by row, with the given means and spreads or its own."""
    if stats is None:
        seen = values if mask is None else np.where(mask, values, np.nan)
        spread = np.maximum(np.nanstd(seen, axis=1, keepdims=True), TINY)
        stats = np.nanmean(seen, axis=1, keepdims=True), spread
    return (values - stats[0]) / stats[1], stats


def _regression(z_old: Scores, near: Scores, true: Scores) -> tuple[float, float, float]:
    """What the new model would say, by least squares among the most similar: a, b and c."""
    total = z_old + near
    tail = total >= np.quantile(total, 1 - TAIL)
    columns = np.stack([z_old[tail], near[tail], np.ones(int(tail.sum()))], axis=1)
    a, b, c = np.linalg.lstsq(columns, true[tail], rcond=1e-6)[0]
    return float(a), float(b), float(c)


def _shift(
    z_old: Scores, near: Scores, true: Scores, fitted: tuple[float, float, float],
    *, keep: float, items: int,
) -> float:  # fmt: skip
    """By how much aligned items must be moved up to their fair share of the first answers."""
    a, b, c = fitted
    level = min(max(ANSWERS / max(items, 1), LEAST / len(z_old)), 0.5)
    as_new = np.quantile(keep * z_old + true, 1 - level)
    as_aligned = np.quantile(keep * z_old + a * z_old + b * near + c, 1 - level)
    return float(as_new - as_aligned)


def _row(query: ArrayLike) -> Matrix:
    return as_matrix(np.asarray(query, dtype=np.float32)[None, :], "query")
