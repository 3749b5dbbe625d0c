"""The laboratory's figures, drawn by `fastfill.report`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fastfill.lab.results import ExperimentResults
from fastfill.lab.systems import NO_MARGIN_BY_HEAD
from fastfill.report import (
    Series,
    curves_figure,
    flips_figure,
    groups_figure,
    served_figure,
    sigma_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDS = ("old/old", "new/new")
_SHOWN = {"ablation": 8}  # curves of its figure: the rows of Table 5
_ONLY_IN_TABLES = frozenset(  # far below all others, or all but the same as entropy
    {
        "No map",
        "FCT-entropy",
        *(f"{m}-{p}" for m in ("FastFill", "FCT") for p in ("margin", "least-confidence")),
    }
    | {system.name for system in NO_MARGIN_BY_HEAD}
)


def experiment_figures(results: ExperimentResults) -> Iterator[tuple[str, str, Figure]]:
    """File name, caption and figure, one after the other."""
    for number, test in enumerate(results.tests):
        name = results.experiment.name + (f"-{number + 1}" if len(results.tests) > 1 else "")
        yield name, f"Backfilling curves, test classes {test}", _curves(results, test)
    for measure in results.experiment.measures:
        if measure in _MEASURE_FIGURES:
            yield from _MEASURE_FIGURES[measure](results, results.tests[0])


def _curves(results: ExperimentResults, test: str) -> Figure:
    drawn = [name for name in results.systems(test) if name not in _ONLY_IN_TABLES]
    shown = drawn[: _SHOWN.get(results.experiment.name)]
    levels = {
        metric: {end: float(np.mean(results.areas(test, end, metric))) for end in ENDS}
        for metric in results.experiment.shows
    }
    return curves_figure([c for c in results.curves(test) if c.name in shown], levels)


def _series(name: str, metric: str, rows: list[list[float]]) -> Series:
    """The same quantity of every seed along the curve."""
    points = np.linspace(0, 1, len(rows[0]))
    return Series(name, metric, points, np.array(rows))


def _flips(results: ExperimentResults, test: str) -> Iterator[tuple[str, str, Figure]]:
    series = {
        kind: [
            _series(
                system, metric,
                [r["tests"][test]["flips"][system][metric][kind] for r in results.per_seed],
            )
            for metric in results.experiment.shows
            for system in results.systems(test)
        ]
        for kind in ("positive", "negative")
    }  # fmt: skip
    caption = "Queries that turned right (+) or wrong (−) since 0 %"
    yield "flips-counted", caption, flips_figure(series["positive"], series["negative"])


def _groups(results: ExperimentResults, test: str) -> Iterator[tuple[str, str, Figure]]:
    measured = [result["tests"][test]["groups"] for result in results.per_seed]
    systems = results.systems(test)

    def of_groups(system: str, what: str) -> list[Series]:
        return [
            _series(group, "cmc@1", [groups[system][what][group] for groups in measured])
            for group in ("majority", "minority")
        ]

    quality = {system: of_groups(system, "top1") for system in systems}
    served = {system: of_groups(system, "served") for system in systems}
    gaps = [
        _series(name, "cmc@1", [groups[name]["gap"] for groups in measured]) for name in systems
    ]
    caption = "Top-1 of both groups, and the gap between them"
    yield "bias-groups", caption, groups_figure(quality, gaps)
    yield "bias-served", "How much of each group is backfilled", served_figure(served)


def _sigma(results: ExperimentResults, test: str) -> Iterator[tuple[str, str, Figure]]:
    last = list(results.per_seed[0]["tests"][test]["kendall"])[-1]
    taus = results.per_seed[0]["tests"][test]["kendall"][last]
    columns = dict(results.per_seed[0]["tests"][test]["scatter"])
    variance = columns.pop("σ²")
    caption = f"σ² of {last} against the true losses, seed {results.seeds[0]}"
    yield "sigma-scatter", caption, sigma_figure(variance, columns, taus)


_MEASURE_FIGURES = {"flips": _flips, "groups": _groups, "scatter": _sigma}
