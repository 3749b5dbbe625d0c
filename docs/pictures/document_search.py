"""python docs/pictures/document_search.py

Draws the curves of a document search from the results of `python -m benchmarks.text_search`: one
upgrade (wordllama replaced by minilm), the mean over all judged sets, each way to serve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfill.evaluate import Curve
from fastfill.report import curves_figure, save

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "text_search.json"
UPGRADE, PAIRS = "wordllama → minilm", "5 %"
METRICS = ("ndcg@10", "recall@10")
DRAWN = ("auto", "both", "aligned")  # the old search is a level: it does not change


def main() -> None:
    """Average the curves of the sets and draw them."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]
    runs = [run for key, run in kept.items() if f"| {UPGRADE} | {PAIRS} |" in key]
    curves = [mean_curve(runs, metric, way) for metric in METRICS for way in DRAWN]
    levels = {metric: levels_of(runs, metric) for metric in METRICS}
    save(curves_figure(curves, levels), HERE / "document-search", kinds=("svg",))


def mean_curve(runs: Sequence[Mapping[str, Any]], metric: str, way: str) -> Curve:
    """The mean over the runs, which are in per cent at evenly spaced fractions."""
    values = np.mean([run["curves"][metric][way] for run in runs], axis=0) / 100
    return Curve(metric, np.linspace(0, 1, len(values)), values, name=way)


def levels_of(runs: Sequence[Mapping[str, Any]], metric: str) -> dict[str, float]:
    """Each model alone: the new one when all is new, the old one on the old vectors."""
    ends = {"new/new": "aligned", "old/old": "old"}
    return {name: mean_curve(runs, metric, way).end for name, way in ends.items()}


if __name__ == "__main__":
    main()
