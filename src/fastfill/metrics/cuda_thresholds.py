"""Thresholds, and scores from counts, on tensors: the first and the last step of `cuda`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastfill.features import Ints
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance
from fastfill.metrics.space import padded_dim

_TERMS = 1 << 24  # terms of float64 distances that are computed together
_NEVER = 2**31 - 1  # a rank beyond all others


def exact_distances(queries: Tensor, items: Tensor, squared: bool) -> Tensor:
    """Float64 distances of (…, d) float32 vectors, their terms added by halves: see `space`."""
    dim = queries.shape[-1]
    if squared:
        terms = (queries.double() - items.double()).square_()
    else:
        terms = (queries.double() * items.double()).neg_()
    half = padded_dim(dim) // 2
    if dim < 2 * half:
        terms = torch.nn.functional.pad(terms, (0, 2 * half - dim))
    while half:
        terms = terms[..., :half] + terms[..., half:]
        half //= 2
    return terms[..., 0]


def picked_distances(
    queries: Tensor, which: Tensor, gallery: Tensor, rows: Tensor, squared: bool
) -> Tensor:
    """Float64 distances of some (query, item) pairs, (k,), in bounded memory."""
    step = max(1, _TERMS // padded_dim(queries.shape[1]))
    parts = [
        exact_distances(queries[which[i : i + step]], gallery[rows[i : i + step]], squared)
        for i in range(0, len(rows), step)
    ]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64, device=rows.device)


def search_rows(values: Tensor, rows: Tensor, x: Tensor) -> Tensor:
    """Number of values of each given row that are below x, (k,), in bounded memory."""
    step = max(1, (1 << 24) // values.shape[1])
    below = torch.empty(len(x), dtype=torch.int64, device=x.device)
    for i in range(0, len(x), step):
        part = slice(i, i + step)
        below[part] = torch.searchsorted(values[rows[part]], x[part, None])[:, 0]
    return below


def relevant_lists(relevance: Relevance, rows: Ints) -> tuple[Ints, NDArray[np.float64]]:
    """The relevant items of some queries side by side, (Q, p), −1 where there is none; gains.

    >>> relevant_lists(Relevance.from_labels([1, 1, 1, 2, 2]), np.array([0, 4]))[0]
    array([[-1,  1,  2],
           [ 3, -1, -1]])
    """
    which = relevance.which[rows]
    starts, ends = relevance.starts[which], relevance.starts[which + 1]
    places = starts[:, None] + np.arange((ends - starts).max())
    inside = places < ends[:, None]
    places = np.where(inside, places, 0)
    items = relevance.rows[places]
    inside &= items != relevance.own[rows][:, None]
    return np.where(inside, items, -1), np.where(inside, relevance.gains[places], 0.0)


@dataclass(frozen=True, eq=False)
class ThresholdTensors:
    """The thresholds of a block of queries, in rising order, with infinite ones at the end."""

    exact: Tensor  # (Q, m) float64 distances
    steps: Tensor  # (Q, m) step of the item
    fresh: Tensor  # (Q, m) whether it is the distance of the new vector
    gains: Tensor  # (Q, m)
    ends: Tensor  # (Q, m) the last of the thresholds that are equal to this one
    relevant: Tensor  # (Q,) number of relevant items


def find_thresholds(
    queries: Tensor,  # (Q, d)
    before: Tensor,  # (n, d)
    after: Tensor,
    rows: Tensor,  # (Q, p) relevant items, −1 where there is none
    gains: Tensor,  # (Q, p)
    steps: Tensor,  # (n,)
    stages: int,
    squared: bool,
) -> ThresholdTensors:
    """Both distances of each relevant item, as far as it is ever seen so, sorted."""
    present = rows >= 0
    step = steps[rows.clamp(min=0)]
    parts = []
    for gallery, seen in ((before, present & (step > 0)), (after, present & (step < stages))):
        which, place = seen.nonzero(as_tuple=True)
        part = torch.full(rows.shape, torch.inf, dtype=torch.float64, device=rows.device)
        part[which, place] = picked_distances(queries, which, gallery, rows[which, place], squared)
        parts.append(part)
    exact = torch.cat(parts, dim=1)
    both_gains = gains.repeat(1, 2)
    by_gain = both_gains.argsort(dim=1, stable=True)
    by_distance = exact.gather(1, by_gain).argsort(dim=1, stable=True)
    order = by_gain.gather(1, by_distance)
    exact = exact.gather(1, order)
    return ThresholdTensors(
        exact=exact,
        steps=step.repeat(1, 2).gather(1, order),
        fresh=order >= rows.shape[1],
        gains=both_gains.gather(1, order),
        ends=torch.searchsorted(exact, exact, right=True) - 1,
        relevant=present.sum(dim=1),
    )


def curve_scores(
    thresholds: ThresholdTensors,
    base: Tensor,
    changes: Tensor,
    metrics: Sequence[Metric],
    ideals: Tensor,
) -> Tensor:
    """Scores (metrics, Q, stages) from counts of the items between thresholds.

    `base` (Q, m) is what there is before the first stage, `changes` (Q, stages, m) what each adds.
    """
    current, scores = base, []
    for stage in range(changes.shape[1]):
        current = current + changes[:, stage]
        below = current.cumsum(dim=1)
        scores.append(_stage_scores(thresholds, below, stage, metrics, ideals))
    return torch.stack(scores, dim=2)


def _stage_scores(
    thresholds: ThresholdTensors,
    below: Tensor,
    stage: int,
    metrics: Sequence[Metric],
    ideals: Tensor,
) -> Tensor:
    """Scores (metrics, Q) of one stage, from the number of items up to each threshold, (Q, m)."""
    seen = (thresholds.steps <= stage) == thresholds.fresh
    active = seen & thresholds.exact.isfinite()
    order = active.cumsum(dim=1)  # r of each relevant item
    answers = order.gather(1, thresholds.ends)
    everything = below.gather(1, thresholds.ends)
    ranks = order + everything - answers
    first = ranks.where(active, below.new_tensor(_NEVER)).amin(dim=1)
    scores = []
    for metric, ideal in zip(metrics, ideals, strict=True):
        within = active & (ranks <= metric.k)
        match metric.family:
            case "map":
                shares = (answers / everything.clamp(min=1).double()).where(active, 0.0)
                scores.append(shares.sum(dim=1) / thresholds.relevant)
            case "cmc":
                scores.append((first <= metric.k).double())
            case "mrr":
                reached = first <= (metric.k or _NEVER)
                scores.append((1 / first.double()).where(reached, 0.0))
            case "ndcg":
                gained = thresholds.gains / (1 + ranks.double()).log2()
                scores.append(gained.where(within, 0.0).sum(dim=1) / ideal)
            case _:
                scores.append(within.sum(dim=1).double() / thresholds.relevant)
    return torch.stack(scores)
