"""python -m benchmarks.curve_speed

A whole backfilling curve, exact, against its two ends, against the distance products alone and
against the way the authors' evaluator works: same run, same threads.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.galleries import MadeGallery, make_gallery
from benchmarks.shared.sections import write_section
from benchmarks.shared.timing import fastest
from fastfill.features import pairwise
from fastfill.metrics import as_metrics
from fastfill.metrics.cpu import thread_count

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

ITEMS, PER_CLASS, POINTS = 10_000, 101, 22  # 100 relevant items a query
METRICS = as_metrics("cmc@1,cmc@5,map")
SAMPLE = 40  # queries of the authors' way, which would take hours on all


def main() -> None:
    """Measure, compare and write the section."""
    made = make_gallery(ITEMS, PER_CLASS)
    made.curve(2, METRICS)  # compiles
    products, ends, whole = fastest(
        made.two_products,
        lambda: made.curve(2, METRICS),
        lambda: made.curve(POINTS, METRICS),
    )
    began = time.perf_counter()
    expected, queries = authors_way(made)
    authors = (time.perf_counter() - began) * ITEMS / SAMPLE
    scores = made.curve(POINTS, METRICS)
    apart = max(
        float(np.abs(scores.values[name][queries].mean(axis=0) - values.mean(axis=0)).max())
        for name, values in expected.items()
    )
    body = f"""
| | seconds | against the whole curve |
| --- | --- | --- |
| whole curve, {POINTS} fractions | {whole:.2f} | 1 |
| 2 fractions | {ends:.2f} | curve = {whole / ends:.2f} × |
| two distance products alone | {products:.2f} | curve = {whole / products:.2f} × |
| the authors' way | {authors:,.0f} | {authors / whole:,.0f} × slower |

{ITEMS:,} queries × {ITEMS:,} items × 128, {PER_CLASS - 1} relevant items a query; {thread_count()}
threads; cmc@1, cmc@5 and map. Largest difference of any point to the authors' way:
{apart:.1e}. That way was measured on {SAMPLE} queries and scaled.
"""
    write_section("A whole curve in one pass", "python -m benchmarks.curve_speed", body)


def authors_way(made: MadeGallery) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
    """Distances, argsort and scikit-learn's AP for each query and fraction: (queries, points)."""
    from sklearn.metrics import average_precision_score

    queries = np.random.default_rng(1).choice(ITEMS, SAMPLE, replace=False)
    values = {metric.name: np.zeros((SAMPLE, POINTS)) for metric in METRICS}
    for point, count in enumerate(made.counts(POINTS)):
        gallery = made.aligned.copy()
        gallery[made.positions[:count]] = made.new[made.positions[:count]]
        table = pairwise(made.new[queries], gallery, "l2")
        for row, query in enumerate(queries):
            others = np.arange(ITEMS) != query
            distances = table[row][others]
            right = made.labels[others] == made.labels[query]
            # among ties the wrong ones first, as in fastfill.metrics: a tenth dearer than argsort
            ranked = right[np.lexsort([right, distances])]
            values["cmc@1"][row, point] = ranked[:1].any()
            values["cmc@5"][row, point] = ranked[:5].any()
            values["map"][row, point] = average_precision_score(right, -distances)
    return values, queries


if __name__ == "__main__":
    main()
