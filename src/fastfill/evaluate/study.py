"""An evaluation from features to `Findings`: several alignments and orders on one gallery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fastfill.align import Serving
from fastfill.errors import InputError, LabelError, some
from fastfill.evaluate.candidates import Candidate, RefitCandidate
from fastfill.evaluate.correlation import true_losses
from fastfill.evaluate.findings import Findings, FlipLines, GroupLines, Sigma
from fastfill.evaluate.flips import count_flips
from fastfill.evaluate.groups import group_curves, group_gap, served_first
from fastfill.evaluate.runs import MeasuredRun, measured_runs
from fastfill.evaluate.series import Series
from fastfill.evaluate.setting import Setting
from fastfill.evaluate.statistics import Comparison, compare_curves, over_seeds
from fastfill.evaluate.timeline import Timeline, timeline
from fastfill.features import Array, Matrix
from fastfill.metrics import kendall_tau


def study(
    setting: Setting,
    candidates: Sequence[Candidate | RefitCandidate],
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

    >>> from fastfill.align import Aligned; from fastfill.features import Features
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
    runs = [run for one in candidates for run in measured_runs(setting, one, progress)]
    levels = _levels(setting, runs)
    return Findings(
        title=title,
        curves=[run.curves[metric] for metric in runs[0].curves for run in runs],
        levels=levels,
        flips=_flips(runs),
        groups=_groups(setting, runs),
        sigma=_sigma(setting, candidates),
        comparisons=_comparisons(runs, baseline or _baseline(candidates)),
        cheating={name for one in candidates if one.cheats for name in one.names},
        timelines=[] if takes is None else _timelines(runs, levels, *takes),
        command=command,
        facts=_facts(setting, runs) | dict(facts or {}),
    )


def _check_names(candidates: Sequence[Candidate | RefitCandidate], baseline: str | None) -> None:
    if not candidates:
        raise InputError("There is nothing to measure: give at least one order.")
    names = [name for one in candidates for name in one.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"Several orders are called {some(twice)}: name each differently.")
    if baseline is not None and baseline not in names:
        raise InputError(f"No order is called {baseline!r} to compare with, only {some(names)}.")


def _baseline(candidates: Sequence[Candidate | RefitCandidate]) -> str:
    """The first random order, or the first order of all."""
    return next((one for one in candidates if one.drawn), candidates[0]).names[0]


def _levels(setting: Setting, runs: Sequence[MeasuredRun]) -> dict[str, dict[str, float]]:
    """new/new, and old/old where the old vectors are known."""
    levels: dict[str, dict[str, float]] = {metric: {} for metric in runs[0].curves}
    alone = next((run for run in runs if run.serving == "aligned"), None)
    if alone is not None:  # it is where such curves end
        for metric, curve in alone.curves.items():
            levels[metric]["new/new"] = curve.end
    ways: dict[str, Serving] = {} if alone is not None else {"new/new": "aligned"}
    if setting.old_search:
        ways["old/old"] = "old"
    for level, way in ways.items():
        for metric, value in _gallery_values(setting, way).items():
            levels[metric][level] = value
    return levels


def _gallery_values(setting: Setting, way: Serving) -> dict[str, float]:
    """Every metric of the gallery all new, or searched by the old model."""
    vectors = setting.vectors()
    is_new = np.full(len(vectors.new), True)
    values: dict[str, float] = {}
    for task in setting.tasks(vectors):
        scores = task.now(way, None, vectors.new, is_new, device=setting.device)
        values |= {m.name: float(scores.values[m.name].mean()) for m in task.metrics}
    return values


def _flips(runs: Sequence[MeasuredRun]) -> FlipLines | None:
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


def _groups(setting: Setting, runs: Sequence[MeasuredRun]) -> GroupLines | None:
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


def _served(setting: Setting, runs: Sequence[MeasuredRun]) -> dict[str, list[Series]]:
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


def _sigma(setting: Setting, candidates: Sequence[Candidate | RefitCandidate]) -> dict[str, Sigma]:
    """σ² against the losses, once for each alignment that predicts one."""
    by_alignment: dict[str, Sigma] = {}
    for one in candidates:
        if isinstance(one, RefitCandidate) or not one.predicts or one.alignment in by_alignment:
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


def _comparisons(runs: Sequence[MeasuredRun], baseline: str) -> list[Comparison]:
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
    runs: Sequence[MeasuredRun], levels: Mapping[str, Mapping[str, float]], total: float, unit: str
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
        old, new = levels[metric]["old/old"], levels[metric].get("new/new")
        timelines.append(timeline(means, old=old, new=new, items=1, per_item=total, unit=unit))
    return timelines


def _facts(setting: Setting, runs: Sequence[MeasuredRun]) -> dict[str, str]:
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
    if any(run.serving != "aligned" for run in runs):
        facts["served by"] = "; ".join(_served_by(runs))
    return facts


def _served_by(runs: Sequence[MeasuredRun]) -> list[str]:
    """What answers in each curve whose name does not tell, under the first seed."""
    return [
        f"{name}: {next(iter(several[0].curves.values())).served_by}"
        for name, several in _by_name(runs).items()
        if name != several[0].serving or name == "auto"
    ]


def _by_name(runs: Sequence[MeasuredRun]) -> dict[str, list[MeasuredRun]]:
    named: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        named.setdefault(run.name, []).append(run)
    return named
