"""Candidates of a study, measured: one run for each name and seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from fastfill.align import Fusion, ServingOption
from fastfill.evaluate.candidates import Candidate, RefitCandidate
from fastfill.evaluate.curve_builder import CurveBuilder, ways_of
from fastfill.evaluate.curves import Curve
from fastfill.evaluate.progress import ticking
from fastfill.evaluate.setting import Setting
from fastfill.evaluate.simulated_backfill import SimulatedBackfill, learn_fusion
from fastfill.evaluate.simulation import as_fractions, as_order, backfill_curves
from fastfill.order import Order, PolicyInput


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """One candidate under one seed."""

    name: str
    serving: ServingOption
    order: Order
    curves: Mapping[str, Curve]


def measured_runs(
    setting: Setting, one: Candidate | RefitCandidate, progress: bool
) -> Iterable[MeasuredRun]:
    """Every seed of a candidate."""
    if isinstance(one, RefitCandidate):
        return _refitted(setting, one, progress)
    return _mapped_once(setting, one, progress)


def _mapped_once(setting: Setting, one: Candidate, progress: bool) -> Iterator[MeasuredRun]:
    inputs = PolicyInput(
        one.aligned,
        old=None if setting.old is None else setting.old.vectors,
        pairs_old=one.pairs_old,
        head=one.head,
        shown=one.shown,
        distance=setting.distance,
    )
    fusion = _fusion(setting, one)
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
            serving=one.serving,
            old=setting.old,
            queries_old=setting.query_old,
            fusion=fusion,
            device=setting.device,
            progress=progress,
        )
        yield _run(one.name, one.serving, order, curves, setting)


def _fusion(setting: Setting, one: Candidate) -> Fusion | None:
    """Learned with the queries' vectors, where both models serve."""
    if "both" not in ways_of(one.serving):
        return None
    return learn_fusion(one.reference, setting.vectors())


def _refitted(setting: Setting, one: RefitCandidate, progress: bool) -> Iterator[MeasuredRun]:
    vectors = setting.vectors()
    tasks = setting.tasks(vectors)
    for seed in range(setting.seeds):
        backfill = SimulatedBackfill(
            vectors, one.refits, one.policy, seed, head=one.head, shown=one.shown
        )
        servings = list(one.servings.values())
        builder = CurveBuilder(tasks, servings, as_fractions(setting.points), one.policy)
        with ticking(progress, f"{one.policy}, learning again") as tick:
            backfill.measure(builder, setting.device, tick)
        for name, serving in one.servings.items():
            yield _run(name, serving, backfill.order, builder.curves(serving), setting)


def _run(
    name: str,
    serving: ServingOption,
    order: Order,
    curves: Mapping[str, Curve],
    setting: Setting,
) -> MeasuredRun:
    named = {metric: replace(curves[metric], name=name) for metric in setting.metrics}
    return MeasuredRun(name, serving, order, named)
