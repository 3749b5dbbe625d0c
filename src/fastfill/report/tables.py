"""Tables of curves: for a terminal, as Markdown, and as plain cells for the page and programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from rich.table import Table
from rich.text import Text

from fastfill.evaluate import (
    BUDGETS,
    Comparison,
    Curve,
    Estimate,
    Findings,
    Levels,
    Series,
    metrics_of,
)
from fastfill.evaluate.curves import last_crossing
from fastfill.report.formats import Signs, chance, mark, marks_of, percent, points, title

SHARES = (0.95, 0.99)


@dataclass(frozen=True)
class TableColumn:
    """One number of a curve: how it is called, measured, and which of two is the better."""

    head: str
    measure: Callable[[Curve], float | None]
    sense: int = 1  # +1: more is better, −1: less is better, 0: neither

    def best(self, cells: Sequence[Estimate]) -> set[int]:
        """The rows whose mean is the best one as it is printed; none if all are equal."""
        means = [self.sense * float(percent(c.mean)) if c.seeds else -np.inf for c in cells]
        if not self.sense or len(means) < 2 or max(means) == min(means):
            return set()
        return {row for row, mean in enumerate(means) if mean == max(means)}


def columns(
    budgets: Sequence[float] = BUDGETS,
    shares: Sequence[float] = SHARES,
    whole: float | None = None,
) -> list[TableColumn]:
    """0 %, quality at the budgets, 100 %, both areas, the fraction needed for each share.

    A share is one of `whole`, what the new model gives alone, or of where the curve ends.

    >>> [column.head for column in columns()]
    ['0 %', '5 %', '10 %', '25 %', '100 %', 'area', 'mean', 'to 95 %', 'to 99 %']
    """
    return [
        *(TableColumn(f"{100 * b:g} %", partial(_at, fraction=b)) for b in (0.0, *budgets)),
        TableColumn("100 %", partial(_at, fraction=1.0), sense=0),
        TableColumn("area", lambda curve: curve.area),
        TableColumn("mean", lambda curve: curve.mean),
        *(
            TableColumn(f"to {100 * s:g} %", partial(reached_at, share=s, whole=whole), -1)
            for s in shares
        ),
    ]


def _at(curve: Curve, fraction: float) -> float | None:
    """The value at a fraction, if the curve goes so far."""
    inside = curve.fractions[0] <= fraction <= curve.fractions[-1]
    return curve.at(fraction) if inside else None


def reached_at(curve: Curve, share: float, whole: float | None) -> float | None:
    """From which fraction on a curve has a share of the whole, or of its own end; None: never.

    >>> reached_at(Curve("map", [0, 1], [0.3, 0.3]), 0.95, whole=0.5)
    """
    target = share * (curve.end if whole is None else whole)
    return last_crossing(curve.fractions, curve.values, target)


@dataclass(frozen=True)
class Cell:
    """A number, the sign behind it, and whether it is the best of its column."""

    estimate: Estimate
    best: bool
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.estimate}{self.mark}"


@dataclass(frozen=True)
class Grid:
    """One metric's table, in no particular form yet."""

    metric: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    note: str

    @property
    def title(self) -> str:
        """What the table is about."""
        return f"{title(self.metric)} in %, by backfilled fraction"


def grids(
    curves: Iterable[Curve],
    levels: Levels | None = None,
    marks: Signs | None = None,
    cheating: Collection[str] = (),
    *,
    budgets: Sequence[float] = BUDGETS,
) -> list[Grid]:
    """One grid per metric, a row per name; seeds become mean ± standard deviation.

    Names that are `cheating` cannot be the best of a column: nobody can run them.
    """
    series = Series.group(curves)
    return [
        _grid(
            [one for one in series if one.metric == metric],
            columns(budgets, whole=(levels or {}).get(metric, {}).get("new/new")),
            levels or {},
            marks or {},
            cheating,
        )
        for metric in metrics_of(series)
    ]


def grids_of(findings: Findings) -> list[Grid]:
    """The grids of all that an evaluation found."""
    return grids(findings.curves, findings.levels, marks_of(findings), findings.cheating)


def _grid(
    series: list[Series],
    wanted: list[TableColumn],
    levels: Levels,
    marks: Signs,
    cheating: Collection[str],
) -> Grid:
    metric = series[0].metric
    table: list[list[Cell]] = [[] for _ in series]
    for column in wanted:
        cells = [one.estimate(column.measure) for one in series]
        fair = [row for row, one in enumerate(series) if one.name not in cheating]
        best = {fair[place] for place in column.best([cells[row] for row in fair])}
        for row, (one, cell) in enumerate(zip(series, cells, strict=True)):
            mark = marks.get((metric, one.name), "") if column.head == "area" else ""
            table[row].append(Cell(cell, row in best, mark))
    return Grid(
        metric,
        tuple(column.head for column in wanted),
        tuple((one.name, tuple(row)) for one, row in zip(series, table, strict=True)),
        ", ".join(f"{name} {percent(value)}" for name, value in levels.get(metric, {}).items()),
    )


