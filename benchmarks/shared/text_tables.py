"""Tables of document search from the summaries of runs, all in per cent of odd-numbered queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.text_runs import CLASSES, POINTS, Played, Run

Summary = Mapping[str, Any]  # of a run: `summarise`
WAYS = ("old", "aligned", "both", "auto")
SHOWN = (0, 2, 5, 10, 15, 20)  # of 21 points: 0, 10, 25, 50, 75, 100 %
NEAR = 0.5  # points below the old search that count as no loss


def summarise(played: Played) -> dict[str, Any]:
    """What results keep of a run: the curves of odd-numbered queries and what was chosen."""
    return {
        "queries": int(played.odd.sum()),
        "choices": "".join(way[0] for way in played.served),  # o, a, b at each point
        "errors": np.round(played.errors(), 2).tolist(),
        "lost": np.round(played.lost(), 2).tolist(),
        "curves": {
            metric: {way: np.round(v, 2).tolist() for way, v in played.curves(metric).items()}
            for metric in played.metrics
        },
    }


def main_curves(summary: Summary) -> dict[str, NDArray[np.float64]]:
    """The curves of the first metric, which also decides, (f,) by way."""
    first = next(iter(summary["curves"].values()))
    return {way: np.asarray(values) for way, values in first.items()}


def area(curve: NDArray[np.float64]) -> float:
    """The mean height of a curve of evenly spaced points."""
    return float(np.trapezoid(curve) / (len(curve) - 1))


def mean_of(summaries: Sequence[Summary]) -> dict[str, NDArray[np.float64]]:
    """The mean curves of several runs, (f,) by way."""
    curves = [main_curves(summary) for summary in summaries]
    return {way: np.mean([one[way] for one in curves], axis=0) for way in WAYS}


def is_downgrade(summary: Summary) -> bool:
    """Is the new model, all of the gallery new, worse than the old one?"""
    curves = main_curves(summary)
    return bool(curves["aligned"][-1] < curves["old"][-1])


# --- each encoder alone --------------------------------------------------------------------------


def encoder_table(scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """A row for each encoder, a column for each set: nDCG@10 / recall@10 / recall@100 / MRR@10."""
    encoders = next(iter(scores.values()))
    rows = []
    for encoder in encoders:
        cells = [" / ".join(f"{v:.1f}" for v in each[encoder].values()) for each in scores.values()]
        rows.append([encoder, *cells])
    return markdown(["nDCG@10 / recall@10 / recall@100 / MRR@10", *scores], rows)


def downgrades(
    scores: Mapping[str, Mapping[str, Mapping[str, float]]], upgrades: Iterable[tuple[str, ...]]
) -> list[str]:
    """`set: old → new` where the new model is worse in the first metric, and by how much."""
    listed = []
    for name, each in scores.items():
        for old, new in upgrades:
            lost = [next(iter(each[model].values())) for model in (old, new)]
            if lost[1] < lost[0]:
                listed.append(f"{name}: {old} → {new} ({lost[1] - lost[0]:+.1f})")
    return listed


# --- along a backfill ----------------------------------------------------------------------------


def mean_table(runs: Mapping[Run, Summary]) -> str:
    """Means over all upgrades that gain, and over those that lose: a row for each way."""
    rows = []
    kinds = {"upgrades": False, "down-grades": True}
    for kind, worse in kinds.items():
        chosen = [each for each in runs.values() if is_downgrade(each) == worse]
        rows += _rows(f"{kind}, {len(chosen)} runs", mean_of(chosen)) if chosen else []
    return _along(rows)


def upgrade_table(runs: Mapping[Run, Summary]) -> str:
    """A row for each set, upgrade and way to serve, means over the samples."""
    rows = []
    for (name, models), samples in _by_upgrade(runs).items():
        rows += _rows(f"{name}: {' → '.join(models)}", mean_of(samples))
    return _along(rows)


def _by_upgrade(
    runs: Mapping[Run, Summary],
) -> dict[tuple[str, tuple[str, ...]], list[Summary]]:
    """The samples of each set and upgrade."""
    samples: dict[tuple[str, tuple[str, ...]], list[Summary]] = {}
    for run, each in runs.items():
        samples.setdefault((run.name, run.models), []).append(each)
    return samples


def _worst(samples: Sequence[Summary]) -> float:
    """Of one upgrade, in the mean over its samples: the lowest point against the old search."""
    curves = mean_of(samples)
    return float((curves["auto"] - curves["old"]).min())


def _rows(what: str, curves: Mapping[str, NDArray[np.float64]]) -> list[list[str]]:
    rows = []
    for way in WAYS:
        curve = curves[way]
        worst = float((curve - curves["old"]).min())
        points = [f"{curve[p]:.1f}" for p in SHOWN]
        rows.append([what, way, *points, f"{area(curve):.1f}", f"{worst:+.1f}"])
    return rows


def _along(rows: list[list[str]]) -> str:
    head = [f"{100 * p // (POINTS - 1)} %" for p in SHOWN]
    return markdown(["", "serving", *head, "area", "worst against old"], rows)


# --- checks --------------------------------------------------------------------------------------


def check_table(runs: Mapping[Run, Summary]) -> str:
    """What `auto` promises, and how often it holds: a row for each set."""
    names = dict.fromkeys(run.name for run in runs)
    rows = []
    for name in names:
        rows.append(_checks(name, {run: each for run, each in runs.items() if run.name == name}))
    judged = {run: each for run, each in runs.items() if run.name not in CLASSES}
    if judged and len(names) > 1:
        rows.append(_checks("all judged sets", judged))
    head = [
        "", "runs", f"points not more than {NEAR} below old", "worst point against old",
        "worst in the mean over the samples", "area over the better of aligned and old", "least",
        "best of the three chosen", f"chosen within {NEAR} of the best",
    ]  # fmt: skip
    return markdown(head, rows)


def _checks(name: str, runs: Mapping[Run, Summary]) -> list[str]:
    summaries = list(runs.values())
    curves = [main_curves(summary) for summary in summaries]
    against = np.concatenate([one["auto"] - one["old"] for one in curves])
    error = np.concatenate([each["errors"] for each in summaries])[against.argmin()]
    gained = [area(one["auto"]) - max(area(one["aligned"]), area(one["old"])) for one in curves]
    below = int((against < -NEAR).sum())
    lost = np.concatenate([each["lost"] for each in summaries])
    return [
        name,
        str(len(summaries)),
        f"all but {below} of {len(against):,}",
        f"{against.min():+.1f} ± {error:.1f}",
        f"{min(_worst(upgrade) for upgrade in _by_upgrade(runs).values()):+.1f}",
        f"{np.mean(gained):+.1f}",
        f"{min(gained):+.1f}",
        _percent(lost <= 0),
        _percent(lost <= NEAR),
    ]


def _percent(hits: Any) -> str:
    return f"{100 * float(np.mean(hits)):.0f} %" if len(hits) else "–"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
