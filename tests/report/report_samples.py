"""Curves and findings that the tests of tables, figures and pages share."""

from __future__ import annotations

import numpy as np

from fastfill.evaluate import Comparison, Curve, timeline
from fastfill.report import Findings, FlipLines, GroupLines, Series, Sigma

FRACTIONS = np.linspace(0, 1, 11)


def curves(seeds: int = 3) -> list[Curve]:
    """Two orders under two metrics; the random one has seeds."""
    found = []
    for metric, start, end in (("cmc@1", 0.5, 0.7), ("map", 0.3, 0.5)):
        rise = end - start
        found.append(Curve(metric, FRACTIONS, start + rise * np.sqrt(FRACTIONS), name="sigma"))
        for seed in range(seeds):
            values = start + rise * FRACTIONS ** (1 + 0.1 * seed)
            found.append(Curve(metric, FRACTIONS, values, name="random"))
    return found


def sample_findings() -> Findings:
    """Everything that a report can show."""
    lines = {
        name: [
            Series("few", "map", FRACTIONS, 0.2 + 0.1 * FRACTIONS),
            Series("many", "map", FRACTIONS, 0.3 + 0.1 * FRACTIONS),
        ]
        for name in ("sigma", "random")
    }
    won = [Series(name, "cmc@1", FRACTIONS, 0.2 * FRACTIONS) for name in lines]
    lost = [Series(name, "cmc@1", FRACTIONS, 0.1 * FRACTIONS) for name in lines]
    variance = np.random.default_rng(0).gamma(2.0, size=200)
    means = [curve for curve in curves(1) if curve.metric == "map"]
    return Findings(
        "Gallery <1> & co",
        curves(),
        {"cmc@1": {"new/new": 0.7, "old/old": 0.45}, "map": {"new/new": 0.5, "old/old": 0.05}},
        FlipLines(won, lost),
        GroupLines({"map": lines}, [Series(n, "map", FRACTIONS, 0.1 * FRACTIONS) for n in lines],
                   {n: [Series("few", "served", FRACTIONS, FRACTIONS)] for n in lines}),
        {"mine": Sigma(variance, {"l2": variance**2, "disc": np.zeros(200)}, {"l2": 1.0, "disc": 0},
                       np.arange(200))},
        [Comparison("map", "sigma", "random", 0.02, 0.01, 0.03, 0.95, 0.0005)],
        timelines=[timeline(means, old=0.1, items=1, per_item=30, unit="days")],
        command="fastfill curve 'a b' -o out",
        facts={"gallery": "200 items"},
    )  # fmt: skip
