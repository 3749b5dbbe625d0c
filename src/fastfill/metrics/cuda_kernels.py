"""The two kernels of `cuda_counting` (Triton): find what may be near, count what is near.

`_find` multiplies a block of queries with the items of a span in half precision on the tensor
cores, compares each product with the limit of its query while it is in registers, and writes one
bit per product: no distance ever reaches the memory. The queries stay in shared memory while tiles
of items pass by.

`_count` reads the bits of one query at a time, lists the items whose bit is set, computes their
distances in float64 and adds them to the buckets between the query's thresholds.

A word of 32 bits holds what a thread has of two tiles, so that nothing has to be exchanged: of 128
columns, the lane l of four has 8·i + 2·l and 8·i + 2·l + 1 for i = 0 … 15.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastfill.metrics.cuda_operands import PASS, SPAN, ItemOperand, QueryOperand

RESIDENT = 256  # up to this length the vectors of a block of queries stay in shared memory

_TILE = 64  # items that are compared at once
_SLICE = 64  # of longer vectors, which is multiplied at once
_SPARE = 1024  # bytes of shared memory for all that is no vector
_SEGMENT = 1 << 10  # words of 32 bits that are listed at once
_CHUNK = 16  # items whose distances are computed together
_THRESHOLDS = 32  # that are compared with them together
_PROGRAMS = 1 << 10  # that count, each with a list of its own


@dataclass(frozen=True)
class Tiling:
    """How `_find` cuts its work: the queries of a block, its warps, and tiles in flight."""

    rows: int
    warps: int
    stages: int

    def slice(self, terms: int) -> int:
        """The terms that are multiplied at once."""
        return terms if terms <= RESIDENT else _SLICE

    def bytes(self, terms: int) -> int:
        """Shared memory that it takes."""
        resident = 1 if terms <= RESIDENT else self.stages
        return 2 * self.slice(terms) * (resident * self.rows + self.stages * _TILE) + _SPARE


TILINGS = (Tiling(256, 16, 3), Tiling(128, 8, 3), Tiling(64, 4, 2))


@triton.jit
def _write(x, bounds, even, out, tile, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A bit for each value up to its row's bound; two tiles of 64 columns, from an even one on, are
    written as (ROWS, 4) words."""
    cols = tl.arange(0, COLS)
    weights = 1 << (cols // 8 * 2 + cols % 2)
    bits = tl.where(x <= bounds[:, None], weights[None, :], 0)
    bits = tl.sum(tl.sum(tl.reshape(bits, (ROWS, COLS // 8, 4, 2)), 3), 1)
    if tile % 2 == 1:
        tl.store(out + tile // 2 * 4, even | (bits << 16))
    return bits


@triton.jit(do_not_specialize=["tiles", "blocks"])
def _find(
    queries, limits, by_norm, by_residual, items, offsets, norms, residuals, near,
    unit, by_square, tiles, blocks,
    DIM: tl.constexpr, SLICE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    TILES: tl.constexpr, WORDS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    turn = tl.program_id(0) // blocks
    rows = (tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    first = turn * TILES
    last = tl.minimum(first + TILES, tiles)
    dims = tl.arange(0, SLICE)
    cols = tl.arange(0, COLS)
    norm, residual = tl.load(norms + turn), tl.load(residuals + turn)
    error = tl.load(by_norm + rows) * norm + tl.load(by_residual + rows) * residual
    bounds = (tl.load(limits + rows) + error + by_square * norm * norm) * unit
    left = queries + rows[:, None] * DIM + dims[None, :]
    right = items + (first * COLS + cols).to(tl.int64)[None, :] * DIM + dims[:, None]
    out = near + rows[:, None] * WORDS + tl.arange(0, 4)[None, :]
    bits = tl.zeros((ROWS, 4), tl.int32)
    if DIM == SLICE:
        q = tl.load(left)
        for tile in tl.range(first, last, num_stages=STAGES):
            x = tl.dot(q, tl.load(right)) + tl.load(offsets + tile * COLS + cols)[None, :]
            bits = _write(x, bounds, bits, out, tile, ROWS, COLS)
            right += COLS * DIM
    else:
        for tile in range(first, last):
            x = tl.zeros((ROWS, COLS), tl.float32) + tl.load(offsets + tile * COLS + cols)[None, :]
            for start in tl.range(0, DIM, SLICE, num_stages=STAGES):
                x = tl.dot(tl.load(left + start), tl.load(right + start), x)
            bits = _write(x, bounds, bits, out, tile, ROWS, COLS)
            right += COLS * DIM


@triton.jit
def _ones(x):
    """How many bits of each uint32 are set."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def _list_items(words, first, found, SEGMENT: tl.constexpr):
    """Write the items of all set bits to `found`; how many there are."""
    counts = _ones(words)
    places = tl.cumsum(counts, 0) - counts
    numbers = first + tl.arange(0, SEGMENT)
    starts = numbers // 4 * 128 + numbers % 4 * 2
    for _ in range(tl.max(counts, 0)):
        others = words & (words - 1)
        bit = _ones((words ^ others) - 1)  # the place of the lowest
        tl.store(found + places, starts + bit // 2 * 8 + bit % 2, mask=words != 0)
        places += 1
        words = others
    return tl.sum(counts, 0)


@triton.jit
def _distances(
    query, others,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, LEVELS: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Of a query to the rows of others, in float64. Neighbours are added first: `cuda_operands`
    stores the dimensions so that this is the sum by halves of `space`, bit for bit."""
    if SQUARED:
        terms = query[None, :] - others
        terms = terms * terms
    else:
        terms = -(query[None, :] * others)
    for level in tl.static_range(LEVELS):
        terms = tl.sum(tl.reshape(terms, (ROWS, WIDTH >> (level + 1), 2)), 2)
    return tl.reshape(terms, (ROWS,))


@triton.jit
def _buckets(distances, exact, thresholds, ROWS: tl.constexpr, STEP: tl.constexpr):
    """How many of the thresholds are below each distance."""
    buckets = tl.zeros((ROWS,), tl.int32)
    for first in range(0, thresholds, STEP):
        which = first + tl.arange(0, STEP)
        values = tl.load(exact + which, mask=which < thresholds, other=float("inf"))
        buckets += tl.sum((values[None, :] < distances[:, None]).to(tl.int32), 1)
    return buckets


@triton.jit(do_not_specialize=["words", "rows", "thresholds", "lines"])
def _count(
    near, words, queries, items, steps, exact, table, lists, rows, thresholds, lines,
    WIDTH: tl.constexpr, LEVELS: tl.constexpr, SEGMENT: tl.constexpr, CHUNK: tl.constexpr,
    STEP: tl.constexpr, WORDS: tl.constexpr, SQUARED: tl.constexpr, FRESH: tl.constexpr,
):  # fmt: skip
    found = lists + tl.program_id(0).to(tl.int64) * (SEGMENT * 32)
    dims = tl.arange(0, WIDTH)
    chunk = tl.arange(0, CHUNK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64)
        query = tl.load(queries + at * WIDTH + dims).to(tl.float64)
        for first in range(0, words, SEGMENT):
            places = first + tl.arange(0, SEGMENT)
            bits = tl.load(near + at * WORDS + places, mask=places // 4 < words // 4, other=0)
            total = _list_items(bits.to(tl.uint32, bitcast=True), first, found, SEGMENT)
            tl.debug_barrier()  # the list is written by all threads, and read by all
            for start in range(0, total, CHUNK):
                inside = start + chunk < total
                item = tl.load(found + start + chunk, mask=inside, other=0)
                others = tl.load(items + item.to(tl.int64)[:, None] * WIDTH + dims[None, :])
                distances = _distances(
                    query, others.to(tl.float64), CHUNK, WIDTH, LEVELS, SQUARED
                )  # fmt: skip
                buckets = _buckets(distances, exact + at * thresholds, thresholds, CHUNK, STEP)
                inside = inside & (buckets < thresholds)
                line = tl.load(steps + item, mask=inside, other=0)
                cell = table + at * lines * thresholds + buckets
                if FRESH:
                    tl.atomic_add(cell + line * thresholds, 1, mask=inside, sem="relaxed")
                else:
                    tl.atomic_add(cell + line * thresholds, -1, mask=inside, sem="relaxed")
                    tl.atomic_add(cell + (lines - 1) * thresholds, 1, mask=inside, sem="relaxed")
            tl.debug_barrier()  # nobody writes the next list while one reads this


def count_near(
    queries: QueryOperand,
    exact: Tensor,
    items: ItemOperand,
    table: Tensor,
    fresh: bool,
    tiling: Tiling | None = None,
) -> None:
    """Count the items up to the farthest threshold of each query: see `cuda_plain.count_near`."""
    tiling = tiling or choose_tiling(items.halves.shape[1], _shared_memory(table.device))
    with torch.cuda.device_of(table):  # type: ignore[no-untyped-call]
        for start in range(0, len(items), SPAN):
            bits = near_bits(queries, items, start, tiling)
            count_bits(queries, exact, items, start, bits, table, fresh)


def choose_tiling(terms: int, shared: int) -> Tiling:
    """The largest tiling that the shared memory of a block, in bytes, has room for.

    >>> choose_tiling(256, 232_448), choose_tiling(256, 101_376)
    (Tiling(rows=256, warps=16, stages=3), Tiling(rows=64, warps=4, stages=2))
    """
    fitting = (tiling for tiling in TILINGS if tiling.bytes(terms) <= shared)
    return next(fitting, TILINGS[-1])


def near_bits(queries: QueryOperand, items: ItemOperand, start: int, tiling: Tiling) -> Tensor:
    """A bit for each product of a span that is not surely beyond the limit, (Q', words), int32.

    Behind a span that is shorter than others there are words that nobody writes or reads.
    """
    size = _span_size(items, start)
    terms, turn = items.halves.shape[1], start // PASS
    blocks = len(queries.halves) // tiling.rows
    shape = len(queries.halves), SPAN // 32
    bits = torch.empty(shape, dtype=torch.int32, device=items.exact.device)
    _find[(blocks * -(-size // PASS),)](
        queries.halves, queries.limits, queries.by_norm, queries.by_residual,
        items.halves[start:], items.offsets[start:], items.norms[turn:], items.residuals[turn:],
        bits, items.unit, items.by_square, size // _TILE, blocks,
        DIM=terms, SLICE=tiling.slice(terms), ROWS=tiling.rows, COLS=_TILE, TILES=PASS // _TILE,
        WORDS=SPAN // 32, STAGES=tiling.stages, num_warps=tiling.warps,
    )  # fmt: skip
    return bits


def count_bits(
    queries: QueryOperand,
    exact: Tensor,
    items: ItemOperand,
    start: int,
    bits: Tensor,
    table: Tensor,
    fresh: bool,
) -> None:
    """Add the items of set bits of a span to the tables, by their distances in float64."""
    programs = min(_PROGRAMS, len(queries))
    lists = torch.empty((programs, _SEGMENT * 32), dtype=torch.int32, device=bits.device)
    width, words = queries.exact.shape[1], _span_size(items, start) // 32
    _count[(programs,)](
        bits, words, queries.exact, items.exact[start:], items.steps[start:], exact, table,
        lists, len(queries), exact.shape[1], table.shape[1],
        WIDTH=width, LEVELS=width.bit_length() - 1, SEGMENT=_SEGMENT, CHUNK=_CHUNK,
        STEP=_THRESHOLDS, WORDS=SPAN // 32, SQUARED=queries.squared, FRESH=fresh, num_warps=4,
        enable_fp_fusion=False,  # a fused square would be rounded once, and those of a CPU twice
    )  # fmt: skip


def _span_size(items: ItemOperand, start: int) -> int:
    return min(SPAN, len(items.halves) - start)


@cache
def _shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a block may have; no bound where kernels are interpreted."""
    if device.type != "cuda":
        return 1 << 62
    index = torch.cuda.current_device() if device.index is None else device.index
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])
