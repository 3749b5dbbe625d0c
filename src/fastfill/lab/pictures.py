"""The laboratory's figures, drawn by the room `report`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fastfill.lab.results import Runs
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
_SHOWN = {"ablation": 8}  # lines of its figure: the rows of Table 5
_ONLY_IN_TABLES = frozenset(  # far below all others, or all but the same as entropy
    {"No map", *(f"{m}-{p}" for m in ("FastFill", "FCT") for p in ("margin", "least-confidence"))}
)


def pictures(runs: Runs) -> Iterator[tuple[str, str, Figure]]:
    """File name, caption and figure, one after the other."""
    for number, test in enumerate(runs.tests):
        name = runs.experiment.name + (f"-{number + 1}" if len(runs.tests) > 1 else "")
        yield name, f"Backfilling curves, test classes {test}", _curves(runs, test)
    for measure in runs.experiment.measures:
        if measure in _DRAWN:
            yield from _DRAWN[measure](runs, runs.tests[0])


def _curves(runs: Runs, test: str) -> Figure:
    drawn = [name for name in runs.systems(test) if name not in _ONLY_IN_TABLES]
    shown = drawn[: _SHOWN.get(runs.experiment.name)]
    levels = {
        metric: {end: float(np.mean(runs.areas(test, end, metric))) for end in ENDS}
        for metric in runs.experiment.shows
    }
    return curves_figure([c for c in runs.curves(test) if c.name in shown], levels)


def _series(name: str, metric: str, rows: list[list[float]]) -> Series:
    """The same quantity of every seed along the curve."""
    points = np.linspace(0, 1, len(rows[0]))
    return Series(name, metric, points, np.array(rows))


def _flips(runs: Runs, test: str) -> Iterator[tuple[str, str, Figure]]:
    lines = {
        kind: [
            _series(
                system, metric,
                [r["tests"][test]["flips"][system][metric][kind] for r in runs.results],
            )
            for metric in runs.experiment.shows
            for system in runs.systems(test)
        ]
        for kind in ("positive", "negative")
    }  # fmt: skip
    caption = "Queries that turned right (+) or wrong (−) since 0 %"
    yield "flips-counted", caption, flips_figure(lines["positive"], lines["negative"])


def _groups(runs: Runs, test: str) -> Iterator[tuple[str, str, Figure]]:
    found = [result["tests"][test]["groups"] for result in runs.results]
    names = ("majority", "minority")
    quality = {
        system: [
            _series(group, "cmc@1", [g[system]["top1"][group] for g in found]) for group in names
        ]
        for system in runs.systems(test)
    }
    gaps = [
        _series(system, "cmc@1", [g[system]["gap"] for g in found]) for system in runs.systems(test)
    ]
    served = {
        system: [
            _series(group, "cmc@1", [g[system]["served"][group] for g in found]) for group in names
        ]
        for system in runs.systems(test)
    }
    caption = "Top-1 of both groups, and the gap between them"
    yield "bias-groups", caption, groups_figure(quality, gaps)
    yield "bias-served", "How much of each group is backfilled", served_figure(served)


def _sigma(runs: Runs, test: str) -> Iterator[tuple[str, str, Figure]]:
    last = list(runs.results[0]["tests"][test]["kendall"])[-1]
    taus = runs.results[0]["tests"][test]["kendall"][last]
    columns = dict(runs.results[0]["tests"][test]["scatter"])
    variance = columns.pop("σ²")
    caption = f"σ² of {last} against the true losses, seed {runs.seeds[0]}"
    yield "sigma-scatter", caption, sigma_figure(variance, columns, taus)


_DRAWN = {"flips": _flips, "groups": _groups, "scatter": _sigma}
