"""The migration rehearsed on the pairs, from which `Forecast.from_pairs` predicts the real one.

Each pair plays a query whose new vector is known, on the real gallery, mapped by an alignment that
has not seen the pair. Aligned items are at distances that are known exactly; the new vector of a
backfilled item is known only if it is a pair. For all others the distance is drawn: pairs that were
held out together show how the distance to a new vector follows from that to the aligned one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned, Alignment, fit_alignment, fit_part
from fastfill.errors import InputError, LabelError, ShapeError
from fastfill.evaluate.forecast import LEVEL, Forecast
from fastfill.evaluate.progress import ticking
from fastfill.evaluate.simulation import as_fractions, backfilled_counts
from fastfill.features import Array, Distance, Matrix, Pairs, as_column, as_matrix, pairwise
from fastfill.metrics import Metric, as_metric
from fastfill.order import Known, arrange

FOLDS = 5
POINTS = 21
DONORS = 40  # held-out distances that one is drawn from
DRAWS = 400  # resamples of the queries

Column = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class World:
    """The gallery as far as it is known: the pairs first, then old vectors of other items."""

    pairs: Pairs
    old: Matrix  # (n, d_old)
    labels: Array | None  # (n,)
    distance: Distance
    fractions: Column  # (p,)
    counts: Rows  # (p,) items that are new at each stage

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        items: int,
        gallery: Matrix | None,
        gallery_labels: ArrayLike | None,
        distance: Distance,
    ) -> World:
        """Checked; labels only where all items have one."""
        old, labels = pairs.old.vectors, pairs.labels
        if gallery is not None:
            rest = as_matrix(gallery, "gallery")
            if rest.shape[1] != old.shape[1]:
                raise ShapeError(
                    f"gallery: vectors of {rest.shape[1]} dimensions, but the old vectors of the "
                    f"pairs have {old.shape[1]}. Give vectors of the old model."
                )
            if labels is not None and gallery_labels is not None:
                column = as_column(gallery_labels, len(rest), "gallery labels")
                labels = np.concatenate([labels, column])
            else:
                labels = None
            old = np.concatenate([old, rest])
        if items < len(old):
            raise InputError(
                f"The gallery has {items:,} items, but {len(pairs):,} pairs and "
                f"{len(old) - len(pairs):,} other old vectors were given."
            )
        fractions = as_fractions(POINTS)
        return cls(pairs, old, labels, distance, fractions, backfilled_counts(fractions, len(old)))

    def distances(self, queries: Matrix, vectors: Matrix) -> Matrix:
        """Distances (q, n) that can be compared and drawn: not squared."""
        values = pairwise(queries, vectors, self.distance)
        return values if self.distance == "ip" else np.sqrt(np.maximum(values, 0))


@dataclass(frozen=True, eq=False)
class Part:
    """Pairs that one map has not seen, and the gallery as that map aligns and orders it."""

    held: Rows  # (h,) pairs
    near: Matrix  # (h, n) distances of their new vectors to the aligned gallery
    true: Matrix  # (h, m) distances to the new vectors of all pairs
    steps: Rows  # (n,) the stage at which each item becomes new


def rehearse(
    pairs: Pairs,
    items: int,
    *,
    metric: str,
    policy: str,
    refits: Sequence[float],
    distance: Distance,
    method: str,
    gallery: Matrix | None,
    gallery_labels: ArrayLike | None,
    seed: int,
    progress: bool,
    **options: Any,
) -> Forecast:
    """See `Forecast.from_pairs`."""
    measure = as_metric(metric)
    world = World.of(pairs, items, gallery, gallery_labels, distance)
    if measure.family != "agreement" and world.labels is None:
        raise LabelError(
            f"A forecast of {measure.name} needs the labels of the pairs and of the gallery. "
            "Without them forecast agreement@k, the share of the k new neighbours that are found."
        )
    like = fit_alignment(pairs, method=method, distance=distance, seed=seed, **options)
    parts = [_part(world, like, held, policy, seed, options) for held in _folds(len(pairs), seed)]
    rng = np.random.default_rng(seed)
    scores = _scores(world, parts, measure, rng, progress)  # (queries, p)
    return _forecast(measure, world, items, scores, rng)


def _folds(rows: int, seed: int) -> list[Rows]:
    order = np.random.default_rng([seed, 1]).permutation(rows)
    return [np.sort(part) for part in np.array_split(order, FOLDS)]


def _part(
    world: World, like: Alignment, held: Rows, policy: str, seed: int, options: dict[str, Any]
) -> Part:
    """Fit a map without the held pairs, and look at the gallery through it."""
    pairs = world.pairs
    kept = np.setdiff1d(np.arange(len(pairs)), held)
    aligned = fit_part(pairs, kept, like, seed=seed, **options)(world.old)
    queries = pairs.new.vectors[held]
    return Part(
        held,
        world.distances(queries, aligned.vectors),
        world.distances(queries, pairs.new.vectors),
        _steps(world, aligned, kept, policy, seed),
    )


def _steps(world: World, aligned: Aligned, kept: Rows, policy: str, seed: int) -> Rows:
    """The stage at which each item becomes new: the pairs first, then by the policy."""
    known = Known(
        aligned, old=world.old, pairs_old=world.pairs.old.vectors[kept],
        distance=world.distance, seed=seed,
    )  # fmt: skip
    order = arrange(policy, known).positions
    first = len(world.pairs)
    order = np.concatenate([order[order < first], order[order >= first]])
    steps = np.empty(len(order), dtype=np.int64)
    steps[order] = np.searchsorted(world.counts, np.arange(len(order)), side="right")
    return steps


class Relation:
    """How the distance to a new vector follows from that to the aligned one, by example."""

    def __init__(self, near: Column, true: Column) -> None:
        order = np.argsort(near)
        self.near, self.true = near[order], true[order]

    def draw(self, near: Column, rng: np.random.Generator) -> Column:
        """One distance for each: that of an example nearby, moved by what it is nearer."""
        donors = min(DONORS, len(self.near))
        first = np.searchsorted(self.near, near) - donors // 2
        chosen = np.clip(first, 0, len(self.near) - donors) + rng.integers(donors, size=len(near))
        drawn = self.true[chosen] + (near - self.near[chosen])
        return np.asarray(drawn)


def _relation(world: World, parts: list[Part], match: bool | None) -> Relation:
    """Examples from pairs that were held out together; of one label, of two, or any."""
    near, true = [], []
    for part in parts:
        mask = ~np.eye(len(part.held), dtype=bool)
        if match is not None and world.labels is not None:
            labels = world.labels[part.held]
            mask &= (labels[:, None] == labels[None, :]) == match
        near.append(part.near[:, part.held][mask])
        true.append(part.true[:, part.held][mask])
    return Relation(*(np.concatenate(side).astype(np.float64) for side in (near, true)))


def _scores(
    world: World, parts: list[Part], metric: Metric, rng: np.random.Generator, progress: bool
) -> NDArray[np.float64]:
    """The metric of each answerable query at each stage, (q, p)."""
    kinds = (None,) if metric.family == "agreement" else (True, False)
    relations = {kind: _relation(world, parts, kind) for kind in kinds}
    scores, done = [], 0
    with ticking(progress, f"rehearsing {metric.name}") as tick:
        for part in parts:
            for row in range(len(part.held)):
                found = _query(world, part, row, metric, relations, rng)
                if found is not None:
                    scores.append(found)
            done += len(part.held)
            if tick is not None:
                tick(done, len(world.pairs))
    if not scores:
        raise LabelError("No pair has the label of another item: nothing can be forecast.")
    return np.stack(scores)


def _query(
    world: World,
    part: Part,
    row: int,
    metric: Metric,
    relations: dict[bool | None, Relation],
    rng: np.random.Generator,
) -> Column | None:
    from fastfill.evaluate.staging import staged_ranks

    query, first = part.held[row], len(world.pairs)
    others = np.delete(np.arange(len(world.old)), query)
    near = part.near[row].astype(np.float64)
    true = np.empty_like(near)
    true[:first] = part.true[row]
    if world.labels is None or metric.family == "agreement":
        true[first:] = relations[None].draw(near[first:], rng)
    else:
        match = world.labels == world.labels[query]
        for kind in (True, False):
            rows = np.flatnonzero(match[first:] == kind) + first
            true[rows] = relations[kind].draw(near[rows], rng)
    near, true, steps = near[others], true[others], part.steps[others]
    if metric.family == "agreement":
        relevant = np.argpartition(true, metric.k)[: metric.k]
    else:
        relevant = np.flatnonzero(match[others])
    if not len(relevant):
        return None
    ranks = staged_ranks(near, true, steps, relevant, len(world.counts))
    return score_ranks(metric, ranks)


def score_ranks(metric: Metric, ranks: NDArray[np.int64]) -> Column:
    """A metric from the rising ranks (stages, r) of the relevant items, (stages,).

    >>> score_ranks(as_metric("map"), np.array([[1, 2], [2, 4]]))
    array([1. , 0.5])
    """
    r = ranks.shape[1]
    if metric.family == "map":
        return np.asarray((np.arange(1, r + 1) / ranks).mean(axis=1))
    if metric.family == "cmc":
        return np.asarray(ranks[:, 0] <= metric.k, dtype=np.float64)
    if metric.family == "mrr":
        return np.asarray(1 / ranks[:, 0])
    if metric.family == "ndcg":
        gains = np.where(ranks <= metric.k, 1 / np.log2(1 + ranks), 0).sum(axis=1)
        return np.asarray(gains / (1 / np.log2(2 + np.arange(min(r, metric.k)))).sum())
    return np.asarray((ranks <= metric.k).mean(axis=1))


def _forecast(
    metric: Metric, world: World, items: int, scores: Column, rng: np.random.Generator
) -> Forecast:
    values = scores.mean(axis=0)
    chosen = rng.integers(len(scores), size=(DRAWS, len(scores)))
    draws = np.stack([scores[rows].mean(axis=0) for rows in chosen])
    lower, upper = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Forecast(
        metric.name, world.fractions, values, np.minimum(lower, values),
        np.maximum(upper, values), items, len(world.pairs), draws,
    )  # fmt: skip
