"""Counting items between thresholds, in Numba.

For one query with m thresholds (the float64 distances of its relevant items, as aligned and as new
vectors, sorted), the bucket of an item is the number of thresholds that are nearer than it. Tables
count the items by step (the stage at which they become new) and bucket; columns come in the order
of backfilling, so that a step is a run of columns. A lookup table over the range of the thresholds
gives most items their bucket at once; cells that a threshold and its error touch are marked, and
their items are looked at closely.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfill.features import Array, Matrix
from fastfill.metrics.kernels import SPREAD, jit
from fastfill.metrics.kernels.values import (
    BucketCounts,
    ItemColumns,
    Lookups,
    QueryBlock,
    Scratch,
    ThresholdLists,
)

_BATCH = 512  # columns whose cells are computed together: a vectorised loop, then a scattering one

_NARROW = np.float32(1e-30)  # a narrower range of thresholds is one cell: its scale would overflow


@jit
def _distance(q: Matrix, g: Matrix, squared: bool, terms: Array) -> float:
    """The float64 distance, its terms added by halves: see `space`. No loop may be merged or

    reordered: all stay elementwise, which is what compilers vectorise without changing a bit.
    """
    half = len(terms)  # half of the padded dimension
    low = min(len(q), half)
    rest_q, rest_g = q[low:], g[low:]
    terms[low:] = 0.0
    if squared:
        for i in range(low):
            gap = np.float64(q[i]) - np.float64(g[i])
            terms[i] = gap * gap
        for i in range(len(rest_q)):
            gap = np.float64(rest_q[i]) - np.float64(rest_g[i])
            terms[i] += gap * gap
    else:
        for i in range(low):
            terms[i] = -np.float64(q[i]) * np.float64(g[i])
        for i in range(len(rest_q)):
            terms[i] -= np.float64(rest_q[i]) * np.float64(rest_g[i])
    while half > 8:
        half //= 2
        for i in range(half):
            terms[i] += terms[i + half]
    even = (terms[0] + terms[4]) + (terms[2] + terms[6])
    return even + ((terms[1] + terms[5]) + (terms[3] + terms[7]))  # type: ignore[no-any-return]


@jit
def _lower_bound(values: Array, x: float) -> int:
    """Number of sorted values below x."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def _cell(value: Any, low: Any, scale: Any, limit: Any) -> Any:
    """The cell of the lookup table that a float32 value falls into: rises with the value."""
    x = (value - low) * scale + np.float32(1)
    return np.int32(min(max(x, np.float32(0)), limit))


@jit
def _slack(error: Array, query_norm: float, norm: float) -> float:
    """How far the value of a product may be off."""
    return error[0] * query_norm * norm + error[1] * norm * norm + error[2]  # type: ignore[no-any-return]


# --- thresholds ----------------------------------------------------------------------------


@jit
def prepare_thresholds(
    block: QueryBlock,
    before: Matrix,
    after: Matrix,
    thresholds: ThresholdLists,
    lookups: Lookups,
) -> None:
    """Thresholds and lookup table of each query."""
    for q in range(len(block.queries)):
        _find_thresholds(q, block, before, after, thresholds)
        start = thresholds.starts[q]
        values = thresholds.values[start : start + thresholds.sizes[q]]
        buckets = lookups.buckets[lookups.starts[q] : lookups.starts[q + 1]]
        slack = _slack(block.error, block.norms[q], block.error[3])
        low, high = np.float32(values[0] - slack), np.float32(values[-1] + slack)
        limit = np.float32(len(buckets) - SPREAD)
        span = high - low
        scale = (limit - np.float32(2)) / span if span > _NARROW else np.float32(0)
        lookups.ranges[q, 0] = low
        lookups.ranges[q, 1] = scale
        lookups.ranges[q, 2] = limit
        _fill_lookup(buckets, values, slack, low, scale, limit)


