"""Metrics of a gallery, and of every stage of its backfilling, per query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import LabelError
from fastfill.features import Distance, Matrix, pairwise
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance, Rows

Tick = Callable[[int, int], None]  # queries done, queries in all


@dataclass(frozen=True, eq=False)
class Scores:
    """Values of each answerable query at each stage."""

    queries: Rows  # (k,) rows of the query set that have a relevant item
    excluded: int  # queries without one
    values: dict[str, NDArray[np.float64]]  # by metric, (k, f)


def curve_scores(
    queries: Matrix,
    before: Matrix,
    after: Matrix,
    positions: Rows,
    counts: Rows,
    relevance: Relevance,
    metrics: Sequence[Metric],
    *,
    distance: Distance = "l2",
    device: str | None = None,
    tick: Tick | None = None,
) -> Scores:
    """Every metric at every stage."""
    kept = np.flatnonzero(relevance.counts)
    if not len(kept):
        raise LabelError("No query has a relevant item in the gallery: nothing can be measured.")
    stages = []
    for count in counts:
        gallery = before.copy()
        gallery[positions[:count]] = after[positions[:count]]
        stages.append(_slow(queries, gallery, relevance, metrics, kept, distance))
    stacked = np.stack(stages, axis=-1)
    values = {metric.name: stacked[i] for i, metric in enumerate(metrics)}
    return Scores(kept, len(relevance) - len(kept), values)


def _slow(queries, gallery, relevance, metrics, kept, distance):
    out = np.zeros((len(metrics), len(kept)))
    for at, q in enumerate(kept):
        d = pairwise(queries[q : q + 1], gallery, distance)[0].astype(np.float64)
        rel = relevance.of(q)
        gains = relevance.gains_of(q)
        d[relevance.own[q]] = np.inf if relevance.own[q] >= 0 else d[-1]
        order = np.lexsort([gains, d[rel]])
        rel, gains = rel[order], gains[order]
        all_ = np.array([(d <= d[i]).sum() for i in rel])
        rel_ = np.array([(d[rel] <= d[i]).sum() for i in rel])
        ranks = np.arange(1, len(rel) + 1) + all_ - rel_
        for m, metric in enumerate(metrics):
            best = np.sort(gains)[::-1][: metric.k] / np.log2(
                np.arange(2, 2 + min(metric.k, len(rel)))
            )
            out[m, at] = [
                lambda: (rel_ / all_).mean(),
                lambda: float(ranks[0] <= metric.k),
                lambda: 1 / ranks[0],
                lambda: (ranks <= metric.k).mean(),
                lambda: (gains / np.log2(1 + ranks))[ranks <= metric.k].sum() / best.sum(),
            ][metric.code]()
    return out


def gallery_scores(
    queries: Matrix,
    gallery: Matrix,
    relevance: Relevance,
    metrics: Sequence[Metric],
    *,
    distance: Distance = "l2",
    device: str | None = None,
    tick: Tick | None = None,
) -> Scores:
    """Every metric of one gallery: a curve of one stage, everything backfilled."""
    rows = np.arange(len(gallery))
    whole = np.array([len(gallery)])
    return curve_scores(
        queries,
        gallery,
        gallery,
        rows,
        whole,
        relevance,
        metrics,
        distance=distance,
        device=device,
        tick=tick,
    )
