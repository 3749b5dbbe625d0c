"""Tables: the numbers, the best of a column, the forms."""

from __future__ import annotations

import numpy as np
import pytest
from report_samples import curves
from rich.console import Console

from fastfill.evaluate import Comparison, Curve
from fastfill.report import comparison_table, grids, markdown, rich_tables


def text_of(*shown: object, width: int = 120) -> str:
    """What a terminal would show."""
    console = Console(width=width, file=None, record=True, quiet=False)
    with console.capture() as capture:
        console.print(*shown)
    return capture.get()


def test_cells_are_the_curve_s_own_numbers() -> None:
    """Each column is what the curve itself says."""
    curve = Curve("map", [0, 0.1, 0.2, 0.5, 1], [0.3, 0.4, 0.45, 0.49, 0.5], "sigma")
    (grid,) = grids([curve])
    cells = dict(zip(grid.heads, (cell.estimate.mean for cell in grid.rows[0][1]), strict=True))
    expected = {
        "0 %": curve.start,
        "5 %": curve.at(0.05),
        "10 %": 0.4,
        "25 %": curve.at(0.25),
        "100 %": curve.end,
        "area": curve.area,
        "mean": curve.mean,
        "to 95 %": curve.fraction_at(0.95),
        "to 99 %": curve.fraction_at(0.99),
    }
    assert list(cells) == list(expected)
    np.testing.assert_allclose(list(cells.values()), list(expected.values()), atol=1e-9)


def test_a_level_that_is_lost_again_is_not_reached() -> None:
    """Of what the new model gives alone, the last crossing counts; ending below it is a dash."""
    dips = Curve("map", [0, 0.25, 0.5, 1], [0.2, 0.6, 0.4, 0.6], "dips")
    falls = Curve("map", [0, 0.5, 1], [0.2, 0.6, 0.4], "falls")
    (grid,) = grids([dips, falls], {"map": {"new/new": 0.5}})
    at = grid.heads.index("to 95 %")
    assert [str(cells[at]) for _, cells in grid.rows] == ["68.8", "–"]


def test_a_budget_outside_the_curve_is_a_dash() -> None:
    """A curve that stops early has no value beyond its end."""
    (grid,) = grids([Curve("map", [0, 0.2], [0.3, 0.4], "short")])
    cells = dict(zip(grid.heads, map(str, grid.rows[0][1]), strict=True))
    assert cells["25 %"] == "–"
    assert cells["100 %"] == "–"
    assert cells["10 %"] == "35.0"


def test_the_best_is_bold_and_less_is_better_for_fractions_needed() -> None:
    """The better curve is best in every column that can be won, and equal ends are not."""
    found = grids(curves(seeds=1))
    for grid in found:
        best = {
            head: [name for name, cells in grid.rows if cells[place].best]
            for place, head in enumerate(grid.heads)
        }
        assert best.pop("0 %") == []
        assert best.pop("100 %") == []
        assert set(map(tuple, best.values())) == {("sigma",)}


def test_a_cheating_order_is_never_the_best() -> None:
    """The oracle is shown, and the best is the best of those that can be run."""
    for grid in grids(curves(seeds=1), cheating={"sigma"}):
        assert not any(cell.best for name, cells in grid.rows for cell in cells if name == "sigma")


def test_equal_as_printed_is_equally_good() -> None:
    """Two numbers that look the same are both the best."""
    rows = [Curve("map", [0, 1], [v, 0.5], n) for n, v in (("a", 0.40001), ("b", 0.4), ("c", 0.3))]
    (grid,) = grids(rows)
    assert [cells[0].best for _, cells in grid.rows] == [True, True, False]


def test_seeds_show_mean_and_deviation_in_markdown() -> None:
    """Several seeds are written mean ± deviation, one is a bare number."""
    written = markdown(grids(curves(seeds=3))[0])
    sigma, random = written.splitlines()[-2:]
    assert "±" not in sigma
    assert random.count("±") == 9


def test_marks_and_levels_are_shown() -> None:
    """A significant area carries its sign, the levels stand beside the title."""
    levels = {"map": {"old/old": 0.1, "new/new": 0.5}}
    found = grids(curves(), levels, {("map", "sigma"): " ▲"})
    written = [markdown(grid) for grid in found]
    assert "▲" not in written[0]
    assert "**43.2** ▲" in written[1]
    assert "(old/old 10.0, new/new 50.0)" in written[1]
    shown = text_of(*rich_tables(found))
    assert "43.2 ▲" in shown
    assert "old/old 10.0" in shown


@pytest.mark.parametrize("name", ["a|b", "x\ny", "<b>", "`rm`", "[red]x[/]", "*_*", "back\\slash"])
def test_hostile_names_stay_in_their_cell(name: str) -> None:
    """A name can neither break a Markdown row nor colour a terminal."""
    (grid,) = grids([Curve("map", [0, 1], [0.4, 0.5], name)])
    row = markdown(grid).splitlines()[-1]
    assert row.replace("\\\\", "").replace("\\|", "").count("|") == 11
    assert "<" not in row
    shown = text_of(*rich_tables([grid]))
    assert name.split("\n")[0] in shown


def test_comparison_table_names_the_baseline() -> None:
    """The terminal shows gain, interval and p."""
    one = Comparison("map", "[b]sigma", "random", 0.02, 0.01, 0.03, 0.95, 0.0001)
    shown = text_of(comparison_table([one]))
    for part in (
        "over random",
        "[b]sigma",
        "+2.00 ▲",
        "+1.00 to +3.00",
        "< 0.001",
        "95 % interval",
    ):
        assert part in shown


def test_shares_are_of_what_the_new_model_gives_alone() -> None:
    """The old search never gets there, and both models together may get there before the end."""
    curves = [
        Curve("map", [0, 1], [0.4, 0.4], "old"),
        Curve("map", [0, 1], [0.6, 0.9], "both"),
    ]
    [grid] = grids(curves, {"map": {"new/new": 0.8}})
    by_name = {name: [str(cell) for cell in cells[-2:]] for name, cells in grid.rows}
    assert by_name == {"old": ["–", "–"], "both": ["53.3", "64.0"]}
