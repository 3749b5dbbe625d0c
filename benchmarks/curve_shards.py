"""PYTHONPATH=src python3 -m benchmarks.curve_shards [--seconds 100] [--json FILE]

An exact curve of a gallery in shards on one GPU, 1,000,000 queries × 10,000,000 items × 256: the
time, what it goes to, and the share of the matrix products alone. Needs CUDA, torch with Triton
and NumPy, nothing else. Data are made on the device. A first block is measured; where the whole
would take longer than `--seconds`, fewer queries are asked, and the rest is extrapolated.

`--dry` runs a toy on a CPU and writes nothing. `--report` writes the section of what another
machine has measured and kept in FILE.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.shared.device_clock import DeviceClock
from benchmarks.shared.galleries import make_gallery
from benchmarks.shared.made_shards import MadeShards, worst_difference
from benchmarks.shared.paths import DATA
from benchmarks.shared.sections import machine, write_section
from benchmarks.shared.timed_count import (
    TILINGS,
    Cut,
    TimedCount,
    choose_tiling,
    products,
    right_tilings,
)
from fastfill.features import Ints
from fastfill.metrics import QueryScores, as_metrics
from fastfill.metrics.cuda import torch_scores
from fastfill.metrics.cuda_counting import QUERIES, GalleryRows, NearCurve
from fastfill.metrics.cuda_device import full_precision
from fastfill.metrics.cuda_operands import SPAN, item_operand, query_operand
from fastfill.metrics.cuda_plain import near_pairs
from fastfill.metrics.cuda_streaming import near_scores
from fastfill.metrics.space import make_space
from fastfill.metrics.stages import Stages

NEEDS_GPU = True
NEEDS_DATA: tuple[str, ...] = ()

METRICS = as_metrics("map,cmc@1,cmc@10")
COMMAND = "PYTHONPATH=src python3 -m benchmarks.curve_shards"

Results = dict[str, Any]


def main() -> None:
    """Measure and report, or report what was measured elsewhere."""
    given = parse()
    if given.report:
        results = json.loads(given.json.read_text())
    else:
        with full_precision(), torch.inference_mode():
            made = make(given)
            results, scores = measure(given, made)
            print(json.dumps(results), flush=True)  # a check may fail
            results["worst_difference"] = worst_difference(made, scores)
    if given.dry:
        print(body(results))
        return
    given.json.write_text(json.dumps(results, indent=1) + "\n")
    write_section("An exact curve over shards on a GPU", COMMAND, body(results), results["where"])


def parse() -> argparse.Namespace:
    """The options; a toy has sizes of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000_000, help="and classes")
    parser.add_argument("--items-per-class", type=int, default=10, help="and shards")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--points", type=int, default=11, help="fractions of the curve")
    parser.add_argument("--seconds", type=float, default=100.0, help="most that counting may take")
    parser.add_argument("--json", type=Path, default=DATA / "curve_shards.json", metavar="FILE")
    parser.add_argument("--tiling", metavar="ROWS,WARPS,STAGES", help="this one alone")
    parser.add_argument("--dry", action="store_true", help="a toy on a CPU")
    parser.add_argument("--report", action="store_true", help="report what is in FILE")
    given = parser.parse_args()
    given.part, given.device, given.tilings = QUERIES, "cuda", TILINGS
    if given.tiling:
        given.tilings = (tuple(int(number) for number in given.tiling.split(",")),)
    if given.dry:
        given.queries, given.dim, given.part, given.device = 1000, 64, 256, "cpu"
    return given


def make(given: argparse.Namespace) -> MadeShards:
    """The gallery."""
    classes, copies, device = given.queries, given.items_per_class, torch.device(given.device)
    return MadeShards(classes, copies, given.dim, given.points, given.part, device)


