"""Distances to new vectors that do not exist yet, sampled from pairs that were held out together.

Pairs show how the distance to a new vector follows from that to the aligned one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Ints
from fastfill.forecast.known_gallery import KnownGallery, QueryView

DONORS = 40  # held-out distances that one is sampled from
GROUPS = 3  # by predicted error, that distances are sampled in
LEAST_COUPLES = 400  # of one label in each group

Column = NDArray[np.float64]


class DistanceSampler:
    """How the distance to a new vector follows from that to the aligned one, by example."""

    def __init__(self, near: Column, true: Column) -> None:
        order = np.argsort(near)
        self.near, self.true = near[order], true[order]

    def sample(self, near: Column, rng: np.random.Generator) -> Column:
        """One distance for each: that of an example nearby, moved by what it is nearer."""
        if not len(self.near):
            return near
        donors = min(DONORS, len(self.near))
        first = np.searchsorted(self.near, near) - donors // 2
        chosen = np.clip(first, 0, len(self.near) - donors) + rng.integers(donors, size=len(near))
        return np.asarray(self.true[chosen] + (near - self.near[chosen]))


class DistanceSamplers:
    """One sampler for items of the query's label and one for others, each by predicted error.

    A doubtful item moves farther when it becomes new than a sure one at the same distance, and an
    order by sigma takes the doubtful ones first.
    """

    def __init__(self, gallery: KnownGallery, views: list[QueryView]) -> None:
        near, true, match, variance = [], [], [], []
        for view in views:
            labels = np.asarray(gallery.labels)[view.held]
            others = ~np.eye(len(view.held), dtype=bool)
            near.append(view.together[others])
            true.append(view.true[:, view.held][others])
            match.append((labels[:, None] == labels[None, :])[others])
            each = view.aligned.variance[view.held]
            variance.append(np.broadcast_to(each, others.shape)[others])
        columns = (np.concatenate(side).astype(np.float64) for side in (near, true, variance))
        (close, far, doubt), same = columns, np.concatenate(match)
        groups = int(np.clip(same.sum() // LEAST_COUPLES, 1, GROUPS))
        self.edges = np.quantile(doubt, np.arange(1, groups) / groups)
        group = self.group(doubt)
        self.of = {
            (kind, number): DistanceSampler(close[chosen], far[chosen])
            for kind in (True, False)
            for number in range(groups)
            for chosen in [(same == kind) & (group == number)]
        }

    def group(self, variance: NDArray[np.floating[Any]]) -> Ints:
        """The group that items of this predicted error belong to."""
        return np.searchsorted(self.edges, variance)

    def distances(
        self, gallery: KnownGallery, view: QueryView, query: int, rng: np.random.Generator
    ) -> Column:
        """Of one query to the new vectors of all items, (n,): known for pairs, else sampled."""
        labels, first = np.asarray(gallery.labels), len(gallery.pairs)
        near = view.near[query].astype(np.float64)
        true: Column = np.empty_like(near)
        true[:first] = view.true[query]
        match = labels == np.asarray(view.labels)[query]
        group = self.group(view.aligned.variance)
        for (kind, number), sampler in self.of.items():
            rows = np.flatnonzero((match[first:] == kind) & (group[first:] == number)) + first
            true[rows] = sampler.sample(near[rows], rng)
        return true
