"""What an experiment measures for one seed, as plain values: curves, flips, groups, τ of σ²."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fastfill.evaluate import (
    Curve,
    compare_curves,
    count_flips,
    group_curves,
    group_gap,
    kendall_table,
    served_first,
    true_losses,
)
from fastfill.features import Array
from fastfill.lab.experiments import Experiment
from fastfill.lab.model_cache import describe
from fastfill.lab.results import FORMAT
from fastfill.lab.stages import TestSet, UpdateStages
from fastfill.lab.systems import FASTFILL_NAMES, System

SCATTERED = 1000  # items of the figure of σ² against the loss


def measure_seed(
    experiment: Experiment, stages: UpdateStages, command: str, without: Sequence[str] = ()
) -> dict[str, Any]:
    """The result of one experiment and seed, as plain values.

    `without`: models ('bct', 'ract') whose rows are left out.
    """
    rows = stages.possible(experiment.systems, without)
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "data": stages.images.name,
        "seed": stages.seed,
        "command": command,
        "day": datetime.now(tz=UTC).date().isoformat(),
        "machine": platform.machine(),
        "device": stages.device,
        "map": asdict(stages.options),
        "models": _models(stages, rows),
        "tests": {test.name: _test(experiment, stages, test, rows) for test in stages.tests()},
    }


def _models(stages: UpdateStages, rows: Sequence[System]) -> dict[str, Any]:
    names = ["old", "new", *sorted({s.model for s in rows} - {"new"})]
    names += ["side"] if any(s.side for s in rows) else []
    recipes = {name: stages.models.recipe(stages.model(name)) for name in names}
    return {
        name: {
            "model": describe(stages.model(name)),
            "epochs": recipes[name].epochs,
            "augment": recipes[name].augment,
            **stages.features(name).facts,
        }
        for name in names
    }


def _test(
    experiment: Experiment, stages: UpdateStages, test: TestSet, rows: Sequence[System]
) -> dict[str, Any]:
    curves = {system.name: stages.curves(system, test) for system in rows}
    measured: dict[str, Any] = {
        "images": len(test.rows),
        "plain": stages.plain(test),
        "systems": {
            s.name: {
                "uses": s.uses,
                "curves": {name: _plain(curve) for name, curve in curves[s.name].items()},
            }
            for s in rows
        },
        "comparisons": _comparisons(curves),
    }
    for measure in experiment.measures:
        measured[measure] = MEASURES[measure](stages, test, rows, curves)
    return measured


def _plain(curve: Curve) -> dict[str, Any]:
    return {
        "area": curve.area,
        "mean": curve.mean,
        "fractions": [round(float(x), 4) for x in curve.fractions],
        "values": [round(float(x), 6) for x in curve.values],
    }


def _comparisons(curves: dict[str, dict[str, Curve]]) -> list[dict[str, Any]]:
    """FastFill, where it is among them, against every other system: paired bootstrap."""
    fastfill = next((name for name in FASTFILL_NAMES if name in curves), None)
    if fastfill is None:
        return []
    return [
        asdict(compare_curves(curves[fastfill][metric], other[metric], resamples=1000))
        for metric in ("cmc@1", "map")
        for name, other in curves.items()
        if name != fastfill
    ]


Curves = dict[str, dict[str, Curve]]


def _flips(
    stages: UpdateStages, test: TestSet, rows: Sequence[System], curves: Curves
) -> dict[str, Any]:
    """Shares of queries that turned right or wrong since 0 %."""
    return {
        name: {
            metric: {"positive": flips.positive.tolist(), "negative": flips.negative.tolist()}
            for metric in ("cmc@1", "cmc@5")
            for flips in (count_flips(by_metric[metric]),)
        }
        for name, by_metric in curves.items()
    }


def _groups(
    stages: UpdateStages, test: TestSet, rows: Sequence[System], curves: Curves
) -> dict[str, Any]:
    """Top-1 of each group, the gap between them, and who is backfilled first."""
    group = np.where(test.minority, "minority", "majority")
    measured: dict[str, Any] = {}
    for system in rows:
        parts = group_curves(curves[system.name]["cmc@1"], group)
        order = stages.order(system, test)
        measured[system.name] = {
            "top1": {name: curve.values.tolist() for name, curve in parts.items()},
            "gap": group_gap(parts).tolist(),
            "served": {k: v.tolist() for k, v in served_first(order, group).shares.items()},
        }
    measured["plain"] = {name: _group_top1(stages, test, group, name) for name in ("old", "new")}
    return measured


def _group_top1(stages: UpdateStages, test: TestSet, group: Any, name: str) -> dict[str, float]:
    """Top-1 of each group with one model on both sides."""
    from fastfill.align import Aligned
    from fastfill.evaluate import backfill_curves

    vectors = stages.features(name).test[test.rows]
    still = Aligned(vectors, np.zeros(len(vectors), np.float32))
    curve = backfill_curves(
        still, vectors, test.labels, policy="random", metrics=["cmc@1"], points=2,
        device=stages.device,
    )["cmc@1"]  # fmt: skip
    return {key: part.start for key, part in group_curves(curve, group).items()}


def _kendall(
    stages: UpdateStages, test: TestSet, rows: Sequence[System], curves: Curves
) -> dict[str, Any]:
    """τ of σ² with the true losses, σ² being trained on l2, disc and l2+disc."""
    table: dict[str, Any] = {}
    for system in rows:
        variance, losses = _losses(stages, test, system)
        row = kendall_table({"σ²": variance}, losses)
        table[system.name] = {name: row["σ²", name] for name in losses}
    return table


def _losses(stages: UpdateStages, test: TestSet, system: System) -> tuple[Array, dict[str, Array]]:
    """σ² of each test image, and the losses that it should predict."""
    whole = stages.start(system)
    head = None if test.numbered is None else stages.new.head
    losses = true_losses(whole.vectors[test.rows], stages.new.test[test.rows], test.numbered, head)
    return whole.variance[test.rows], dict(losses)


def _scatter(
    stages: UpdateStages, test: TestSet, rows: Sequence[System], curves: Curves
) -> dict[str, Any]:
    """σ² and true losses of some items, enough for a figure: the last system of the table."""
    variance, losses = _losses(stages, test, rows[-1])
    shown = np.random.default_rng(0).permutation(len(test.rows))[:SCATTERED]
    columns = {"σ²": variance, **losses}
    return {name: [float(f"{x:.4g}") for x in values[shown]] for name, values in columns.items()}


MEASURES = {"flips": _flips, "groups": _groups, "kendall": _kendall, "scatter": _scatter}