def rich_tables(grids: Iterable[Grid]) -> list[Table]:
    """For a terminal: the best of each column bold, the spread over seeds of the area alone.

    >>> from rich.console import Console
    >>> some = grids([Curve("map", [0, 0.5, 1], [0.4, 0.6, 0.7], name="sigma")], budgets=[0.25])
    >>> Console(width=70).print(*rich_tables(some))
    mAP in %, by backfilled fraction
     order   0 %  25 %  100 %  area  mean  to 95 %  to 99 %
     sigma  40.0  50.0   70.0  57.5  56.7     82.5     96.5
    """
    return [_rich(grid) for grid in grids]


def _rich(grid: Grid) -> Table:
    table = Table(title=grid.title, caption=grid.note or None, title_justify="left", box=None)
    table.add_column("order", no_wrap=True)
    for head in grid.heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name, cells in grid.rows:
        texts = [
            Text(str(cell) if head == "area" else percent(cell.estimate.mean))
            for head, cell in zip(grid.heads, cells, strict=True)
        ]
        for text, cell in zip(texts, cells, strict=True):
            text.stylize("bold" if cell.best else "")
        table.add_row(Text(name), *texts)
    return table


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """For a terminal: by how much each curve's area differs from the baseline's."""
    baseline, level = comparisons[0].b, comparisons[0].level
    table = Table(title=f"Gain of area over {baseline}, in points", title_justify="left", box=None)
    table.add_column("order", no_wrap=True)
    table.add_column("metric")
    for head in ("gain", f"{100 * level:g} % interval", "p"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in comparisons:
        table.add_row(Text(one.a), title(one.metric), *_gain(one))
    return table


def comparison_markdown(comparisons: Sequence[Comparison]) -> str:
    """The same as a Markdown table.

    >>> one = Comparison("map", "sigma", "random", 0.02, 0.01, 0.03, 0.95, 0.001)
    >>> print(comparison_markdown([one]))
    Gain of area over random, in points (▲ better, ▼ worse: the interval does not hold zero)
    <BLANKLINE>
    | order | metric | gain | 95 % interval | p |
    | :-- | :-- | --: | --: | --: |
    | sigma | mAP | +2.00 ▲ | +1.00 to +3.00 | 0.001 |
    """
    baseline, level = comparisons[0].b, comparisons[0].level
    meaning = "(▲ better, ▼ worse: the interval does not hold zero)"
    lines = [
        f"Gain of area over {_escaped(baseline)}, in points {meaning}",
        "",
        f"| order | metric | gain | {100 * level:g} % interval | p |",
        "| :-- | :-- | --: | --: | --: |",
    ]
    for one in comparisons:
        cells = (_escaped(one.a), title(one.metric), *_gain(one))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _gain(one: Comparison) -> tuple[str, str, str]:
    """Gain with its sign, interval and p."""
    interval = f"{points(one.low)} to {points(one.high)}"
    return points(one.difference) + mark(one), interval, chance(one.p_value)


def markdown(grid: Grid) -> str:
    r"""A grid as a Markdown table, the best of each column bold; names are escaped.

    >>> pair = [Curve("map", [0, 0.5, 1], [0.4, 0.6, 0.7], name="sigma"),
    ...         Curve("map", [0, 0.5, 1], [0.4, 0.5, 0.7], name="random")]
    >>> print(markdown(grids(pair, {"map": {"old/old": 0.3}}, budgets=[0.25])[0]))
    mAP in %, by backfilled fraction (old/old 30.0)
    <BLANKLINE>
    | order | 0 % | 25 % | 100 % | area | mean | to 95 % | to 99 % |
    | :-- | --: | --: | --: | --: | --: | --: | --: |
    | sigma | 40.0 | **50.0** | 70.0 | **57.5** | **56.7** | **82.5** | **96.5** |
    | random | 40.0 | 45.0 | 70.0 | 52.5 | 53.3 | 91.2 | 98.2 |
    """
    lines = [
        grid.title + (f" ({grid.note})" if grid.note else ""),
        "",
        f"| order | {' | '.join(grid.heads)} |",
        f"| :-- | {' | '.join('--:' for _ in grid.heads)} |",
    ]
    for name, cells in grid.rows:
        texts = [f"**{cell.estimate}**{cell.mark}" if cell.best else str(cell) for cell in cells]
        lines.append(f"| {_escaped(name)} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _escaped(name: str) -> str:
    """Signs that Markdown or HTML would act on, made harmless; a name stays on one line."""
    plain = " ".join(name.split()).replace("\\", "\\\\").replace("<", "&lt;")
    for sign in "|*_`[]":
        plain = plain.replace(sign, f"\\{sign}")
    return plain
