"""Curves, flips, groups, rank correlation, simulation, studies."""

from fastfill.evaluate.adaptive import adaptive_curves, serving_curves
from fastfill.evaluate.candidates import (
    Candidate,
    RefitCandidate,
    in_each_way,
    serving_names,
)
from fastfill.evaluate.correlation import (
    KendallTable,
    kendall_table,
    true_losses,
)
from fastfill.evaluate.curves import BUDGETS, Curve, read_curves, write_curves
from fastfill.evaluate.evidence import Evidence, choose_keep, choose_serving
from fastfill.evaluate.findings import ByOrder, Findings, FlipLines, GroupLines, Sigma
from fastfill.evaluate.flips import Flips, count_flips
from fastfill.evaluate.groups import Served, group_curves, group_gap, served_first
from fastfill.evaluate.refits import ASK_AGAIN, LearnedMap, Refits
from fastfill.evaluate.search_tasks import SearchTask, search_tasks
from fastfill.evaluate.search_vectors import SearchVectors
from fastfill.evaluate.series import Estimate, Levels, Series, metrics_of
from fastfill.evaluate.setting import Setting
from fastfill.evaluate.simulation import backfill_curves, backfilled_counts, plain_metrics
from fastfill.evaluate.statistics import Comparison, Spread, compare_curves, over_seeds
from fastfill.evaluate.study import study
from fastfill.evaluate.timeline import Timeline, TimelineTrace, timeline
from fastfill.evaluate.ways import Way, judged_evidence, ways_to_judge
from fastfill.metrics import kendall_tau

__all__ = [
    "ASK_AGAIN",
    "BUDGETS",
    "ByOrder",
    "Candidate",
    "Comparison",
    "Curve",
    "Estimate",
    "Evidence",
    "Findings",
    "FlipLines",
    "Flips",
    "GroupLines",
    "KendallTable",
    "LearnedMap",
    "Levels",
    "RefitCandidate",
    "Refits",
    "SearchTask",
    "SearchVectors",
    "Series",
    "Served",
    "Setting",
    "Sigma",
    "Spread",
    "Timeline",
    "TimelineTrace",
    "Way",
    "adaptive_curves",
    "backfill_curves",
    "backfilled_counts",
    "choose_keep",
    "choose_serving",
    "compare_curves",
    "count_flips",
    "group_curves",
    "group_gap",
    "in_each_way",
    "judged_evidence",
    "kendall_table",
    "kendall_tau",
    "metrics_of",
    "over_seeds",
    "plain_metrics",
    "read_curves",
    "search_tasks",
    "served_first",
    "serving_curves",
    "serving_names",
    "study",
    "timeline",
    "true_losses",
    "ways_to_judge",
    "write_curves",
]
