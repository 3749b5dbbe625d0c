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

from fastfill.align import (
    Aligned,
    FitOptions,
    Fusion,
    Serving,
    check_serving,
    fit_alignment,
    fit_part,
)
from fastfill.align.leave_one_out import LeaveOut
from fastfill.errors import InputError, LabelError, ShapeError
from fastfill.evaluate.simulation import as_fractions
from fastfill.features import Distance, Features, Ints, Pairs, check_rows
from fastfill.forecast.agreement_by_folds import FoldedPairs, folded_agreement
from fastfill.forecast.agreement_leave_one_out import LeaveOneOutAgreement
from fastfill.forecast.agreement_served import ServedAgreement
from fastfill.forecast.band import DRAWS, POINTS, QueryCurves
from fastfill.forecast.forecast import Forecast
from fastfill.forecast.known_gallery import KnownGallery, QueryView
from fastfill.forecast.labelled import LabelledRehearsal
from fastfill.forecast.served_ranking import ServedRanking
from fastfill.forecast.training_pairs import TrainingPairs
from fastfill.metrics import Metric, as_metric

FOLDS = 10
MOST_ALONE = 50_000_000  # distances of pairs to items that are found with each pair left out alone
# Share of the variance of held-out new vectors that a map explains, from which on the bands of
# agreement hold for items as queries: 29 to 51 % on CIFAR-100 and CLINC150; on documents 31 to 42 %
# from 1,000 pairs (81 to 100 % of the true points inside), at most 25 % from 300 (10 to 81 %).
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
        queries_old: Features | None = None,
        seed: int | None = None,
    ) -> None:
        fit = fit or FitOptions()
        self.fit = fit if seed is None else replace(fit, seed=seed)
        self.gallery = KnownGallery.of(pairs, items, gallery, gallery_labels, distance, done)
        self.training = TrainingPairs.of(pairs, taught)
        self._queries, self._queries_old = self._asked(queries, queries_old)
        self.alignment = fit_alignment(self.training.pairs, self.fit, head=head, distance=distance)

    def forecast(
        self,
        metric: str = "agreement@10",
        policy: str = "sigma",
        refits: Sequence[float] = (),
        progress: bool = False,
        serving: Serving = "aligned",
    ) -> Forecast:
        """The curve of one metric along one policy; see `Forecast.from_pairs`."""
        measure = as_metric(metric)
        agreement = measure.family == "agreement"
        served = self._served(check_serving(serving))
        made = self._curve(measure, policy, served, progress)
        if served is not None:
            alone = np.ones(1 + DRAWS)  # the new model agrees with itself
            if not agreement:  # the same queries are drawn again, so that both can be divided
                whole = self._curve(measure, policy, None, progress)
                alone = np.concatenate([whole.values[-1:], np.asarray(whole.draws)[:, -1]])
            made = replace(made, serving=serving, alone=alone)
        asked = 0 if self._queries is None else len(self._queries)
        doubt = "" if not agreement else self._doubt() if served is None else self._served_doubt()
        made = replace(made, doubt=doubt, queries=asked)
        return _unbounded_above(made, min(refits)) if len(refits) else made

    def _curve(
        self, metric: Metric, policy: str, served: ServedRanking | None, progress: bool
    ) -> Forecast:
        gallery = self.gallery
        if metric.family == "agreement":
            curves = self._agreement(metric.k, policy, served)
        else:
            curves = self._labelled(metric, policy, served, progress)
        return curves.forecast(metric.name, gallery.items, len(gallery.pairs), self.fit.seed)

    def _served(self, serving: Serving) -> ServedRanking | None:
        """What queries rank items by; None: by the new model's vectors, as they are."""
        if serving == "aligned":
            return None
        gallery, new, old = self.gallery, self._queries, self._queries_old
        if new is not None and old is None:
            raise InputError(
                f"Serving {serving!r} needs the old model: give the queries under it too "
                "(queries_old)."
            )
        given = None if new is None or old is None else (old.vectors, new.vectors)
        reference, fusion = self.alignment.reference, None
        if reference is None:
            raise InputError("Serving with the old model needs the reference pairs of the map.")
        if serving == "both":
            fusion = Fusion.learn(reference, given, distance=gallery.distance, items=gallery.items)
        asked = given or (gallery.pairs.old.vectors, gallery.pairs.new.vectors)
        return ServedRanking(gallery.distance, gallery.old, *asked, reference, fusion)

    def _labelled(
        self, metric: Metric, policy: str, served: ServedRanking | None, progress: bool
    ) -> QueryCurves:
        if self.gallery.labels is None:
            raise LabelError(
                f"A forecast of {metric.name} needs the labels of the pairs and of the gallery. "
                "Without them forecast agreement@k, the share of the k new neighbours found."
            )
        self._check_query_labels()
        played = LabelledRehearsal(
            self.gallery, self.views, metric, policy, self.fit.seed, self._users(), served
        )
        return played.curves(progress)

    def _agreement(self, k: int, policy: str, served: ServedRanking | None) -> QueryCurves:
        gallery, fractions = self.gallery, as_fractions(POINTS)
        if served is not None:
            return self._served_agreement(k, policy, served)
        if self.leave is None:
            return folded_agreement(self.folded, gallery.items, k, fractions, policy)
        users = None if self._queries is None else self._queries.vectors
        alone = LeaveOneOutAgreement(
            self.leave, gallery.pairs, gallery.distance, self.fit.seed, users
        )
        return alone.curves(gallery.items, k, fractions, policy)

    def _served_agreement(self, k: int, policy: str, served: ServedRanking) -> QueryCurves:
        gallery = self.gallery
        if gallery.pairs_only and gallery.items > len(gallery.pairs):
            raise InputError(
                "A forecast of agreement where the old model answers too needs the old vectors of "
                "the other items, or of a sample of them (gallery)."
            )
        users = self._users()
        views = self.views if users is None else [users]
        return ServedAgreement(gallery, views, served, policy, self.fit.seed).curves(k)

    def _doubt(self) -> str:
        """Why a forecast of agreement may be off by more than its band; empty: nothing says so."""
        explained = float(self.alignment.facts["held_out"]["explained"])
        if explained >= EXPLAINED:
            return ""
        return (
            f"The map explains {max(explained, 0):.0%} of the variance of held-out new vectors; "
            f"below {EXPLAINED:.0%} forecasts of agreement are off by more than their band. Learn "
            "it from more pairs, or measure with real queries as the backfill goes on."
        )

    def _served_doubt(self) -> str:
        """The same where the old model answers too: with real queries, no good map is needed."""
        known, items = len(self.gallery.old), self.gallery.items
        if known < items:
            return (
                f"Only {known:,} of {items:,} items are known, in which the neighbours are not "
                "those of all. Give the old vectors of all other items."
            )
        return self._doubt() if self._queries is None else ""

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

    def _asked(
        self, queries: Features | None, old: Features | None
    ) -> tuple[Features | None, Features | None]:
        """The queries of users that are played through, new and old: all, or a sample of many."""
        if queries is None:
            if old is not None:
                raise InputError("Queries under the old model need those under the new (queries).")
            return None, None
        pairs = self.gallery.pairs
        for given, side, name in ((queries, pairs.new, "new"), (old, pairs.old, "old")):
            if given is not None and given.dim != side.dim:
                raise ShapeError(
                    f"{given.name}: queries of {given.dim} dimensions, but the {name} vectors of "
                    f"the pairs have {side.dim}. Embed the queries by the {name} model."
                )
        if old is not None:
            check_rows(len(old), len(queries), "old queries")
        rng = np.random.default_rng([self.fit.seed, 7])
        rows = np.sort(rng.permutation(len(queries))[:QUERIES])
        return queries.take(rows), None if old is None else old.take(rows)

    def _check_query_labels(self) -> None:
        """Refuse queries whose labels are missing, or cannot be those of the items."""
        asked, gallery = self._queries, self.gallery
        if asked is None:
            return
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

    def _users(self) -> QueryView | None:
        """The queries of users, which no map has seen, on the gallery as it will be aligned."""
        asked, gallery, pairs = self._queries, self.gallery, self.gallery.pairs
        if asked is None:
            return None
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
