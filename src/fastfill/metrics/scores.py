"""Metrics of a gallery, and of every stage of its backfilling, per query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import InputError, LabelError, MissingExtraError
from fastfill.features import Distance, Ints, Matrix, check_distance, check_rows
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance
from fastfill.metrics.space import Space, make_space
from fastfill.metrics.stages import Stages

Tick = Callable[[int, int], None]  # queries done, queries in all


@dataclass(frozen=True, eq=False)
class QueryScores:
    """Values of each answerable query at each stage."""

    queries: Ints  # (k,) rows of the query set that have a relevant item
    excluded: int  # queries without one
    values: dict[str, NDArray[np.float64]]  # by metric, (k, f)


def curve_scores(
    queries: Matrix,
    before: Matrix,
    after: Matrix,
    positions: Ints,
    counts: Ints,
    relevance: Relevance,
    metrics: Sequence[Metric],
    *,
    distance: Distance = "l2",
    device: str | None = None,
    tick: Tick | None = None,
) -> QueryScores:
    """Every metric at every stage: at stage f the first `counts[f]` rows of `positions` are new.

    `before` and `after` are the gallery's aligned and new vectors, row by row. `device` is None or
    "cpu" for the Numba kernels (torch where Numba is not installed), or a CUDA device of torch.

    >>> from fastfill.metrics import as_metrics
    >>> new = np.float32([[0], [1], [4], [5]]); aligned = np.float32([[0], [4], [1], [5]])
    >>> scores = curve_scores(new, aligned, new, np.array([1, 2, 0, 3]), np.array([0, 2]),
    ...     Relevance.from_labels([0, 0, 1, 1]), as_metrics("cmc@1"))
    >>> scores.values["cmc@1"].mean(axis=0)
    array([0., 1.])
    """
    check_rows(len(after), len(before), "new gallery")
    check_rows(len(positions), len(before), "order")
    check_rows(relevance.items, len(before), "relevance")
    check_rows(len(relevance), len(queries), "queries")
    kept = np.flatnonzero(relevance.counts)
    if not len(kept):
        raise LabelError("No query has a relevant item in the gallery: nothing can be measured.")
    space = make_space(queries, before, after, check_distance(distance))
    stages = Stages(positions, counts)
    scores = _scores(space, stages, relevance, kept, metrics, device or "cpu", tick)
    values = {metric.name: scores[i] for i, metric in enumerate(metrics)}
    return QueryScores(kept, len(relevance) - len(kept), values)


def _scores(
    space: Space,
    stages: Stages,
    relevance: Relevance,
    kept: Ints,
    metrics: Sequence[Metric],
    device: str,
    tick: Tick | None,
) -> NDArray[np.float64]:
    """Scores (metrics, kept queries, stages), by what counts fastest on the device."""
    if device == "cpu" and find_spec("numba") is not None:
        from fastfill.metrics.cpu import cpu_scores

        return cpu_scores(space, stages, relevance, kept, metrics, tick)
    if device != "cpu" and not device.startswith("cuda"):
        raise InputError(f"Unknown device {device!r}: use 'cpu' or 'cuda'.")
    if device == "cpu" and find_spec("torch") is None:
        from fastfill.metrics.plain import plain_scores

        return plain_scores(space, stages, relevance, kept, metrics, tick)
    try:
        from fastfill.metrics.cuda import torch_scores
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", "networks", f"Counting on {device!r}") from error
    return torch_scores(space, stages, relevance, kept, metrics, device, tick)


def gallery_scores(
    queries: Matrix,
    gallery: Matrix,
    relevance: Relevance,
    metrics: Sequence[Metric],
    *,
    distance: Distance = "l2",
    device: str | None = None,
    tick: Tick | None = None,
) -> QueryScores:
    """Every metric of one gallery: a curve of one stage, at which everything is new.

    >>> from fastfill.metrics import as_metrics
    >>> gallery = np.float32([[0], [1], [4], [6]])
    >>> relevance = Relevance.from_labels([0, 1, 0, 1])
    >>> gallery_scores(gallery, gallery, relevance, as_metrics("mrr")).values["mrr"][:, 0]
    array([0.5       , 0.33333333, 0.33333333, 0.5       ])
    """
    return curve_scores(
        queries,
        gallery,
        gallery,
        np.arange(len(gallery)),
        np.array([len(gallery)]),
        relevance,
        metrics,
        distance=distance,
        device=device,
        tick=tick,
    )
