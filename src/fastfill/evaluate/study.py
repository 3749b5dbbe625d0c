"""An evaluation from features to `Findings`: several alignments and orders on one gallery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fastfill.align import Aligned
from fastfill.errors import InputError, LabelError, some
from fastfill.evaluate.correlation import true_losses
from fastfill.evaluate.curves import Curve
from fastfill.evaluate.findings import Findings, FlipLines, GroupLines, Sigma
from fastfill.evaluate.flips import count_flips
from fastfill.evaluate.groups import group_curves, group_gap, served_first
from fastfill.evaluate.search_tasks import search_tasks
from fastfill.evaluate.search_vectors import SearchVectors
from fastfill.evaluate.series import Series
from fastfill.evaluate.simulation import as_order, backfill_curves
from fastfill.evaluate.statistics import Comparison, compare_curves, over_seeds
from fastfill.evaluate.timeline import Timeline, timeline
from fastfill.features import Array, Distance, Features, Matrix, check_rows
from fastfill.metrics import Relevance, kendall_tau
from fastfill.order import Order, PolicyInput


@dataclass(frozen=True, eq=False)
class Setting:
    """What every candidate is measured on: one gallery, its queries, and how."""

    new: Features  # the gallery under the new model
    labels: Array | Relevance | None = None
    old: Features | None = None  # the gallery under the old model, for old/old and novelty
    queries: Features | None = None  # under the new model; None: the gallery asks itself
    query_labels: Array | None = None
    query_old: Features | None = None
    groups: Array | None = None  # (n,) of the gallery's items
    query_groups: Array | None = None  # (q,) where the queries are a set of their own
    metrics: tuple[str, ...] = ("cmc@1", "cmc@5", "map")
    points: int = 21
    seeds: int = 1  # random orders are drawn so many times
    distance: Distance = "l2"
    device: str | None = None

    def __post_init__(self) -> None:
        if self.old is not None:
            check_rows(len(self.old), len(self.new), self.old.name)
        if self.query_old is not None and self.queries is not None:
            check_rows(len(self.query_old), len(self.queries), self.query_old.name)
        if self.seeds < 1:
            raise InputError(f"At least one seed is needed, got {self.seeds}.")


@dataclass(frozen=True, eq=False)
class Candidate:
    """One order of one aligned gallery, under the name that tables and legends show."""

    name: str
    aligned: Aligned
    policy: str | Order
    alignment: str = ""  # candidates of the same alignment share its σ²
    head: Matrix | None = None  # (classes, d_new)
    pairs_old: Matrix | None = None  # (m, d_old)
    shown: Array | None = None  # (n,)
    predicts: bool = True  # whether the variance is a prediction, and not a stand-in

    @property
    def drawn(self) -> bool:
        """Whether its order is drawn at random, and so differs from seed to seed."""
        return isinstance(self.policy, str) and self.policy.removeprefix("traffic:") == "random"

    @property
    def cheats(self) -> bool:
        """Whether its order looks at the new vectors: it shows what there is to win."""
        return isinstance(self.policy, str) and self.policy.removeprefix("traffic:") == "oracle"


@dataclass(frozen=True, eq=False)
class _Run:
    """One candidate under one seed."""

    name: str
    order: Order
    curves: Mapping[str, Curve]


def study(
    setting: Setting,
    candidates: Sequence[Candidate],
    *,
    title: str = "Backfilling curves",
    baseline: str | None = None,
    takes: tuple[float, str] | None = None,
    command: str = "",
    facts: Mapping[str, str] | None = None,
    progress: bool = False,
) -> Findings:
    """Measure every candidate, and compare each with the baseline.

    `takes` is what a whole backfill takes, such as (30, "days"), for a timeline.

    >>> rng = np.random.default_rng(0); labels = np.arange(40) % 4
    >>> new = (rng.normal(size=(40, 4)) + 3 * np.eye(4)[labels]).astype(np.float32)
    >>> error = rng.normal(size=new.shape).astype(np.float32)
    >>> aligned = Aligned(new + error, (error**2).sum(axis=1))
    >>> orders = [Candidate(name, aligned, name) for name in ("sigma", "random")]
    >>> findings = study(Setting(Features(new), labels, metrics=("map",), points=3), orders)
    >>> [curve.name for curve in findings.curves], [one.b for one in findings.comparisons]
    (['sigma', 'random'], ['random'])
    """
    _check_names(candidates, baseline)
    runs = [run for one in candidates for run in _runs(setting, one, progress)]
    levels = _levels(setting, runs[0])
    return Findings(
        title=title,
        curves=[run.curves[metric] for metric in runs[0].curves for run in runs],
        levels=levels,
        flips=_flips(runs),
        groups=_groups(setting, runs),
        sigma=_sigma(setting, candidates),
        comparisons=_comparisons(runs, baseline or _baseline(candidates)),
        cheating={one.name for one in candidates if one.cheats},
        timelines=[] if takes is None else _timelines(runs, levels, *takes),
        command=command,
        facts=_facts(setting, runs) | dict(facts or {}),
    )


def _check_names(candidates: Sequence[Candidate], baseline: str | None) -> None:
    if not candidates:
        raise InputError("There is nothing to measure: give at least one order.")
    names = [one.name for one in candidates]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"Several orders are called {some(twice)}: name each differently.")
    if baseline is not None and baseline not in names:
        raise InputError(f"No order is called {baseline!r} to compare with, only {some(names)}.")


def _baseline(candidates: Sequence[Candidate]) -> str:
    """The first random order, or the first order of all."""
    return next((one.name for one in candidates if one.drawn), candidates[0].name)


def _runs(setting: Setting, one: Candidate, progress: bool) -> Iterable[_Run]:
    inputs = PolicyInput(
        one.aligned,
        old=None if setting.old is None else setting.old.vectors,
        pairs_old=one.pairs_old,
        head=one.head,
        shown=one.shown,
        distance=setting.distance,
    )
    for seed in range(setting.seeds if one.drawn else 1):
        order = as_order(
            one.policy, one.aligned, setting.new.vectors, setting.labels, replace(inputs, seed=seed)
        )
        curves = backfill_curves(
            one.aligned,
            setting.new,
            setting.labels,
            policy=order,
            metrics=setting.metrics,
            queries=setting.queries,
            query_labels=setting.query_labels,
            points=setting.points,
            distance=setting.distance,
            device=setting.device,
            progress=progress,
        )
        named = {metric: replace(curve, name=one.name) for metric, curve in curves.items()}
        yield _Run(one.name, order, named)


def _levels(setting: Setting, run: _Run) -> dict[str, dict[str, float]]:
    """new/new is where every curve ends; old/old is measured where the old vectors are known."""
    levels = {metric: {"new/new": curve.end} for metric, curve in run.curves.items()}
    old = setting.old
    query_old = old if setting.queries is None else setting.query_old
    if old is None or query_old is None:
        return levels
    vectors = SearchVectors.of(setting.new, setting.queries, setting.distance, old, query_old)
    for task in search_tasks(vectors, setting.metrics, setting.labels, setting.query_labels):
        is_new = np.full(len(old), False)
        scores = task.now("old", None, old.vectors, is_new, device=setting.device)
        for metric in task.metrics:
            levels[metric.name]["old/old"] = float(scores.values[metric.name].mean())
    return levels


def _flips(runs: Sequence[_Run]) -> FlipLines | None:
    """Flips of the metrics that a query passes or fails."""
    metrics = [metric for metric in runs[0].curves if metric.startswith("cmc@")]
    if not metrics:
        return None
    positive, negative = [], []
    for metric in metrics:
        for name, several in _by_name(runs).items():
            flips = [count_flips(run.curves[metric]) for run in several]
            fractions = flips[0].fractions
            won = np.stack([one.positive for one in flips])
            lost = np.stack([one.negative for one in flips])
            positive.append(Series(name, metric, fractions, won))
            negative.append(Series(name, metric, fractions, lost))
    return FlipLines(positive, negative)


def _groups(setting: Setting, runs: Sequence[_Run]) -> GroupLines | None:
    """Quality needs the queries' groups, who is served first needs the items'."""
    asked = setting.groups if setting.queries is None else setting.query_groups
    if asked is None:
        return GroupLines({}, [], _served(setting, runs)) if setting.groups is not None else None
    quality: dict[str, dict[str, list[Series]]] = {}
    gaps = []
    for metric in runs[0].curves:
        for name, several in _by_name(runs).items():
            parts = [group_curves(run.curves[metric], asked) for run in several]
            fractions = several[0].curves[metric].fractions
            quality.setdefault(metric, {})[name] = [
                Series(group, metric, fractions, np.stack([part[group].values for part in parts]))
                for group in parts[0]
            ]
            if len(parts[0]) > 1:
                gap = np.stack([group_gap(part) for part in parts])
                gaps.append(Series(name, metric, fractions, gap))
    return GroupLines(quality, gaps, _served(setting, runs))


def _served(setting: Setting, runs: Sequence[_Run]) -> dict[str, list[Series]]:
    if setting.groups is None:
        return {}
    served = {}
    for name, several in _by_name(runs).items():
        parts = [served_first(run.order, setting.groups, setting.points) for run in several]
        served[name] = [
            Series(
                group,
                "served",
                parts[0].fractions,
                np.stack([part.shares[group] for part in parts]),
            )
            for group in parts[0].shares
        ]
    return served


def _sigma(setting: Setting, candidates: Sequence[Candidate]) -> dict[str, Sigma]:
    """σ² against the losses, once for each alignment that predicts one."""
    by_alignment: dict[str, Sigma] = {}
    for one in candidates:
        if not one.predicts or one.alignment in by_alignment:
            continue
        variance = np.asarray(one.aligned.variance, dtype=np.float64)
        labels = setting.labels if isinstance(setting.labels, np.ndarray) else None
        losses = _losses(one, setting.new.vectors, labels)
        taus = {name: kendall_tau(variance, loss) for name, loss in losses.items()}
        by_alignment[one.alignment] = Sigma(variance, losses, taus, setting.new.ids)
    return by_alignment


def _losses(one: Candidate, new: Matrix, labels: Array | None) -> dict[str, Array]:
    """All losses that can be known; without the discriminative one where classes are unseen."""
    try:
        return dict(true_losses(one.aligned.h, new, labels, one.head))
    except LabelError:
        return dict(true_losses(one.aligned.h, new))


def _comparisons(runs: Sequence[_Run], baseline: str) -> list[Comparison]:
    named = _by_name(runs)
    return [
        compare_curves(
            [run.curves[metric] for run in several],
            [run.curves[metric] for run in named[baseline]],
        )
        for metric in runs[0].curves
        for name, several in named.items()
        if name != baseline
    ]


def _timelines(
    runs: Sequence[_Run], levels: Mapping[str, Mapping[str, float]], total: float, unit: str
) -> list[Timeline]:
    if not np.isfinite(total) or total <= 0:
        raise InputError(f"A whole backfill takes a positive number of {unit}, got {total:g}.")
    timelines = []
    for metric in runs[0].curves:
        if "old/old" not in levels[metric]:
            raise InputError(
                "A timeline shows what the old model gives until the update: give the old vectors "
                "of the gallery, and of the queries where they are a set of their own."
            )
        means = [
            over_seeds([run.curves[metric] for run in several]).curve
            for several in _by_name(runs).values()
        ]
        old = levels[metric]["old/old"]
        timelines.append(timeline(means, old=old, items=1, per_item=total, unit=unit))
    return timelines


def _facts(setting: Setting, runs: Sequence[_Run]) -> dict[str, str]:
    first = next(iter(runs[0].curves.values()))
    facts = {"gallery": f"{len(setting.new):,} items of {setting.new.dim} dimensions"}
    if setting.old is not None:
        facts["gallery"] += f" ({setting.old.dim} under the old model)"
    if setting.queries is None:
        facts["queries"] = "the gallery itself, each item left out of its own ranking"
    else:
        facts["queries"] = f"{len(setting.queries):,}"
    if first.excluded:
        facts["queries"] += f"; {first.excluded:,} without a relevant item are left out"
    if isinstance(setting.labels, np.ndarray):
        facts["labels"] = f"{len(np.unique(setting.labels)):,} classes"
    facts["distance"] = setting.distance
    facts["points"] = f"{setting.points}, evenly spaced"
    facts["seeds"] = f"{setting.seeds} of each random order"
    return facts


def _by_name(runs: Sequence[_Run]) -> dict[str, list[_Run]]:
    named: dict[str, list[_Run]] = {}
    for run in runs:
        named.setdefault(run.name, []).append(run)
    return named
