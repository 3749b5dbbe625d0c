"""Metrics with labels, rehearsed on the real gallery: distances known where they are, else drawn.

Aligned items are at distances that are known exactly; the new vector of a backfilled item is known
only if it is a pair. For all others the distance is drawn: pairs that were held out together show
how the distance to a new vector follows from that to the aligned one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned
from fastfill.errors import InputError, LabelError, ShapeError
from fastfill.evaluate.progress import ticking
from fastfill.evaluate.simulation import as_fractions, backfilled_counts
from fastfill.evaluate.weighting import balanced, label_weights, sampled_precision
from fastfill.features import Array, Distance, Matrix, Pairs, as_column, as_matrix, pairwise
from fastfill.metrics import Metric, Relevance, gallery_scores
from fastfill.order import Known, arrange

POINTS = 21
DONORS = 40  # held-out distances that one is drawn from
GROUPS = 3  # by predicted error, that distances are drawn in
LEAST_COUPLES = 400  # of one label in each group
OPINION = 1 / 2  # weight of the pairs alone at the end of a curve of mAP
USUAL = 5_000  # other items, at most, that show how hard queries are
# Half widths beside that of the sample of queries: for what is taken to be the same and is not, for
# the few pairs that distances are drawn from at the end of a curve (times the root of their
# number), and for the drawing itself there where there is no second opinion.
ALIKE, DONATED, DRAWN = 0.0075, 0.55, 0.03

Column = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class World:
    """The gallery as far as it is known: the pairs first, then old vectors of other items."""

    pairs: Pairs
    items: int  # of the real gallery
    old: Matrix  # (n, d_old)
    labels: Array | None  # (n,)
    distance: Distance
    done: NDArray[np.bool_]  # (n,) items beside the pairs that are new already

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        items: int,
        gallery: Matrix | None,
        gallery_labels: ArrayLike | None,
        distance: Distance,
        done: ArrayLike | None = None,
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
        new = np.zeros(len(old), dtype=bool)
        if done is not None:
            new[len(pairs) :] = as_column(done, len(old) - len(pairs), "done")
        return cls(pairs, items, old, labels, distance, new)

    def distances(self, queries: Matrix, vectors: Matrix) -> Matrix:
        """Distances (q, n) that can be compared and drawn: not squared."""
        values = pairwise(queries, vectors, self.distance)
        return values if self.distance == "ip" else np.sqrt(np.maximum(values, 0))


@dataclass(frozen=True, eq=False)
class Part:
    """Queries, and the gallery as maps align it that have not seen them.

    Either one map that has seen none of the held pairs, or one for each of them without it alone.
    """

    held: Rows  # (h,) pairs
    kept: Rows  # pairs that the map knows: the others, or all where only the query is left out
    aligned: Aligned  # (n, d_new), the held pairs as maps without them align them
    near: Matrix  # (q, n) distances of the queries to the aligned gallery
    true: Matrix  # (q, m) distances to the new vectors of all pairs
    asked: Rows  # (q,) the items that the queries are: the held pairs; −1 for those of users
    labels: Array | None  # (q,) of the queries
    known: Matrix  # (q, n) distances of what the queries were before, aligned, to the gallery
    together: Matrix  # (q, h) distances to the held pairs, aligned by maps that knew neither


class Relation:
    """How the distance to a new vector follows from that to the aligned one, by example."""

    def __init__(self, near: Column, true: Column) -> None:
        order = np.argsort(near)
        self.near, self.true = near[order], true[order]

    def draw(self, near: Column, rng: np.random.Generator) -> Column:
        """One distance for each: that of an example nearby, moved by what it is nearer."""
        if not len(self.near):
            return near
        donors = min(DONORS, len(self.near))
        first = np.searchsorted(self.near, near) - donors // 2
        chosen = np.clip(first, 0, len(self.near) - donors) + rng.integers(donors, size=len(near))
        return np.asarray(self.true[chosen] + (near - self.near[chosen]))


class Relations:
    """One relation for items of the query's label and one for others, each by predicted error.

    A doubtful item moves farther when it becomes new than a sure one at the same distance, and an
    order by sigma takes the doubtful ones first.
    """

    def __init__(self, world: World, parts: list[Part]) -> None:
        near, true, match, variance = [], [], [], []
        for part in parts:
            labels = np.asarray(world.labels)[part.held]
            others = ~np.eye(len(part.held), dtype=bool)
            near.append(part.together[others])
            true.append(part.true[:, part.held][others])
            match.append((labels[:, None] == labels[None, :])[others])
            each = part.aligned.variance[part.held]
            variance.append(np.broadcast_to(each, others.shape)[others])
        columns = (np.concatenate(side).astype(np.float64) for side in (near, true, variance))
        (close, far, doubt), same = columns, np.concatenate(match)
        groups = int(np.clip(same.sum() // LEAST_COUPLES, 1, GROUPS))
        self.edges = np.quantile(doubt, np.arange(1, groups) / groups)
        group = self.group(doubt)
        self.of = {
            (kind, number): Relation(close[chosen], far[chosen])
            for kind in (True, False)
            for number in range(groups)
            for chosen in [(same == kind) & (group == number)]
        }

    def group(self, variance: NDArray[np.floating[Any]]) -> Rows:
        """The group that items of this predicted error belong to."""
        return np.searchsorted(self.edges, variance)


def labelled(
    world: World,
    parts: list[Part],
    metric: Metric,
    policy: str,
    seed: int,
    progress: bool,
    users: Part | None = None,
) -> tuple[NDArray[np.float64], Column, Column]:
    """The metric of each answerable query at each stage (q, p), how much each counts (q,), and the
    doubt beside the sample's (p,).

    The queries of `users`, where there are any, take the place of the pairs.

    Where only some of the gallery is known, the metric of that and of half of it show how it
    depends on the size; without any of it, the pairs that were held out together are the gallery.
    """
    relations = Relations(world, parts)
    rng = np.random.default_rng([seed, 5])
    fractions = as_fractions(POINTS)
    scores, halves, asked = [], [], []
    with ticking(progress, f"rehearsing {metric.name}") as tick:
        for part in [users] if users else parts:
            alone = len(world.old) == len(world.pairs)
            rows = np.sort(part.held) if alone and not users else np.arange(len(world.old))
            steps = _steps(world, part, rows, policy, seed)
            half = rng.permutation(len(rows))[: len(rows) // 2]
            for query in range(len(part.asked)):
                drawn = _drawn(world, part, query, relations, rng)
                found = _score(world, part, query, rows, steps, drawn, metric)
                if found is None:
                    continue
                if metric.family == "map" and len(rows) == len(world.old):
                    found = _second_opinion(world, part, query, found, fractions, rng)
                scores.append(found)
                asked.append(part.asked[query])
                if len(rows) < world.items:
                    less = _score(world, part, query, rows[half], steps[half], drawn, metric)
                    halves.append(found if less is None else less)
                if tick is not None:
                    tick(len(scores), len(users.asked if users else world.pairs))
    if not scores:
        asked_by = "query has the label of an" if users else "pair has the label of another"
        raise LabelError(f"No {asked_by} item: nothing can be forecast.")
    values = np.stack(scores)
    donated = DONATED / np.sqrt(len(world.pairs))
    end = donated if metric.family == "map" else np.hypot(donated, DRAWN)
    doubt = np.hypot(ALIKE, fractions * end)
    if halves:  # the error of a size falls with its inverse
        known = len(world.old)
        if known == len(world.pairs) and not users:
            known = len(parts[0].held)
        further = (values - np.stack(halves)) * (1 - known / world.items)
        values, doubt = values + further, doubt + np.abs(further.mean(axis=0))
    if users:
        return values, np.ones(len(values)), doubt
    rows = np.array(asked)
    weights = label_weights(np.asarray(world.labels), rows)
    if len(world.old) > len(world.pairs):
        values = balanced(values, *_ease(world, parts, metric, rows), weights)
    return values, weights, doubt


def _ease(world: World, parts: list[Part], metric: Metric, asked: Rows) -> tuple[Column, float]:
    """How well the aligned vector of each query finds its like among aligned ones; and usually.

    A few hundred queries are easier or harder than all items by chance. This says by how much.
    """
    labels = np.asarray(world.labels)
    relevance = Relevance.from_labels(labels)
    ease = np.zeros(len(world.pairs))
    for part in parts:
        for query, pair in enumerate(part.asked):
            others = np.arange(len(labels)) != pair
            relevant = np.flatnonzero(labels[others] == labels[pair])
            if len(relevant):
                distances = part.known[query, others].astype(np.float64)
                ease[pair] = _at_once(metric, distances, relevant)
    rest = np.arange(len(world.pairs), len(world.old))
    step = -(-len(rest) * len(parts) // USUAL)  # a share of them through each map
    usual = []
    for number, part in enumerate(parts):
        rows, vectors = rest[number * step // len(parts) :: step], part.aligned.vectors
        scores = gallery_scores(
            vectors[rows], vectors, relevance.take(rows), [metric], distance=world.distance
        )
        usual.append(scores.values[metric.name][:, 0])
    return ease[asked], float(np.concatenate(usual).mean())


def _steps(world: World, part: Part, rows: Rows, policy: str, seed: int) -> Rows:
    """The stage at which each of the rows becomes new: the pairs first, then by the policy."""
    aligned = part.aligned.take(rows)
    known = Known(
        aligned, old=world.old[rows], pairs_old=world.pairs.old.vectors[part.kept],
        distance=world.distance, seed=seed,
    )  # fmt: skip
    order = arrange(policy, known).positions
    others = world.done[rows]
    first = np.concatenate([np.flatnonzero(others), np.flatnonzero(rows < len(world.pairs))])
    # A sample of the gallery has as few pairs, and as many other new items.
    share = max(len(world.pairs) / world.items, float(others.mean()))
    first = first[: round(share * len(rows))] if len(rows) < world.items else first
    order = np.concatenate([first, order[~np.isin(order, first)]])
    counts = backfilled_counts(as_fractions(POINTS), len(rows))
    steps = np.empty(len(rows), dtype=np.int64)
    steps[order] = np.searchsorted(counts, np.arange(len(rows)), side="right")
    return steps


def _drawn(
    world: World,
    part: Part,
    query: int,
    relations: Relations,
    rng: np.random.Generator,
) -> Column:
    """Distances of one query to the new vectors of all items, (n,): known for pairs, else drawn."""
    labels, first = np.asarray(world.labels), len(world.pairs)
    near = part.near[query].astype(np.float64)
    true: Column = np.empty_like(near)
    true[:first] = part.true[query]
    match = labels == np.asarray(part.labels)[query]
    group = relations.group(part.aligned.variance)
    for (kind, number), known in relations.of.items():
        rows = np.flatnonzero((match[first:] == kind) & (group[first:] == number)) + first
        true[rows] = known.draw(near[rows], rng)
    return true


def _score(
    world: World, part: Part, query: int, rows: Rows, steps: Rows, drawn: Column, metric: Metric
) -> Column | None:
    from fastfill.evaluate.staging import staged_ranks

    labels = np.asarray(world.labels)
    others = rows != part.asked[query]
    rows, steps = rows[others], steps[others]
    relevant = np.flatnonzero(labels[rows] == np.asarray(part.labels)[query])
    if not len(relevant):
        return None
    near = part.near[query, rows].astype(np.float64)
    ranks: NDArray[np.int64] = staged_ranks(near, drawn[rows], steps, relevant, POINTS)
    return score_ranks(metric, ranks)


def _second_opinion(
    world: World,
    part: Part,
    query: int,
    found: Column,
    fractions: Column,
    rng: np.random.Generator,
) -> Column:
    """The end moved towards what the known distances among the pairs alone say.

    Distances that are drawn one by one scatter more than real ones and make the end too good; the
    pairs alone are right in the mean, and noisy.
    """
    own = part.asked[query]
    match = np.asarray(world.labels) == np.asarray(part.labels)[query]
    mine = np.flatnonzero(match[: len(world.pairs)])
    mine = mine[mine != own]
    others = np.flatnonzero(~match[: len(world.pairs)])
    if not len(mine) or not len(others):
        return found
    counts = (int(match.sum()) - int(own >= 0), int((~match).sum()))
    true = part.true[query].astype(np.float64)
    end = sampled_precision(true[mine], true[others], counts, rng)
    return np.asarray(found + OPINION * fractions * (end - found[-1]))


def _at_once(metric: Metric, distances: Column, relevant: Rows) -> float:
    """A metric of one query, whose distances do not change."""
    from fastfill.evaluate.staging import staged_ranks

    ranks = staged_ranks(distances, distances, np.zeros(len(distances), np.int64), relevant, 1)
    return float(score_ranks(metric, ranks)[0])


def score_ranks(metric: Metric, ranks: NDArray[np.int64]) -> Column:
    """A metric from the rising ranks (stages, r) of the relevant items, (stages,).

    >>> from fastfill.metrics import as_metric
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
