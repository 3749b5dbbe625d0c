"""Metrics by name: `"map"`, `"cmc@5"`, `"ndcg@10"`, looked up in `METRICS`.

Let the relevant items of a query stand at distances d_1 ≤ … ≤ d_P, let rel(t) and all(t) count
the relevant items and all items at distance ≤ t. The r-th relevant item has

    rank_r = r + all(d_r) − rel(d_r)

so that among items at the same distance the non-relevant ones come first: a metric never rests
on the luck of a sort, and a permutation of the gallery changes nothing.

| name          | value of a query                                                            |
| ------------- | --------------------------------------------------------------------------- |
| `map`         | 1/P Σ_r rel(d_r) / all(d_r), as scikit-learn's `average_precision_score`     |
| `cmc@k`       | 1 if rank_1 ≤ k                                                             |
| `mrr`         | 1 / rank_1                                                                  |
| `mrr@k`       | 1 / rank_1 if rank_1 ≤ k, else 0                                            |
| `recall@k`    | 1/P · number of r with rank_r ≤ k                                           |
| `ndcg@k`      | Σ_{r: rank_r ≤ k} gain_r / log₂(1 + rank_r), over the same of the best order |
| `agreement@k` | `recall@k` where the relevant items are the k neighbours among all-new items |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fastfill.errors import InputError

Cut = Literal["never", "always", "either"]


@dataclass(frozen=True)
class Family:
    """Metrics of one kind: what they say, whether they have a cut-off, what kernels call them."""

    about: str
    cut: Cut  # whether a cut-off k is given
    code: int

    def written(self, name: str) -> str:
        """How its metrics are named: `map`, `cmc@k`, or `mrr` and `mrr@k`."""
        return {"never": name, "always": f"{name}@k", "either": f"{name}, {name}@k"}[self.cut]

    def takes(self, cut: bool) -> bool:
        """Whether there is such a metric with, or without, a cut-off."""
        return self.cut == "either" or (self.cut == "always") == cut


METRICS: dict[str, Family] = {
    "map": Family("mean average precision over the full ranking", cut="never", code=0),
    "cmc": Family("share of queries with a relevant item among the first k", cut="always", code=1),
    "mrr": Family("mean of 1 / rank of the first relevant item", cut="either", code=2),
    "recall": Family(
        "share of the relevant items that are among the first k", cut="always", code=3
    ),
    "ndcg": Family("discounted gain of the first k over the best possible", cut="always", code=4),
    "agreement": Family("share of the k new neighbours that are found", cut="always", code=3),
}


@dataclass(frozen=True)
class Metric:
    """One metric: its family, and its cut-off k where it has one.

    >>> as_metric("recall@10")
    Metric(family='recall', k=10)
    """

    family: str
    k: int = 0  # 0: the whole ranking

    @property
    def name(self) -> str:
        """The name that `as_metric` reads."""
        return f"{self.family}@{self.k}" if self.k else self.family

    @property
    def code(self) -> int:
        """What the kernels call it."""
        return METRICS[self.family].code


def as_metric(name: str | Metric) -> Metric:
    """The metric of that name, or an error that lists the names there are."""
    if isinstance(name, Metric):
        return name
    match = re.fullmatch(r"([a-z]+)(?:@([1-9][0-9]{0,8}))?", name)
    family = METRICS.get(match[1]) if match else None
    if match is None or family is None or not family.takes(match[2] is not None):
        names = ", ".join(value.written(key) for key, value in METRICS.items())
        raise InputError(f"Unknown metric {name!r}: use one of {names}, with a whole k from 1 up.")
    return Metric(match[1], int(match[2] or 0))


def as_metrics(names: str | Metric | Iterable[str | Metric]) -> tuple[Metric, ...]:
    """Several metrics, from a list of names or one text with commas between them.

    >>> [metric.name for metric in as_metrics("cmc@1, map")]
    ['cmc@1', 'map']
    """
    if isinstance(names, str):
        names = [part.strip() for part in names.split(",")]
    elif isinstance(names, Metric):
        names = [names]
    metrics = tuple(dict.fromkeys(as_metric(name) for name in names))
    if not metrics:
        raise InputError("No metric was named: give at least one, such as 'map'.")
    return metrics
