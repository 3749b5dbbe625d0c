"""Numbers and metrics as tables, figures and the page write them."""

from __future__ import annotations

import numpy as np

from fastfill.evaluate import Comparison, Findings

Signs = dict[tuple[str, str], str]
"""(metric, name) → a sign that follows the area: significantly better or worse."""


def percent(value: float) -> str:
    """A share as people write it, with one decimal.

    >>> percent(0.4567), percent(float("nan"))
    ('45.7', '–')
    """
    return "–" if np.isnan(value) else f"{100 * value:.1f}"


def points(value: float) -> str:
    """A difference of shares, in points.

    >>> points(0.0123), points(-0.001)
    ('+1.23', '−0.10')
    """
    return f"{100 * value:+.2f}".replace("-", "−")


def chance(p: float) -> str:
    """A p value as papers print it.

    >>> chance(0.0312), chance(0.0)
    ('0.031', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def correlation(tau: float) -> str:
    """Kendall's τ; a constant has none.

    >>> correlation(0.3456), correlation(float("nan"))
    ('0.346', '–')
    """
    return "–" if np.isnan(tau) else f"{tau:.3f}"


def title(metric: str) -> str:
    """A metric's name as papers print it.

    >>> [title(name) for name in ("cmc@1", "map", "ndcg@10", "agreement@10")]
    ['CMC top-1', 'mAP', 'nDCG@10', 'agreement@10']
    """
    name, _, k = metric.partition("@")
    if name == "cmc":
        return f"CMC top-{k}"
    written = {"map": "mAP", "ndcg": "nDCG", "mrr": "MRR"}.get(name, name)
    return f"{written}@{k}" if k else written


def mark(one: Comparison) -> str:
    """▲ significantly better, ▼ worse, nothing if the interval holds zero.

    >>> mark(Comparison("map", "sigma", "random", 0.02, 0.01, 0.03, 0.95, 0.001))
    ' ▲'
    """
    return " ▲" if one.low > 0 else " ▼" if one.high < 0 else ""


def marks_of(findings: Findings) -> Signs:
    """The sign behind each curve that was compared with the baseline."""
    return {(one.metric, one.a): mark(one) for one in findings.comparisons}