def measure(given: argparse.Namespace, made: MadeShards) -> tuple[Results, QueryScores]:
    """The whole curve, or that of as many queries as there is time for."""
    device = made.device
    clock = DeviceClock(device)
    began = clock.now()
    tilings = right_tilings(device, given.dim, given.tilings)
    say(f"kernels that count like plain torch: {tilings}", began)
    difference = public_difference(device, given.dim)
    say(f"the public path differs from the one without kernels by {difference:.1e}", began)
    count = TimedCount(clock, tilings[0])
    curve = NearCurve(made.space, made.relevance, given.points, METRICS, count)
    walls = {"thresholds": ask(curve, made, clock)}
    say(f"thresholds of {given.queries:,} queries: {walls['thresholds']:.1f} s", began)
    results = {"where": machine(), "public_difference": difference, **sizes(made)}
    results |= prepare(curve, made, count, tilings, given.seconds)
    say(f"the whole will take {results['predicted_seconds']:.1f} s", began)
    walls |= show_all(curve, made, clock, given.seconds)
    seconds = clock.seconds()
    start = clock.now()
    values = [curve.scores(block).cpu().numpy() for block in curve.blocks]
    walls["scores"] = clock.now() - start
    say(f"counted in {walls['counting']:.1f} s", began)
    named = dict(zip([m.name for m in METRICS], np.concatenate(values, axis=1), strict=True))
    asked = named["map"].shape[0]
    total = walls["thresholds"] + walls["counting"] - seconds["products alone"] + walls["scores"]
    results |= {
        "asked": asked,
        "pairs": count.pairs,
        "walls": walls,
        "seconds": seconds,
        "total_seconds": total,
        "products_alone_seconds": count.products_alone(),
        "share_of_products": count.products_alone() / total,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0,
        "means": {name: value.mean(axis=0).tolist() for name, value in named.items()},
    }
    return results, QueryScores(np.arange(asked), 0, named)


def public_difference(device: torch.device, dim: int) -> float:
    """Between scores of a gallery in the host's memory by near pairs, and by all of them."""
    small = make_gallery(2000 if device.type == "cpu" else 40_000, 10, dim)
    space = make_space(small.new[::2], small.aligned, small.new, "l2")
    stages = Stages(small.positions, small.counts(5))
    relevance = small.relevance.take(np.arange(0, len(small.new), 2))
    kept = np.flatnonzero(relevance.counts)
    near = near_scores(space, stages, relevance, kept, METRICS, device)
    every = torch_scores(space, stages, relevance, kept, METRICS, str(device))
    return float(np.abs(near - every).max())


def say(what: str, began: float) -> None:
    """A line of progress."""
    print(f"{time.perf_counter() - began:6.1f} s: {what}", flush=True)


def sizes(made: MadeShards) -> Results:
    """What is measured."""
    return {
        "queries": made.classes,
        "items": len(made),
        "dim": made.dim,
        "relevant": made.copies,
        "points": made.stages,
        "shards": made.copies,
    }


def ask(curve: NearCurve, made: MadeShards, clock: DeviceClock) -> float:
    """Make all queries and find their thresholds; the seconds, without those of making."""
    making = 0.0
    began = clock.now()
    for part in made.parts:
        start = clock.now()
        queries, known = made.queries(part), made.relevant(part)
        making += clock.now() - start
        curve.ask(made.rows(part), queries, partial(given_rows, known))
    return clock.now() - began - making


def given_rows(known: GalleryRows, rows: Ints) -> GalleryRows:
    """What was made already, if it is what is asked for."""
    if len(known) != len(rows):
        raise ValueError(f"{len(known):,} rows were made, and {len(rows):,} are asked for.")
    return known


