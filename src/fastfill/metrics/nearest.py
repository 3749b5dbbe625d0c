"""The nearest neighbours of queries among new items, as relevance for `agreement@k`."""

from __future__ import annotations

import numpy as np

from fastfill.features import Distance, Matrix, pairwise
from fastfill.metrics.relevance import Relevance


def neighbours(
    queries: Matrix, gallery: Matrix, k: int, *, distance: Distance = "l2", same: bool = False
) -> Relevance:
    """Relevant are the items that at most k items, themselves included, are as near as."""
    starts, rows = [0], []
    for q in range(len(queries)):
        d = pairwise(queries[q : q + 1], gallery, distance)[0]
        if same:
            d[q] = np.inf
        near = np.flatnonzero((d[None, :] <= d[:, None]).sum(axis=1) <= k)
        rows.append(near[near != q] if same else near)
        starts.append(starts[-1] + len(rows[-1]))
    flat = np.concatenate(rows)
    own = np.arange(len(queries)) if same else np.full(len(queries), -1)
    return Relevance(
        len(gallery), np.arange(len(queries)), np.array(starts), flat, np.ones(len(flat)), own
    )
