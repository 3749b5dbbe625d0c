"""Backfilling played through on features: one pass gives all metrics of one order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned
from fastfill.errors import InputError, LabelError, ShapeError
from fastfill.evaluate.curves import Curve, check_fractions
from fastfill.evaluate.progress import ticking
from fastfill.features import Distance, Features, Matrix, as_matrix, check_rows
from fastfill.metrics import (
    LabelSets,
    Metric,
    QueryScores,
    Relevance,
    as_metrics,
    as_relevance,
    curve_scores,
    gallery_scores,
    is_column,
    neighbours,
)
from fastfill.order import Order, PolicyInput, arrange


def backfill_curves(
    aligned: Aligned,
    new: Features | ArrayLike,
    labels: Relevance | ArrayLike | LabelSets | None = None,
    *,
    policy: str | Order = "sigma",
    metrics: str | Iterable[str] = ("cmc@1", "cmc@5", "map"),
    queries: Features | ArrayLike | None = None,
    query_labels: ArrayLike | LabelSets | None = None,
    points: int | ArrayLike = 21,
    distance: Distance = "l2",
    known: PolicyInput | None = None,
    seed: int | None = None,
    device: str | None = None,
    progress: bool = False,
) -> dict[str, Curve]:
    """Curves of several metrics along one order, by the name of the metric.

    Without `queries` the gallery is the query set and no item is ranked for itself. `points` is a
    number of evenly spaced fractions, or the fractions themselves. `known` carries what a policy
    needs beside the aligned vectors (old vectors, head, traffic); a `seed` goes before its own.
    Without `labels` only `agreement@k` can be measured.

    >>> new = np.float32([[0], [1], [4], [5]])
    >>> aligned = Aligned([[0], [4], [1], [5]], variance=[0, 2, 1, 0])
    >>> curves = backfill_curves(aligned, new, [0, 0, 1, 1], metrics="cmc@1,map", points=5)
    >>> curves["cmc@1"].values
    array([0.  , 0.25, 1.  , 1.  , 1.  ])
    """
    gallery = _matrix(new, "new gallery")
    _check_gallery(aligned, gallery)
    asked = gallery if queries is None else _matrix(queries, "queries")
    labels, query_labels = _labels(labels, new), _labels(query_labels, queries)
    order = as_order(policy, aligned, gallery, labels, known, seed)
    check_rows(len(order), len(gallery), f"order {order.name}")
    fractions = as_fractions(points)
    counts = backfilled_counts(fractions, len(gallery))
    curves: dict[str, Curve] = {}
    parts = relevances(metrics, labels, query_labels, asked, gallery, queries is None, distance)
    for relevance, named in parts:
        with ticking(progress, f"{order.name}: {', '.join(m.name for m in named)}") as tick:
            scores = curve_scores(
                asked,
                aligned.vectors,
                gallery,
                order.positions,
                counts,
                relevance,
                named,
                distance=distance,
                device=device,
                tick=tick,
            )
        curves |= {m.name: _curve(m, fractions, scores, order.name) for m in named}
    return {metric.name: curves[metric.name] for metric in as_metrics(metrics)}


def plain_metrics(
    queries: Features | ArrayLike | None,
    gallery: Features | ArrayLike,
    labels: Relevance | ArrayLike | LabelSets | None,
    *,
    query_labels: ArrayLike | LabelSets | None = None,
    metrics: str | Iterable[str] = ("cmc@1", "cmc@5", "map"),
    distance: Distance = "l2",
    device: str | None = None,
) -> dict[str, float]:
    """Metrics of one gallery as it is: old/old, new/new, or any mixture.

    >>> plain_metrics(None, [[0.0], [0.1], [5.0], [5.1]], [0, 0, 1, 1], metrics="cmc@1,map")
    {'cmc@1': 1.0, 'map': 1.0}
    """
    items = _matrix(gallery, "gallery")
    asked = items if queries is None else _matrix(queries, "queries")
    labels, query_labels = _labels(labels, gallery), _labels(query_labels, queries)
    values: dict[str, float] = {}
    parts = relevances(metrics, labels, query_labels, asked, items, queries is None, distance)
    for relevance, named in parts:
        scores = gallery_scores(asked, items, relevance, named, distance=distance, device=device)
        values |= {m.name: float(scores.values[m.name].mean()) for m in named}
    return {metric.name: values[metric.name] for metric in as_metrics(metrics)}


def as_fractions(points: int | ArrayLike) -> NDArray[np.float64]:
    """Evenly spaced fractions from 0 to 1, or the given ones, checked.

    >>> as_fractions(5)
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    if isinstance(points, int):
        if points < 2:
            raise InputError(f"A curve needs at least 2 points, its ends, got {points}.")
        return np.linspace(0, 1, points)
    fractions = np.array(points, dtype=np.float64)
    if fractions.ndim != 1 or not len(fractions):
        raise InputError(f"The fractions must be a list of numbers, got shape {fractions.shape}.")
    check_fractions(fractions)
    return fractions


