"""The migration rehearsed on the pairs, from which `Forecast.from_pairs` predicts the real one.

Each pair plays a query whose new vector is known, and searches what maps that have not seen it make
of the gallery: the real one for metrics with labels (see `labelled`), the pairs themselves for the
agreement of neighbours, which asks for more detail than sampled distances have (see `agreement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fastfill.align import Aligned, FitOptions, fit_alignment, fit_part
from fastfill.align.leave_one_out import LeaveOut
from fastfill.errors import LabelError, ShapeError
from fastfill.evaluate.simulation import as_fractions
from fastfill.features import Distance, Features, Ints, Pairs
from fastfill.forecast.agreement_by_folds import FoldedPairs, folded_agreement
from fastfill.forecast.agreement_leave_one_out import LeaveOneOutAgreement
from fastfill.forecast.band import POINTS, QueryCurves
from fastfill.forecast.forecast import Forecast
from fastfill.forecast.known_gallery import KnownGallery, QueryView
from fastfill.forecast.labelled import LabelledRehearsal
from fastfill.forecast.training_pairs import TrainingPairs
from fastfill.metrics import Metric, as_metric

FOLDS = 10
MOST_ALONE = 50_000_000  # distances of pairs to items that are found with each pair left out alone
# Share of the variance of held-out new vectors that a map explains, from which on the bands of
# agreement hold: 29 to 51 % on CIFAR-100 and CLINC150, where they do; at most 25 % on five sets of
# documents, where they do not.
EXPLAINED = 0.27
QUERIES = 2_000  # of users, at most, that are played through


class Rehearsal:
    """All that is fitted once, for forecasts of several metrics and policies.

    >>> rng = np.random.default_rng(0); old = rng.normal(size=(400, 6)).astype(np.float32)
    >>> new = np.tanh(old) + 0.2 * rng.normal(size=old.shape); kinds = (old[:, 0] > 0).astype(int)
    >>> pairs = Pairs(Features(old[:100]), Features(new[:100], labels=kinds[:100]))
    >>> rehearsal = Rehearsal(pairs, 400, fit=FitOptions(method="ridge"), gallery=old[100:],
    ...                       gallery_labels=kinds[100:])
    >>> [rehearsal.forecast(metric).values.shape for metric in ("map", "agreement@10")]
    [(21,), (21,)]
    """

    def __init__(
        self,
        pairs: Pairs,
        items: int,
        *,
        distance: Distance = "l2",
        fit: FitOptions | None = None,
        head: ArrayLike | None = None,
        gallery: ArrayLike | None = None,
        gallery_labels: ArrayLike | None = None,
        taught: Pairs | None = None,
        done: ArrayLike | None = None,
        queries: Features | None = None,
        seed: int | None = None,
    ) -> None:
        fit = fit or FitOptions()
        self.fit = fit if seed is None else replace(fit, seed=seed)
        self.gallery = KnownGallery.of(pairs, items, gallery, gallery_labels, distance, done)
        self.training = TrainingPairs.of(pairs, taught)
        self._queries = None if queries is None else self._some(queries)
        self.alignment = fit_alignment(self.training.pairs, self.fit, head=head, distance=distance)

    def forecast(
        self,
        metric: str = "agreement@10",
        policy: str = "sigma",
        refits: Sequence[float] = (),
        progress: bool = False,
    ) -> Forecast:
        """The curve of one metric along one policy; see `Forecast.from_pairs`."""
        measure, gallery = as_metric(metric), self.gallery
        agreement = measure.family == "agreement"
        if agreement:
            curves = self._agreement(measure.k, policy)
        else:
            curves = self._labelled(measure, policy, progress)
        made = curves.forecast(measure.name, gallery.items, len(gallery.pairs), self.fit.seed)
        made = replace(made, doubt=self._doubt() if agreement else "")
        return _unbounded_above(made, min(refits)) if len(refits) else made

    def _labelled(self, metric: Metric, policy: str, progress: bool) -> QueryCurves:
        if self.gallery.labels is None:
            raise LabelError(
                f"A forecast of {metric.name} needs the labels of the pairs and of the gallery. "
                "Without them forecast agreement@k, the share of the k new neighbours found."
            )
        played = LabelledRehearsal(
            self.gallery, self.views, metric, policy, self.fit.seed, self._users()
        )
        return played.curves(progress)

    def _agreement(self, k: int, policy: str) -> QueryCurves:
        gallery, fractions = self.gallery, as_fractions(POINTS)
        if self.leave is None:
            return folded_agreement(self.folded, gallery.items, k, fractions, policy)
        users = None if self._queries is None else self._queries.vectors
        alone = LeaveOneOutAgreement(
            self.leave, gallery.pairs, gallery.distance, self.fit.seed, users
        )
        return alone.curves(gallery.items, k, fractions, policy)

    def _doubt(self) -> str:
        """Why a forecast of agreement may be off by more than its band; empty: nothing says so."""
        explained = float(self.alignment.facts["held_out"]["explained"])
        if explained >= EXPLAINED:
            return ""
        who = "" if self._queries is not None else ", more so where people ask for other things"
        return (
            f"The map explains {max(explained, 0):.0%} of the variance of held-out new vectors, "
            f"and below {EXPLAINED:.0%} forecasts of agreement are off by more than their band"
            f"{who}. Measure with real queries as the backfill goes on."
        )

    @cached_property
    def leave(self) -> LeaveOut | None:
        """Maps without some of the pairs, where they can be had in closed form."""
        return LeaveOut.of(self.alignment, self.training.pairs)

    @cached_property
    def folded(self) -> FoldedPairs:
        """The pairs as a small gallery of their own."""
        users = None if self._queries is None else self._queries.vectors
        gallery = self.gallery
        return FoldedPairs(
            gallery.pairs, self.alignment, gallery.distance, self.fit, self.training, users
        )

    @cached_property
    def views(self) -> list[QueryView]:
        """The gallery through maps that have not seen the pairs that ask."""
        gallery, pairs = self.gallery, len(self.gallery.pairs)
        small = pairs * len(gallery.old) <= MOST_ALONE
        if self.leave is not None and not gallery.pairs_only and small:
            return [self._each_alone(self.leave)]
        order = np.random.default_rng([self.fit.seed, 1]).permutation(pairs)
        return [self._view(np.sort(held)) for held in np.array_split(order, FOLDS)]

    def _view(self, held: Ints) -> QueryView:
        """Some pairs as queries of one map, which has seen none of them."""
        gallery, pairs = self.gallery, self.gallery.pairs
        kept = np.setdiff1d(np.arange(len(pairs)), held)
        map_ = fit_part(
            self.training.pairs, self.training.without(held), self.alignment, self.fit,
            head=self.alignment.head,
        )  # fmt: skip
        aligned, queries = map_(gallery.old), pairs.new.vectors[held]
        near = gallery.distances(queries, aligned.vectors)
        labels = None if gallery.labels is None else gallery.labels[held]
        true = gallery.distances(queries, pairs.new.vectors)
        as_aligned = gallery.distances(aligned.vectors[held], aligned.vectors)
        return QueryView(held, kept, aligned, near, true, held, labels, as_aligned, near[:, held])

    def _each_alone(self, leave: LeaveOut) -> QueryView:
        """Every pair as a query of its own map, which lacks no other pair."""
        gallery, alone = self.gallery, leave.pairs
        new, before = gallery.pairs.new.vectors, alone.vectors
        m, every = len(new), np.arange(len(new))
        near, as_aligned = (np.empty((m, len(gallery.old)), dtype=np.float32) for _ in range(2))
        for block in leave.blocks(gallery.old):
            for i in range(m):
                both = np.stack([new[i], before[i]])
                distances = gallery.distances(both, block.without(i))
                near[i, block.rows], as_aligned[i, block.rows] = distances
        together = np.concatenate(
            [gallery.distances(new[i : i + 1], leave.together(i)[:m]) for i in range(m)]
        )
        whole = self.alignment(gallery.old)
        aligned = Aligned(
            np.concatenate([before[:m], whole.vectors[m:]]),
            np.concatenate([alone.variance[:m], whole.variance[m:]]),
        )
        true, labels = gallery.distances(new, new), gallery.pairs.labels
        return QueryView(every, every, aligned, near, true, every, labels, as_aligned, together)

    def _some(self, queries: Features) -> Features:
        """The queries of users that are played through: all, unless there are very many."""
        new = self.gallery.pairs.new.dim
        if queries.dim != new:
            raise ShapeError(
                f"{queries.name}: queries of {queries.dim} dimensions, but the new vectors of the "
                f"pairs have {new}. Embed the queries by the new model."
            )
        rng = np.random.default_rng([self.fit.seed, 7])
        return queries.take(np.sort(rng.permutation(len(queries))[:QUERIES]))

    def _users(self) -> QueryView | None:
        """The queries of users, which no map has seen, on the gallery as it will be aligned."""
        asked, gallery, pairs = self._queries, self.gallery, self.gallery.pairs
        if asked is None:
            return None
        if asked.labels is None:
            raise LabelError(
                f"{asked.name}: the queries have no labels, which metrics with labels need. Give "
                "one for each, or forecast agreement@k."
            )
        if asked.labels.dtype.kind != np.asarray(gallery.labels).dtype.kind:
            raise LabelError(
                f"{asked.name}: the queries' labels are {asked.labels.dtype}, those of the items "
                f"{np.asarray(gallery.labels).dtype}. Give both as numbers or both as texts."
            )
        aligned = self.alignment(gallery.old)
        near = gallery.distances(asked.vectors, aligned.vectors)
        true = gallery.distances(asked.vectors, pairs.new.vectors)
        every, outside = np.arange(len(pairs)), np.full(len(asked), -1)
        none = every[:0]
        return QueryView(
            none, every, aligned, near, true, outside, asked.labels, near[:0], near[:, none]
        )


def _unbounded_above(forecast: Forecast, first: float) -> Forecast:
    """With refits a fixed map is a lower estimate, and all new items are an upper one."""
    later = forecast.fractions >= first
    upper = np.where(later, np.maximum(forecast.upper, forecast.upper[-1]), forecast.upper)
    return replace(forecast, upper=upper)
