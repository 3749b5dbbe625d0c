"""What `cuda_kernels` does, in plain torch: where there is no Triton, and to compare with."""

from __future__ import annotations

import torch
from torch import Tensor

from fastfill.metrics.cuda_operands import PASS, ItemOperand, QueryOperand, stored
from fastfill.metrics.cuda_thresholds import picked_distances, search_rows

_PRODUCTS = 1 << 25  # that are made at once


def count_near(
    queries: QueryOperand, exact: Tensor, items: ItemOperand, table: Tensor, fresh: bool
) -> None:
    """Count the items up to the farthest threshold of each query into its table.

    `exact` are the thresholds (Q, m), float64, in rising order; the table is (Q, lines, m), int32,
    a line for each step and one more. A new vector is counted in the line of its step, where it
    comes in. An aligned one is taken from there, where it goes out, and counted in the last line:
    that is what the curve begins with.
    """
    width = max(1, _PRODUCTS // len(queries.halves) // PASS) * PASS
    asked = stored(queries.exact)  # back in their own order: bits in reverse, twice
    for start in range(0, len(items), width):
        span = slice(start, start + width)
        which, place = near_pairs(queries, items, span)[: len(queries)].nonzero(as_tuple=True)
        vectors = stored(items.exact[span])
        distances = picked_distances(asked, which, vectors, place, queries.squared)
        buckets = search_rows(exact, which, distances)
        inside = buckets < exact.shape[1]
        which, buckets = which[inside], buckets[inside]
        steps = items.steps[span][place[inside]].long()
        _add(table, which, steps, buckets, 1 if fresh else -1)
        if not fresh:
            _add(table, which, torch.full_like(steps, table.shape[1] - 1), buckets, 1)


def near_pairs(queries: QueryOperand, items: ItemOperand, span: slice) -> Tensor:
    """Which products are not surely beyond the limit of their query, (Q', c)."""
    passes = slice(span.start // PASS, -(-span.stop // PASS))
    norms, residuals = items.norms[passes], items.residuals[passes]
    bounds = torch.outer(queries.by_norm, norms) + torch.outer(queries.by_residual, residuals)
    bounds += queries.limits[:, None] + items.by_square * norms.square()
    bounds *= items.unit
    halves = items.halves[span].float()
    values = torch.addmm(items.offsets[span], queries.halves.float(), halves.T)
    return values <= bounds.repeat_interleave(PASS, dim=1)[:, : len(halves)]


def _add(table: Tensor, queries: Tensor, lines: Tensor, buckets: Tensor, sign: int) -> None:
    """Add a number to some cells of the table, to one that is named twice two times."""
    cells = (queries * table.shape[1] + lines) * table.shape[2] + buckets
    change = table.new_full((1,), sign).expand(cells.shape)
    table.view(-1).scatter_add_(0, cells, change)
