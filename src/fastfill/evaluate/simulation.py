"""Backfilling played through on features: one pass gives all metrics of one order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned, Fusion, ServingOption
from fastfill.errors import InputError, ShapeError
from fastfill.evaluate.curve_builder import CurveBuilder
from fastfill.evaluate.curves import Curve, check_fractions
from fastfill.evaluate.progress import ticking
from fastfill.evaluate.search_tasks import search_tasks
from fastfill.evaluate.search_vectors import SearchVectors
from fastfill.features import Distance, Features, Matrix, check_rows
from fastfill.metrics import LabelSets, Relevance, as_metrics, is_column
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
    serving: ServingOption = "aligned",
    old: Features | ArrayLike | None = None,
    queries_old: Features | ArrayLike | None = None,
    fusion: Fusion | None = None,
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

    `serving` says how queries are answered: `aligned` by the new model; `old` by the old one, which
    is a flat line; `both` by the `fusion` of their scores; `auto` by what measured best at each
    point, on other queries than those that are served so (`Curve.serving` tells what). All but the
    first need the old vectors of the gallery, `old`, and of the queries, `queries_old`.

    >>> new = np.float32([[0], [1], [4], [5]])
    >>> aligned = Aligned([[0], [4], [1], [5]], variance=[0, 2, 1, 0])
    >>> curves = backfill_curves(aligned, new, [0, 0, 1, 1], metrics="cmc@1,map", points=5)
    >>> curves["cmc@1"].values
    array([0.  , 0.25, 1.  , 1.  , 1.  ])
    """
    vectors = SearchVectors.of(new, queries, distance, old, queries_old)
    _check_gallery(aligned, vectors.new)
    labels, query_labels = labels_of(labels, new), labels_of(query_labels, queries)
    order = as_order(policy, aligned, vectors.new, labels, known, seed)
    check_rows(len(order), len(vectors.new), f"order {order.name}")
    fractions = as_fractions(points)
    tasks = search_tasks(vectors, metrics, labels, query_labels)
    keeps = () if fusion is None else fusion.keeps
    builder = CurveBuilder(tasks, [serving], fractions, order.name, keeps)
    for one in builder.servings:
        vectors.check(one, fusion)
    counts = backfilled_counts(fractions, len(vectors.new))
    for task, way in builder.measured:
        with ticking(progress, f"{order.name}: {', '.join(m.name for m in task.metrics)}") as tick:
            scores = task.along(
                way.serving, way.fused_by(fusion), aligned.vectors, order.positions, counts,
                device=device, tick=tick,
            )  # fmt: skip
        builder.add(task, way, scores)
    curves = builder.curves(serving)
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
    vectors = SearchVectors.of(gallery, queries, distance)
    labels, query_labels = labels_of(labels, gallery), labels_of(query_labels, queries)
    everything = np.full(len(vectors.new), True)
    values: dict[str, float] = {}
    for task in search_tasks(vectors, metrics, labels, query_labels):
        scores = task.now("aligned", None, vectors.new, everything, device=device)
        values |= {m.name: float(scores.values[m.name].mean()) for m in task.metrics}
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


def labels_of(
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