@jit
def _find_thresholds(
    q: int, block: QueryBlock, before: Matrix, after: Matrix, out: ThresholdLists
) -> None:
    terms = np.empty(block.width // 2)
    capacity = out.starts[q + 1] - out.starts[q]
    distances = np.empty(capacity)
    gains = np.empty(capacity)
    entries = np.empty(capacity, dtype=np.int64)
    m = 0
    for i in range(block.lists[q, 0], block.lists[q, 1]):
        item = block.rows[i]
        if item == block.own[q]:
            continue
        if block.steps[item] > 0:  # is seen as an aligned vector
            distances[m] = _distance(block.queries[q], before[item], block.squared, terms)
            gains[m] = block.gains[i]
            entries[m] = 2 * item
            m += 1
        if block.steps[item] < block.stages:  # is seen as a new vector
            distances[m] = _distance(block.queries[q], after[item], block.squared, terms)
            gains[m] = block.gains[i]
            entries[m] = 2 * item + 1
            m += 1
    order = _sort(distances[:m], gains[:m])
    out.sizes[q] = m
    for k in range(m):
        at = out.starts[q] + k
        entry = entries[order[k]]
        out.exact[at] = distances[order[k]]
        out.values[at] = out.exact[at] - block.shifts[q]
        out.entries[at] = entry
        out.steps[at] = block.steps[entry // 2]
        out.fresh[at] = entry % 2 == 1
        out.gains[at] = gains[order[k]]


@jit
def _sort(distances: Array, gains: Array) -> Array:
    """The order by distance, then by gain: a merge sort, which compiles sooner than NumPy's."""
    size = len(distances)
    order = np.arange(size)
    spare = np.empty(size, dtype=np.int64)
    width = 1
    while width < size:
        for left in range(0, size, 2 * width):
            middle = min(left + width, size)
            right = min(left + 2 * width, size)
            i, j = left, middle
            for k in range(left, right):
                take = i < middle
                if take and j < right:
                    a, b = order[i], order[j]
                    nearer = distances[a] < distances[b]
                    take = nearer or (distances[a] == distances[b] and gains[a] <= gains[b])
                if take:
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
        order, spare = spare, order
        width *= 2
    return order


@jit
def _fill_lookup(
    buckets: Array, values: Array, slack: float, low: Any, scale: Any, limit: Any
) -> None:
    """Twice the bucket of each cell; + 1 for the cells that a threshold ± slack touches."""
    at = 0
    for k in range(len(values)):
        first = _cell(np.float32(values[k] - slack), low, scale, limit)
        last = _cell(np.float32(values[k] + slack), low, scale, limit)
        while at < first:
            buckets[at] = 2 * k
            at += 1
        while at <= last:
            buckets[at] = 2 * k + 1
            at += 1
    for c in range(at, len(buckets)):
        buckets[c] = 2 * (len(values) + max(0, c - (len(buckets) - SPREAD)))


# --- counting ------------------------------------------------------------------------------


@jit
def count_items(
    block: QueryBlock,
    columns: ItemColumns,
    thresholds: ThresholdLists,
    lookups: Lookups,
    counts: BucketCounts,
) -> None:
    """Count the items of some columns into the tables of the queries."""
    size = len(columns.rows) + 1
    scratch = Scratch(
        np.empty(_BATCH, dtype=np.uint32),
        np.empty(size, dtype=np.uint32),
        np.empty(size, dtype=np.uint32),
        np.empty(size, dtype=np.uint32),
        np.empty(size),
        np.empty(block.width // 2),
    )
    for q in range(len(block.queries)):
        table = counts.tables[counts.starts[q] : counts.starts[q + 1]]
        near = _count_by_lookup(q, thresholds.sizes[q], columns, lookups, table, scratch)
        unsure = _count_by_product(q, near, block, columns, thresholds, table, scratch)
        _count_by_distance(q, unsure, block, columns, thresholds, table, scratch)


@jit
def _count_by_lookup(
    q: int, m: int, columns: ItemColumns, lookups: Lookups, table: Array, scratch: Scratch
) -> int:
    """Count what the lookup table decides; how many others there are, which go to scratch."""
    cells, places, homes, hints = scratch.cells, scratch.places, scratch.homes, scratch.hints
    buckets = lookups.buckets[lookups.starts[q] : lookups.starts[q + 1]]
    low, scale, limit = lookups.ranges[q, 0], lookups.ranges[q, 1], lookups.ranges[q, 2]
    products, offsets, slope = columns.products[q], columns.offsets, columns.slope
    edges, column = columns.edges, columns.start
    near = np.uint32(0)
    for step in range(len(edges) - 1):
        if step == columns.skipped:
            continue
        home = np.uint32(step * (m + SPREAD))
        right = min(edges[step + 1] - column, len(products))
        for start in range(max(edges[step] - column, 0), right, _BATCH):
            batch = products[start : min(start + _BATCH, right)]
            shift = offsets[start : start + len(batch)]
            for j in range(len(batch)):
                value = shift[j] + slope * batch[j]
                cells[j] = _cell(value, low, scale, limit + np.float32(j % SPREAD))
            for j in range(len(batch)):
                entry = np.uint32(buckets[cells[j]])
                touched = entry & np.uint32(1)
                bucket = entry >> np.uint32(1)
                places[near] = start + j
                homes[near] = home
                hints[near] = bucket
                near += touched
                table[home + bucket] += np.int32(1) - np.int32(touched)
    return near  # type: ignore[return-value]


@jit
def _count_by_product(
    q: int,
    near: int,
    block: QueryBlock,
    columns: ItemColumns,
    thresholds: ThresholdLists,
    table: Array,
    scratch: Scratch,
) -> int:
    """Count what the product decides, given its error; how many others there are."""
    places, homes, hints = scratch.places, scratch.homes, scratch.hints
    start = thresholds.starts[q]
    values = thresholds.values[start : start + thresholds.sizes[q]]
    products, offsets, norms = columns.products[q], columns.offsets, columns.norms
    slope, error, norm = columns.slope, block.error, block.norms[q]
    unsure = np.uint32(0)
    for i in range(near):
        j = places[i]
        value = np.float64(offsets[j] + slope * products[j])
        slack = _slack(error, norm, norms[j])
        bucket = _advance(values, hints[i], value - slack)
        sure = bucket == len(values) or values[bucket] > value + slack
        home = homes[i]
        places[unsure] = j
        homes[unsure] = home
        hints[unsure] = bucket
        unsure += np.uint32(not sure)
        table[home + bucket] += np.int32(sure)
    return unsure  # type: ignore[return-value]


@jit
def _count_by_distance(
    q: int,
    unsure: int,
    block: QueryBlock,
    columns: ItemColumns,
    thresholds: ThresholdLists,
    table: Array,
    scratch: Scratch,
) -> None:
    """Count the rest, by distances in float64."""
    places, homes, hints = scratch.places, scratch.homes, scratch.hints
    distances, terms = scratch.distances, scratch.terms
    start = thresholds.starts[q]
    exact = thresholds.exact[start : start + thresholds.sizes[q]]
    query, gallery, rows, squared = block.queries[q], columns.gallery, columns.rows, block.squared
    entries, fresh = thresholds.entries[start : start + len(exact)], columns.fresh
    for i in range(unsure):
        row = rows[places[i]]
        if entries[hints[i]] == 2 * row + fresh:  # a relevant item at its own threshold
            distances[i] = exact[hints[i]]
        else:
            distances[i] = _distance(query, gallery[row], squared, terms)
    for i in range(unsure):
        table[homes[i] + _advance(exact, hints[i], distances[i])] += 1


@jit
def _advance(values: Array, first: Any, x: float) -> Any:
    """The first place from `first` on whose value is not below x: mostly few steps away."""
    at = np.int64(first)
    stride = 1
    while at + stride <= len(values) and values[at + stride - 1] < x:
        at += stride
        stride *= 2
    last = min(at + stride, len(values))
    return at + _lower_bound(values[at:last], x)


@jit
def start_from_aligned(block: QueryBlock, thresholds: ThresholdLists, counts: BucketCounts) -> None:
    """When the aligned side is counted: all of it is the base, and leaves it step by step."""
    for q in range(len(block.queries)):
        m = thresholds.sizes[q]
        base = counts.bases[thresholds.starts[q] : thresholds.starts[q] + m]
        for step in range(block.stages + 1):
            at = counts.starts[q] + step * (m + SPREAD)
            for b in range(m):
                base[b] += counts.tables[at + b]
                counts.tables[at + b] = -counts.tables[at + b]


@jit
def remove_own(
    block: QueryBlock,
    before: Matrix,
    after: Matrix,
    thresholds: ThresholdLists,
    counts: BucketCounts,
) -> None:
    """A query that is itself in the gallery was counted like any item: take it away again."""
    terms = np.empty(block.width // 2)
    for q in range(len(block.queries)):
        own = block.own[q]
        if own < 0:
            continue
        start, m = thresholds.starts[q], thresholds.sizes[q]
        exact = thresholds.exact[start : start + m]
        step = block.steps[own]
        table = counts.tables[counts.starts[q] + step * (m + SPREAD) :]
        if step > 0:
            distance = _distance(block.queries[q], before[own], block.squared, terms)
            bucket = _lower_bound(exact, distance)
            table[bucket] += 1
            if bucket < m:
                counts.bases[start + bucket] -= 1
        if step < block.stages:
            distance = _distance(block.queries[q], after[own], block.squared, terms)
            table[_lower_bound(exact, distance)] -= 1
