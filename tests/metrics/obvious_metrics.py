"""Every metric in the slow, obvious way: distances in float64, then counting."""

from __future__ import annotations

import numpy as np

from fastfill.features import normalised
from fastfill.metrics import Metric, Relevance


def distances(queries, gallery, distance):
    """All distances in float64, (q, n)."""
    if distance == "cosine":
        queries, gallery = normalised(queries), normalised(gallery)
    queries, gallery = queries.astype(np.float64), gallery.astype(np.float64)
    if distance == "l2":
        return ((queries[:, None, :] - gallery[None, :, :]) ** 2).sum(axis=2)
    return -(queries[:, None, :] * gallery[None, :, :]).sum(axis=2)


def query_metric(metric: Metric, d, relevant, gains):
    """One metric of one query: d are the distances of the ranked items, relevant their places."""
    worst_first = sorted(zip(d[relevant], gains, strict=True))
    values = np.array([value for value, _ in worst_first])
    gains = np.array([gain for _, gain in worst_first])
    everything = np.array([(d <= value).sum() for value in values])
    answers = np.array([(values <= value).sum() for value in values])
    ranks = np.arange(1, len(values) + 1) + everything - answers
    first_k = ranks <= metric.k
    match metric.family:
        case "map":
            return (answers / everything).mean()
        case "cmc":
            return float(ranks[0] <= metric.k)
        case "mrr":
            return 1 / ranks[0] if not metric.k or ranks[0] <= metric.k else 0.0
        case "recall" | "agreement":
            return first_k.mean()
        case "ndcg":
            best = np.sort(gains)[::-1][: metric.k]
            ideal = (best / np.log2(np.arange(2, 2 + len(best)))).sum()
            return (gains / np.log2(1 + ranks))[first_k].sum() / ideal
    raise AssertionError(metric)


def obvious_scores(
    queries, before, after, positions, counts, relevance: Relevance, metrics, distance="l2"
):
    """{metric: (kept queries, stages)}: one gallery after the other."""
    kept = [q for q in range(len(relevance)) if len(relevance.of(q))]
    values = {metric.name: np.zeros((len(kept), len(counts))) for metric in metrics}
    for stage, count in enumerate(counts):
        gallery = before.copy()
        gallery[positions[:count]] = after[positions[:count]]
        table = distances(queries, gallery, distance)
        for i, q in enumerate(kept):
            ranked = np.arange(len(gallery)) != relevance.own[q]
            place = np.cumsum(ranked) - 1
            for metric in metrics:
                values[metric.name][i, stage] = query_metric(
                    metric, table[q][ranked], place[relevance.of(q)], relevance.gains_of(q)
                )
    return np.array(kept), values