def prepare(
    curve: NearCurve,
    made: MadeShards,
    count: TimedCount,
    tilings: tuple[Cut, ...],
    budget: float,
) -> Results:
    """Choose a tiling, measure a first block, and keep as many queries as there is time for."""
    block, shard = curve.blocks[0], made.shard(0)
    span = shard.before[:SPAN], shard.steps[:SPAN]
    items = item_operand(made.space, *span)
    count.tiling, tried = choose_tiling(block.operand, items, tilings)
    products(block.operand, items)  # the library starts
    trial = TimedCount(DeviceClock(made.device), count.tiling, calls=1)  # without a probe
    start = trial.clock.now()
    trial(block.operand, block.thresholds.exact, items, block.table.clone(), False)
    seconds = trial.clock.now() - start
    predicted = seconds * len(curve.blocks) * 2 * len(made) / len(items)
    keep_blocks(curve, budget / predicted)
    few = query_operand(made.space, made.queries(0)[:256], farthest(block.thresholds.exact[:256]))
    near = float(near_pairs(few, items, slice(0, len(items))).double().mean())
    if made.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(made.device)
    return {
        "tiling": count.tiling,
        "tilings_ms": tried,
        "first_block_seconds": seconds,
        "predicted_seconds": predicted,
        "near_share": near,
    }


def farthest(exact: torch.Tensor) -> torch.Tensor:
    """The largest finite threshold of each query."""
    return exact.where(exact.isfinite(), -torch.inf).amax(dim=1)


def keep_blocks(curve: NearCurve, share: float) -> None:
    """Drop queries, if only a share of them can be answered in time."""
    kept = max(1, int(len(curve.blocks) * share))
    if kept < len(curve.blocks):
        print(f"keeping {kept} of {len(curve.blocks)} blocks of queries", flush=True)
        del curve.blocks[kept:]


def show_all(
    curve: NearCurve, made: MadeShards, clock: DeviceClock, budget: float
) -> dict[str, float]:
    """Make shard after shard and count it; the seconds of both."""
    making = counting = 0.0
    for copy in range(made.copies):
        start = clock.now()
        shard = made.shard(copy)
        middle = clock.now()
        curve.show(shard)
        making += middle - start
        counting += clock.now() - middle
        print(f"shard {copy + 1} of {made.copies}: {counting:.1f} s", flush=True)
        left = counting / (copy + 1) * (made.copies - copy - 1)
        if left and counting + left > 1.2 * budget:  # the first block was faster than the others
            keep_blocks(curve, max(0.0, budget - counting) / left)
    return {"making data": making, "counting": counting}


def body(results: Results) -> str:
    """The section."""
    whole = 2.0 * results["queries"] * results["items"]
    share = results["pairs"] / whole
    seconds, walls = results["seconds"], results["walls"]
    total, alone = results["total_seconds"], results["products_alone_seconds"]
    steps = {
        "half-precision products, compared": seconds["products and bits"],
        "float64 distances of near pairs": seconds.get("distances in float64", 0.0),
        "preparing shards": walls["counting"] - sum(seconds.values()),
        "thresholds": walls["thresholds"],
        "scores": walls["scores"],
    }
    rows = "\n".join(f"| {name} | {value:.2f} |" for name, value in steps.items())
    flops = 2 * results["dim"] * results["pairs"]
    measured = "measured to the end"
    if share < 1:
        measured = (
            f"measured on {100 * share:.0f} % of the products, {results['asked']:,} queries to "
            f"the end; extrapolated to all: {total / share:.0f} s"
        )
    ends = ", ".join(
        f"{name} {values[0]:.4f} → {values[-1]:.4f}" for name, values in results["means"].items()
    )
    return f"""
{results["queries"]:,} queries × {results["items"]:,} items × {results["dim"]},
{results["relevant"]} relevant items a query, l2, {results["points"]} fractions, in
{results["shards"]} shards: **{total:.1f} s** ({measured}). The same products alone, by the vendor's
library in the same precision and the same run: {alone:.1f} s
({flops / alone / 1e12:.0f} TFLOP/s), **{100 * alone / total:.0f} %** of it.

| step | s |
| --- | --- |
{rows}

Data are made on the device, shard by shard, which is not counted ({walls["making data"]:.1f} s).
Peak memory of the device: {results["peak_gib"]:.1f} GiB. Near pairs:
{100 * results["near_share"]:.3f} %. {ends}. Largest difference to an obvious
computation in float64, 20 queries at 3 fractions: {results["worst_difference"]:.1e}.
Of a gallery in the host's memory, to counting without near pairs:
{results["public_difference"]:.1e}.
"""


if __name__ == "__main__":
    main()
