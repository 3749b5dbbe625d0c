"""Run an experiment for one seed and keep its result as a small JSON file."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
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
from fastfill.features import Array, replacing
from fastfill.lab.bench import Bench, Test
from fastfill.lab.experiments import Experiment
from fastfill.lab.models import describe
from fastfill.lab.systems import FASTFILL_NAMES, System

FORMAT = 1
SHOWN = 1000  # items of a picture of σ² against the loss


def run_seed(
    chosen: Experiment, bench: Bench, command: str, without: Sequence[str] = ()
) -> dict[str, Any]:
    """The result of one experiment and seed, as plain values.

    `without`: models ('bct', 'ract') whose rows are left out.
    """
    rows = bench.possible(chosen.systems, without)
    return {
        "format": FORMAT,
        "experiment": chosen.name,
        "data": bench.images.name,
        "seed": bench.seed,
        "command": command,
        "machine": platform.machine(),
        "device": bench.device,
        "map": asdict(bench.options),
        "models": _models(bench, rows),
        "tests": {test.name: _test(chosen, bench, test, rows) for test in bench.tests()},
    }


def _models(bench: Bench, rows: Sequence[System]) -> dict[str, Any]:
    names = ["old", "new", *sorted({s.model for s in rows} - {"new"})]
    names += ["side"] if any(s.side for s in rows) else []
    return {
        name: {
            "model": describe(bench.model(name)),
            "epochs": bench.models.recipe(bench.model(name)).epochs,
            **bench.features(name).facts,
        }
        for name in names
    }


def _test(chosen: Experiment, bench: Bench, test: Test, rows: Sequence[System]) -> dict[str, Any]:
    curves = {system.name: bench.curves(system, test) for system in rows}
    found: dict[str, Any] = {
        "images": len(test.rows),
        "plain": bench.plain(test),
        "systems": {
            s.name: {
                "uses": s.uses,
                "curves": {name: _plain(curve) for name, curve in curves[s.name].items()},
            }
            for s in rows
        },
        "comparisons": _comparisons(curves),
    }
    for measure in chosen.measures:
        found[measure] = MEASURES[measure](bench, test, rows, curves)
    return found


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


def _flips(bench: Bench, test: Test, rows: Sequence[System], curves: Curves) -> dict[str, Any]:
    """Shares of queries that turned right or wrong since 0 %."""
    return {
        name: {
            metric: {"positive": flips.positive.tolist(), "negative": flips.negative.tolist()}
            for metric in ("cmc@1", "cmc@5")
            for flips in (count_flips(found[metric]),)
        }
        for name, found in curves.items()
    }


def _groups(bench: Bench, test: Test, rows: Sequence[System], curves: Curves) -> dict[str, Any]:
    """Top-1 of each group, the gap between them, and who is backfilled first."""
    group = np.where(test.minority, "minority", "majority")
    found: dict[str, Any] = {}
    for system in rows:
        parts = group_curves(curves[system.name]["cmc@1"], group)
        order = bench.order(system, test)
        found[system.name] = {
            "top1": {name: curve.values.tolist() for name, curve in parts.items()},
            "gap": group_gap(parts).tolist(),
            "served": {k: v.tolist() for k, v in served_first(order, group).shares.items()},
        }
    found["plain"] = {name: _group_top1(bench, test, group, name) for name in ("old", "new")}
    return found


def _group_top1(bench: Bench, test: Test, group: Any, name: str) -> dict[str, float]:
    """Top-1 of each group with one model on both sides."""
    from fastfill.align import Aligned
    from fastfill.evaluate import backfill_curves

    vectors = bench.features(name).test[test.rows]
    still = Aligned(vectors, np.zeros(len(vectors), np.float32))
    curve = backfill_curves(
        still, vectors, test.labels, policy="random", metrics=["cmc@1"], points=2,
        device=bench.device,
    )["cmc@1"]  # fmt: skip
    return {key: part.start for key, part in group_curves(curve, group).items()}


def _kendall(bench: Bench, test: Test, rows: Sequence[System], curves: Curves) -> dict[str, Any]:
    """τ of σ² with the true losses, σ² being trained on l2, disc and l2+disc."""
    table: dict[str, Any] = {}
    for system in rows:
        variance, losses = _losses(bench, test, system)
        row = kendall_table({"σ²": variance}, losses)
        table[system.name] = {name: row["σ²", name] for name in losses}
    return table


def _losses(bench: Bench, test: Test, system: System) -> tuple[Array, dict[str, Array]]:
    """σ² of each test image, and the losses that it should predict."""
    whole = bench.start(system)
    head = None if test.numbered is None else bench.new.head
    losses = true_losses(whole.vectors[test.rows], bench.new.test[test.rows], test.numbered, head)
    return whole.variance[test.rows], dict(losses)


def _scatter(bench: Bench, test: Test, rows: Sequence[System], curves: Curves) -> dict[str, Any]:
    """σ² and true losses of some items, enough for a picture: the last system of the table."""
    variance, losses = _losses(bench, test, rows[-1])
    shown = np.random.default_rng(0).permutation(len(test.rows))[:SHOWN]
    columns = {"σ²": variance, **losses}
    return {name: [float(f"{x:.4g}") for x in values[shown]] for name, values in columns.items()}


MEASURES = {"flips": _flips, "groups": _groups, "kendall": _kendall, "scatter": _scatter}


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write the JSON file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft:
        draft.write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")
