"""A backfill that learns its map again on the way, from features alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from numpy.typing import ArrayLike

from fastfill.align import FitOptions, ServingOption
from fastfill.evaluate.curve_builder import CurveBuilder
from fastfill.evaluate.curves import Curve
from fastfill.evaluate.progress import ticking
from fastfill.evaluate.refits import Learn, Refits
from fastfill.evaluate.search_tasks import search_tasks
from fastfill.evaluate.search_vectors import SearchVectors
from fastfill.evaluate.simulated_backfill import SimulatedBackfill
from fastfill.evaluate.simulation import as_fractions, labels_of
from fastfill.features import Distance, Features, Matrix
from fastfill.metrics import LabelSets, Relevance, as_metrics
from fastfill.order import Policy, policy_name

STEPS = 21  # points of the curve, and as many chances to learn again


def adaptive_curves(
    old: Features | ArrayLike,
    new: Features | ArrayLike,
    labels: Relevance | ArrayLike | LabelSets | None = None,
    *,
    pairs: int,
    policy: str | Policy = "mixed",
    metrics: str | Iterable[str] = ("cmc@1", "cmc@5", "map"),
    refit: bool = True,
    points: int | ArrayLike = STEPS,
    queries: Features | ArrayLike | None = None,
    query_labels: ArrayLike | LabelSets | None = None,
    queries_old: Features | ArrayLike | None = None,
    serving: ServingOption = "aligned",
    head: Matrix | None = None,
    distance: Distance = "l2",
    fit: FitOptions | None = None,
    seed: int | None = None,
    learn: Learn | None = None,
    device: str | None = None,
    progress: bool = False,
) -> dict[str, Curve]:
    """Curves of a migration that learns its map again on the way, by the name of the metric.

    `pairs` random rows of the gallery are embedded first and are what the first map learns from;
    at fraction 0 they too are aligned. Then `policy` (a name, or a function of your own) chooses
    what is backfilled up to the next point; when the pairs have grown by a quarter the map is
    learned again from all of them, and what is left is aligned and ordered anew. `refit=False`
    keeps the first map. The map is learned as the options `fit` say, `auto` choosing again when the
    pairs have doubled, or by a function of your own, `learn`. A `seed` goes before theirs.

    `serving` is as for `backfill_curves`; other queries than the gallery then need their old
    vectors too, `queries_old`. The fusion of both models is learned again with each map, from its
    reference pairs and the queries' vectors; a `learn` of your own returns a `LearnedMap` for that.

    >>> import numpy as np; rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(200, 4)); new = np.tanh(old)
    >>> curves = adaptive_curves(old, new, np.arange(200) % 9, pairs=40, metrics="map", points=5)
    >>> curves["map"].values.shape
    (5,)
    """
    return serving_curves(
        old,
        new,
        labels,
        pairs=pairs,
        servings=(serving,),
        policy=policy,
        metrics=metrics,
        refit=refit,
        points=points,
        queries=queries,
        query_labels=query_labels,
        queries_old=queries_old,
        head=head,
        distance=distance,
        fit=fit,
        seed=seed,
        learn=learn,
        device=device,
        progress=progress,
    )[serving]


def serving_curves(
    old: Features | ArrayLike,
    new: Features | ArrayLike,
    labels: Relevance | ArrayLike | LabelSets | None = None,
    *,
    pairs: int,
    servings: Sequence[ServingOption] = ("old", "aligned", "both", "auto"),
    policy: str | Policy = "mixed",
    metrics: str | Iterable[str] = ("cmc@1", "cmc@5", "map"),
    refit: bool = True,
    points: int | ArrayLike = STEPS,
    queries: Features | ArrayLike | None = None,
    query_labels: ArrayLike | LabelSets | None = None,
    queries_old: Features | ArrayLike | None = None,
    head: Matrix | None = None,
    distance: Distance = "l2",
    fit: FitOptions | None = None,
    seed: int | None = None,
    learn: Learn | None = None,
    device: str | None = None,
    progress: bool = False,
) -> dict[ServingOption, dict[str, Curve]]:
    """`adaptive_curves` of several ways to serve: one backfill is played through for all of them.

    >>> import numpy as np; rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(200, 4)); new = np.tanh(old)
    >>> labels = np.arange(200) % 9
    >>> curves = serving_curves(old, new, labels, pairs=40, metrics="map", points=3)
    >>> {serving: len(by_metric["map"].values) for serving, by_metric in curves.items()}
    {'old': 3, 'aligned': 3, 'both': 3, 'auto': 3}
    """
    vectors = SearchVectors.of(new, queries, distance, old, queries_old)
    seed = (fit or FitOptions()).seed if seed is None else seed
    backfill = SimulatedBackfill(vectors, Refits(pairs, fit, refit, learn), policy, seed, head)
    tasks = search_tasks(vectors, metrics, labels_of(labels, new), labels_of(query_labels, queries))
    builder = CurveBuilder(tasks, servings, as_fractions(points), policy_name(policy))
    what = f"{policy_name(policy)}, {'learning again' if refit else 'one map'}"
    with ticking(progress, what) as tick:
        backfill.measure(builder, device, tick)
    names = [metric.name for metric in as_metrics(metrics)]
    curves = {serving: builder.curves(serving) for serving in servings}
    return {serving: {name: each[name] for name in names} for serving, each in curves.items()}
