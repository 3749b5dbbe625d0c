"""What is kept of the curves of backfills that learn again: `beyond` and `ablations`."""

from __future__ import annotations

from typing import Any

from fastfill.evaluate import Curve

METRICS = ("cmc@1", "map")
PAIRS = {"CLINC150, 750 pairs": 750, "A, 500 pairs": 500}
ELSEWHERE = (
    "Most runs with refits were made on 16 cores and an H200, the others on the machine above."
)


def figures(curves: dict[str, Curve]) -> dict[str, Any]:
    """Means over the points, in per cent, for even queries, odd queries and all; and the curves."""
    summary: dict[str, Any] = {}
    for part, start, step in (("even", 0, 2), ("odd", 1, 2), ("all", 0, 1)):
        summary[part] = []
        for name in METRICS:
            per_query = curves[name].per_query
            assert per_query is not None
            summary[part].append(round(100 * float(per_query[start::step].mean(dtype=float)), 3))
    summary["curves"] = {
        name: [round(float(v), 5) for v in curves[name].values] for name in METRICS
    }
    return summary
