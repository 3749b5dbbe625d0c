"""From counts to scores, in Numba: the last of the kernels."""

from __future__ import annotations

import numpy as np

from fastfill.features import Array
from fastfill.metrics.kernels import SPREAD, jit
from fastfill.metrics.kernels.values import BucketCounts, QueryBlock, ThresholdLists


@jit
def score_queries(
    block: QueryBlock,
    thresholds: ThresholdLists,
    counts: BucketCounts,
    codes: Array,
    ideals: Array,
    scores: Array,
) -> None:
    """All metrics at all stages into scores (metrics, Q, stages).

    `codes` are the code and k of each metric, `ideals` (metrics, Q) the best discounted gains.
    """
    stages = block.stages
    for q in range(len(block.queries)):
        m = thresholds.sizes[q]
        start = thresholds.starts[q]
        exact = thresholds.exact[start : start + m]
        current = counts.bases[start : start + m]
        table = counts.tables[counts.starts[q] : counts.starts[q + 1]]
        table = table.reshape(stages + 1, m + SPREAD)
        steps, fresh = thresholds.steps[start : start + m], thresholds.fresh[start : start + m]
        worths = thresholds.gains[start : start + m]
        active = np.empty(m + 1, dtype=np.int64)
        below = np.empty(m, dtype=np.int64)
        ranks = np.empty(m, dtype=np.int64)
        gains = np.empty(m)
        for stage in range(stages):
            relevant = _at_stage(stage, steps, fresh, table[stage], current, below, active)
            precision = _rank(active[:relevant], below, exact, worths, ranks, gains)
            for i in range(len(codes)):
                code, k = codes[i]
                scores[i, q, stage] = _score(
                    code, k, precision, ranks[:relevant], gains[:relevant], ideals[i, q]
                )


@jit
def _at_stage(
    stage: int,
    steps: Array,
    fresh: Array,
    change: Array,
    current: Array,
    below: Array,
    active: Array,
) -> int:
    """Items up to each threshold, and the thresholds that hold at a stage; how many those are."""
    total = 0
    relevant = 0
    for k in range(len(current)):
        current[k] += change[k]
        total += current[k]
        below[k] = total
        active[relevant] = k
        relevant += (steps[k] <= stage) == fresh[k]
    return relevant


@jit
def _rank(
    active: Array, below: Array, exact: Array, worths: Array, ranks: Array, gains: Array
) -> float:
    """Ranks and gains of the relevant items at one stage; returns Σ rel(d) / all(d)."""
    precision = 0.0
    r = 0
    while r < len(active):
        last = r + 1
        while last < len(active) and exact[active[last]] == exact[active[r]]:
            last += 1
        everything = below[active[r]]  # equal thresholds are counted in the first of them
        for i in range(r, last):
            ranks[i] = i + 1 + everything - last
            gains[i] = worths[active[i]]
        precision += (last - r) * (last / everything)
        r = last
    return precision


@jit
def _score(code: int, k: int, precision: float, ranks: Array, gains: Array, ideal: float) -> float:
    """One metric of one query, from the ranks of its relevant items: see `names`."""
    if code == 0:
        return precision / len(ranks)
    if code == 1:
        return 1.0 if ranks[0] <= k else 0.0
    if code == 2:
        return 1.0 / ranks[0] if k == 0 or ranks[0] <= k else 0.0
    total = 0.0
    for r in range(len(ranks)):
        if ranks[r] > k:
            break  # ranks rise
        total += 1.0 if code == 3 else gains[r] / np.log2(1.0 + ranks[r])
    return total / (len(ranks) if code == 3 else ideal)
