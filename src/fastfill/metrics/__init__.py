"""CMC, mAP, recall, nDCG, agreement: exact ranks, one pass for a whole curve; Kendall's τ."""

from fastfill.features import read_qrels
from fastfill.metrics.kendall import kendall_tau
from fastfill.metrics.names import METRICS, Family, Metric, as_metric, as_metrics
from fastfill.metrics.nearest import neighbours
from fastfill.metrics.relevance import LabelSets, Qrels, Relevance, as_relevance, is_column
from fastfill.metrics.scores import QueryScores, Tick, curve_scores, gallery_scores

__all__ = [
    "METRICS",
    "Family",
    "LabelSets",
    "Metric",
    "Qrels",
    "QueryScores",
    "Relevance",
    "Tick",
    "as_metric",
    "as_metrics",
    "as_relevance",
    "curve_scores",
    "gallery_scores",
    "is_column",
    "kendall_tau",
    "neighbours",
    "read_qrels",
]
