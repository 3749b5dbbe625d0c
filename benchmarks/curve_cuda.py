"""PYTHONPATH=src python -m benchmarks.curve_cuda

A backfilling curve at the size of ImageNet's validation set on one GPU. Needs torch and NumPy only.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from benchmarks.shared.galleries import MadeGallery, make_gallery
from benchmarks.shared.sections import write_section
from fastfill.features import pairwise
from fastfill.metrics import QueryScores, Relevance, as_metrics

NEEDS_GPU = True
NEEDS_DATA: tuple[str, ...] = ()

ITEMS, PER_CLASS, POINTS = 50_000, 50, 21
METRICS = as_metrics("cmc@1,cmc@5,map")


def main() -> None:
    """Time the curve twice, the first time with the start of CUDA, and check some queries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    made = make_gallery(options.items, PER_CLASS)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        scores = made.curve(POINTS, METRICS, options.device)
        times.append(time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() / (1 << 30) if torch.cuda.is_available() else 0.0
    body = f"""
{options.items:,} queries × {options.items:,} items × 128, {PER_CLASS - 1} relevant items a query,
{POINTS} fractions, cmc@1, cmc@5 and map: **{min(times):.2f} s** (first run, with the start of
CUDA: {times[0]:.2f} s), copies to the device included. Peak memory of the device:
{peak:.1f} GiB. Largest difference to an obvious computation, 20 queries at 3 fractions:
{worst_difference(made, scores):.1e}.
"""
    write_section("A curve on a GPU", "PYTHONPATH=src python -m benchmarks.curve_cuda", body)


def worst_difference(made: MadeGallery, scores: QueryScores) -> float:
    """Against distances, counted one query and one fraction at a time."""
    relevance: Relevance = made.relevance
    worst = 0.0
    for point in (0, POINTS // 3, POINTS - 1):
        gallery = made.aligned.copy()
        done = made.positions[: made.counts(POINTS)[point]]
        gallery[done] = made.new[done]
        for query in range(0, len(made.new), len(made.new) // 20):
            row = pairwise(made.new[query : query + 1], gallery, "l2")[0]
            row[query] = np.inf
            answers = np.sort(row[relevance.of(query)])
            everything = np.searchsorted(np.sort(row), answers, side="right")
            relevant = np.searchsorted(answers, answers, side="right")
            first = 1 + everything[0] - relevant[0]
            expected = {
                "map": (relevant / everything).mean(),
                "cmc@1": float(first <= 1),
                "cmc@5": float(first <= 5),
            }
            for name, value in expected.items():
                worst = max(worst, abs(float(scores.values[name][query, point]) - value))
    return worst


if __name__ == "__main__":
    main()
