"""Curves, flips, groups, rank correlation, simulation, forecast."""

from fastfill.evaluate.adaptive import adaptive_curves
from fastfill.evaluate.correlation import (
    KendallTable,
    kendall_table,
    true_losses,
)
from fastfill.evaluate.curves import BUDGETS, Curve, read_curves, write_curves
from fastfill.evaluate.flips import Flips, count_flips
from fastfill.evaluate.forecast import Forecast, Reached
from fastfill.evaluate.groups import Served, group_curves, group_gap, served_first
from fastfill.evaluate.simulation import backfill_curves, backfilled_counts, plain_metrics
from fastfill.evaluate.statistics import Comparison, Spread, compare_curves, over_seeds
from fastfill.evaluate.timeline import Line, Timeline, timeline
from fastfill.metrics import kendall_tau

__all__ = [
    "BUDGETS",
    "Comparison",
    "Curve",
    "Flips",
    "Forecast",
    "KendallTable",
    "Line",
    "Reached",
    "Served",
    "Spread",
    "Timeline",
    "adaptive_curves",
    "backfill_curves",
    "backfilled_counts",
    "compare_curves",
    "count_flips",
    "group_curves",
    "group_gap",
    "kendall_table",
    "kendall_tau",
    "over_seeds",
    "plain_metrics",
    "read_curves",
    "served_first",
    "timeline",
    "true_losses",
    "write_curves",
]
