"""The laboratory's tables as Markdown, beside the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastfill.lab.published_tables import KENDALL, PublishedTable, published_for
from fastfill.lab.results import ExperimentResults
from fastfill.report import Estimate, percent, points, title

ENDS = ("old/old", "new/new")
_GAP = ("cmc@1", "map")


def rows_of(results: ExperimentResults, test: str) -> list[str]:
    """The rows of a table: the systems between the two models alone."""
    return [ENDS[0], *results.systems(test), ENDS[1]]


def main_table(results: ExperimentResults, test: str) -> str:
    """M̃ of every system: mean ± deviation over the seeds, lead, gap closed, published figures."""
    metrics = results.experiment.shows
    beside = published_for(results.experiment.name, results.tests.index(test))
    gaps = [m for m in metrics if m in _GAP and results.baseline(test) is not None]
    leads = [m for m in metrics if m in _GAP and results.fastfill(test) is not None]
    heads = ["system", *(title(m) for m in metrics), "mAP at 0 %" if "map" in metrics else ""]
    heads += [f"gap closed, {title(m)}" for m in gaps]
    heads += [f"FastFill leads, {title(m)}" for m in leads]
    heads += [f"{p.data} ({p.source})" for p in beside] + ["may use"]
    lines = []
    for name in rows_of(results, test):
        best = [_best(results, test, metric) == name for metric in metrics]
        cells = [name]
        for metric, bold in zip(metrics, best, strict=True):
            text = str(Estimate.of(results.areas(test, name, metric)))
            cells.append(f"**{text}**" if bold else text)
        at_zero = "–" if name in ENDS else str(Estimate.of(results.starts(test, name, "map")))
        cells.append(at_zero if "map" in metrics else "")
        cells += [_share(results, test, name, metric) for metric in gaps]
        cells += [_lead(results, test, name, metric) for metric in leads]
        cells += [_published(p, name, metrics) for p in beside]
        cells.append("" if name in ENDS else results.uses(test, name))
        lines.append(cells)
    return table(heads, lines)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns without a head are left out.

    >>> print(table(["a", "", "b"], [["x|y", "z", "1"]]))
    | a | b |
    | :-- | --: |
    | x\\|y | 1 |
    """
    shown = [column for column, head in enumerate(heads) if head]
    lines = [[heads[c] for c in shown], [":--", *("--:" for _ in shown[1:])]]
    lines += [[row[c].replace("|", "\\|") for c in shown] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _best(results: ExperimentResults, test: str, metric: str) -> str:
    """The best of the systems that can be run: an oracle cannot."""
    fair = [name for name in results.systems(test) if "cheating" not in results.uses(test, name)]
    return max(fair, key=lambda name: sum(results.areas(test, name, metric)))


def _share(results: ExperimentResults, test: str, name: str, metric: str) -> str:
    if name in ENDS or name == results.baseline(test):
        return {"old/old": "", "new/new": "100"}.get(name, "0")
    return str(results.closed(test, name, metric))


def _lead(results: ExperimentResults, test: str, name: str, metric: str) -> str:
    """'+3.10 (3/3)': points, and in how many of the seeds the queries say so significantly."""
    leads, significant = results.leads(test, name, metric)
    if not leads:
        return ""
    return f"{points(sum(leads) / len(leads))} ({significant}/{len(leads)})"


def _published(source: PublishedTable, name: str, metrics: Sequence[str]) -> str:
    row = source.rows.get(name)
    if row is None:
        return ""
    return " / ".join(f"{row[metric]:.1f}" for metric in metrics if metric in row)


def kendall_table(results: ExperimentResults, test: str) -> str:
    """τ of σ² with each true loss, σ² trained on the loss of the row; the paper's in brackets."""
    measured = [result["tests"][test]["kendall"] for result in results.per_seed]
    losses = list(next(iter(measured[0].values())))
    rows = []
    for system in measured[0]:
        cells = [system]
        for loss in losses:
            mean = sum(taus[system][loss] for taus in measured) / len(measured)
            paper = KENDALL.get(system, {}).get(loss)
            cells.append(f"{mean:.2f}" + (f" ({paper:.2f})" if paper is not None else ""))
        rows.append(cells)
    return table(["σ² trained on", *(f"τ with {loss}" for loss in losses)], rows)


def group_table(results: ExperimentResults, test: str) -> str:
    """Top-1 of both groups and the gap: the two models, and each system along the curve."""
    measured = [result["tests"][test]["groups"] for result in results.per_seed]
    rows = []
    for model in ("old", "new"):
        top1 = [groups["plain"][model] for groups in measured]
        sides = [Estimate.of(one[side] for one in top1) for side in ("majority", "minority")]
        gap = Estimate.of(one["majority"] - one["minority"] for one in top1)
        rows.append([f"{model}/{model}", str(sides[0]), str(sides[1]), str(gap), "", "", ""])
    for system in results.systems(test):
        per_seed = [groups[system] for groups in measured]
        starts = [
            str(Estimate.of(one["top1"][side][0] for one in per_seed))
            for side in ("majority", "minority")
        ]
        quarter = _quarter(results, test, system)
        gaps = [str(Estimate.of(one["gap"][at] for one in per_seed)) for at in (0, quarter)]
        served = Estimate.of(one["served"]["minority"][quarter] for one in per_seed)
        rows.append([system, *starts, *gaps, gap_reached(results, test, system), str(served)])
    heads = ["system", "majority at 0 %", "minority at 0 %", "gap at 0 %", "gap at 25 %",
             "gap of the new model reached at", "minority served at 25 %"]  # fmt: skip
    return table(heads, rows)


def _quarter(results: ExperimentResults, test: str, system: str) -> int:
    """The point of the curve at 25 %."""
    fractions = results.curve(results.per_seed[0], test, system, "cmc@1").fractions
    return int(abs(fractions - 0.25).argmin())


def gap_reached(results: ExperimentResults, test: str, system: str) -> str:
    """The fraction at which the gap between the groups is first that of the new model."""
    groups = [result["tests"][test]["groups"] for result in results.per_seed]
    per_seed = [gap_fraction(measured, system) for measured in groups]
    reached = [at for at in per_seed if at is not None]
    mean = sum(reached) / len(reached) if reached else 0.0
    return f"{percent(mean)} %" if len(reached) == len(per_seed) else "never"


def gap_fraction(groups: dict[str, Any], system: str) -> float | None:
    """The first fraction at which the gap is at most half a point above the new model's."""
    new, gaps = groups["plain"]["new"], groups[system]["gap"]
    allowed = abs(new["majority"] - new["minority"]) + 0.005
    first = next((at for at, gap in enumerate(gaps) if gap <= allowed), None)
    return None if first is None else first / (len(gaps) - 1)
