"""What the kernels read and write: plain arrays under names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastfill.features import Array, Matrix


class QueryBlock(NamedTuple):
    """Queries that are worked on together, and what holds for all of them."""

    queries: Matrix  # (Q, d)
    norms: Array  # (Q,) of the centred queries
    shifts: Array  # (Q,) distance less value of the product
    own: Array  # (Q,) gallery row of the query itself, or −1
    lists: Array  # (Q, 2) span of the relevant items in `rows`
    rows: Array  # gallery rows of all lists
    gains: Array
    steps: Array  # (n,) the first stage at which an item is new
    stages: int
    squared: bool  # l2
    width: int  # padded dimension
    error: Array  # (4,) a, b, c of the error bound, and the largest norm of the gallery


class ThresholdLists(NamedTuple):
    """Per query, from `starts[q]` on: `sizes[q]` thresholds in rising order."""

    starts: Array  # (Q + 1,)
    sizes: Array  # (Q,)
    exact: Array  # float64 distances
    values: Array  # the same as values of the product
    entries: Array  # gallery row of the item, doubled, + 1 where it is the new vector's distance
    steps: Array  # step of the item
    fresh: Array  # whether it is the distance of the new vector
    gains: Array


class Lookups(NamedTuple):
    """Per query, from `starts[q]` on: the bucket of each cell."""

    starts: Array  # (Q + 1,)
    buckets: Array  # twice the bucket, + 1 where a threshold may be in the cell
    ranges: Array  # (Q, 3) float32: lower end, cells per unit, first cell beyond the upper end


class BucketCounts(NamedTuple):
    """Per query: a table (stages + 1, m + SPREAD), and the counts (m,) before the first stage."""

    starts: Array  # (Q + 1,) of the tables
    tables: Array
    bases: Array  # from `ThresholdLists.starts[q]` on


class ItemColumns(NamedTuple):
    """Some items of one side of the gallery, in the order of backfilling."""

    products: Matrix  # (Q, c) queries · items
    start: int  # place of the first in the order
    rows: Array  # (c,) gallery rows
    norms: Array  # (c,)
    offsets: Array  # (c,)
    slope: np.float32
    gallery: Matrix  # (n, d)
    edges: Array  # (stages + 2,) where each step begins in the order
    fresh: int  # 1 where this is the side of the new vectors
    skipped: int  # the step whose items are not seen on this side


class Scratch(NamedTuple):
    """Memory for the columns of one query that need a closer look."""

    cells: Array  # of one batch
    places: Array  # (c + 1,) the columns
    homes: Array  # (c + 1,) where the row of their step begins in the table
    hints: Array  # (c + 1,) a bucket that they are not below
    distances: Array  # (c,) in float64
    terms: Array  # (width / 2,)
