"""python -m benchmarks.curve_large

A backfilling curve at the size of ImageNet's validation set, on a CPU: time and peak memory.
"""

from __future__ import annotations

import resource
import time

import numpy as np

from benchmarks.shared.galleries import make_gallery
from benchmarks.shared.sections import write_section
from fastfill.metrics import as_metrics
from fastfill.metrics.cpu import thread_count

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

ITEMS, PER_CLASS, POINTS = 50_000, 50, 21
TURN = 5_000  # queries


def main() -> None:
    """Products and curve in turns, some queries at a time: a busy machine troubles both alike."""
    metrics = as_metrics("cmc@1,cmc@5,map")
    make_gallery(500, 50).curve(2, metrics)  # compiles
    made = make_gallery(ITEMS, PER_CLASS)
    products = whole = 0.0
    values = np.zeros(POINTS)
    for start in range(0, ITEMS, TURN):
        queries = slice(start, start + TURN)
        began = time.perf_counter()
        made.two_products(queries)
        products += time.perf_counter() - began
        began = time.perf_counter()
        scores = made.curve(POINTS, metrics, queries=queries)
        whole += time.perf_counter() - began
        values += scores.values["map"].sum(axis=0) / ITEMS
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)  # KiB on Linux
    body = f"""
{ITEMS:,} queries × {ITEMS:,} items × 128, {PER_CLASS - 1} relevant items a query, {POINTS}
fractions, cmc@1, cmc@5 and map, {thread_count()} threads: **{whole:.1f} s**,
**{whole / products:.2f} ×** the two distance products alone ({products:.1f} s).
Peak memory of the process, data and libraries included: **{peak:.2f} GiB**.
mAP {values[0]:.4f} → {values[-1]:.4f}.
"""
    write_section("A curve at ImageNet's size", "python -m benchmarks.curve_large", body)


if __name__ == "__main__":
    main()