def backfilled_counts(fractions: NDArray[np.float64], items: int) -> NDArray[np.int64]:
    """n_α = ⌊α·n⌋, not fooled by 0.29 · 100 = 28.999…

    >>> backfilled_counts(np.array([0, 0.29, 1]), 100)
    array([  0,  29, 100])
    """
    return np.floor(fractions * items + 1e-9 * items).astype(np.int64).clip(0, items)


def as_order(
    policy: str | Order,
    aligned: Aligned,
    new: Matrix,
    labels: object = None,
    known: PolicyInput | None = None,
    seed: int | None = None,
) -> Order:
    """The order of a policy's name, with all that an evaluation may know; an `Order` as it is."""
    if isinstance(policy, Order):
        return policy
    inputs = PolicyInput(aligned) if known is None else replace(known, aligned=aligned)
    if seed is not None:
        inputs = replace(inputs, seed=seed)
    if inputs.new is None:
        inputs = replace(inputs, new=new)
    if inputs.labels is None and labels is not None and is_column(labels):
        inputs = replace(inputs, labels=np.asarray(labels))
    return arrange(policy, inputs, evaluating=True)


def relevances(
    metrics: str | Iterable[str],
    labels: Relevance | ArrayLike | LabelSets | None,
    query_labels: ArrayLike | LabelSets | None,
    queries: Matrix,
    gallery: Matrix,
    same: bool,
    distance: Distance,
) -> list[tuple[Relevance, list[Metric]]]:
    """What is relevant for each of the metrics: the labels, or the neighbours among new items."""
    parts: list[tuple[Relevance, list[Metric]]] = []
    named = as_metrics(metrics)
    labelled = [metric for metric in named if metric.family != "agreement"]
    if labelled:
        if labels is None:
            raise LabelError(
                f"The metric {labelled[0].name} needs labels or judgements. Without them measure "
                "agreement@k, the share of the k new neighbours that are found."
            )
        if not same and query_labels is None and not isinstance(labels, Relevance):
            raise LabelError("Queries that are not the gallery need labels too (query_labels).")
        relevance = as_relevance(labels, query_labels)
        check_rows(relevance.items, len(gallery), "labels")
        check_rows(len(relevance), len(queries), "query labels")
        parts.append((relevance, labelled))
    for metric in named:
        if metric.family == "agreement":
            near = neighbours(queries, gallery, metric.k, distance=distance, same=same)
            parts.append((near, [metric]))
    return parts


def _matrix(values: Features | ArrayLike, name: str) -> Matrix:
    return values.vectors if isinstance(values, Features) else as_matrix(values, name)


def _labels(
    given: ArrayLike | LabelSets | Relevance | None, values: Features | ArrayLike | None
) -> Any:
    """The given labels, else those that the features carry."""
    return values.labels if given is None and isinstance(values, Features) else given


def _check_gallery(aligned: Aligned, new: Matrix) -> None:
    if aligned.vectors.shape != new.shape:
        raise ShapeError(
            f"The aligned gallery is {aligned.vectors.shape} and the new one {new.shape}: they "
            "must be the same items in the same space, row by row."
        )


def _curve(metric: Metric, fractions: NDArray[np.float64], scores: QueryScores, name: str) -> Curve:
    per_query = scores.values[metric.name]
    return Curve(
        metric.name,
        fractions,
        per_query.mean(axis=0),
        name=name,
        per_query=per_query.astype(np.float32),
        queries=scores.queries,
        excluded=scores.excluded,
    )
