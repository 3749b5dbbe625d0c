"""Figures: what is drawn is what was measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from report_samples import FRACTIONS, curves, sample_findings
from scipy.stats import rankdata

from fastfill.errors import FileError, InputError, MissingExtraError
from fastfill.evaluate import Curve, timeline
from fastfill.report import (
    Findings,
    Series,
    curves_figure,
    flips_figure,
    groups_figure,
    save,
    served_figure,
    sigma_figure,
    timeline_figure,
    write_folder,
)
from fastfill.report.diagnostics import outermost, positive, ranks, subsample


@pytest.fixture
def findings() -> Findings:
    """Everything that a report can show."""
    return sample_findings()


def labels(axis: object) -> list[str]:
    """The texts of a panel's legend."""
    return [text.get_text() for text in axis.get_legend().get_texts()]  # type: ignore[attr-defined]


def visible(figure: object) -> list[object]:
    """The panels that are not spare."""
    return [axis for axis in figure.axes if axis.get_visible()]  # type: ignore[attr-defined]


def test_each_metric_has_a_panel_with_its_curves_and_areas() -> None:
    """Lines hold the means in %, legends the areas, seeds a band."""
    figure = curves_figure(curves(), {"map": {"new/new": 0.5, "old/old": 0.25}})
    first, second = visible(figure)
    assert [axis.get_title(loc="left") for axis in (first, second)] == ["CMC top-1 (%)", "mAP (%)"]
    for series in Series.group(curves()):
        axis = first if series.metric == "cmc@1" else second
        (line,) = [one for one in axis.lines if one.get_label().startswith(f"{series.name} (")]
        np.testing.assert_allclose(line.get_xdata(), 100 * FRACTIONS)
        np.testing.assert_allclose(line.get_ydata(), 100 * series.mean)
    assert labels(second)[-2:] == ["new/new (50.0)", "old/old (25.0)"]
    assert labels(second)[0] == "sigma (43.2)"
    assert len(first.collections) == 1  # the band of the random order


def test_the_old_search_is_always_seen() -> None:
    """However far below the curves it is: they are there to be compared with it."""
    figure = curves_figure([Curve("map", [0, 1], [0.8, 0.9], "a")], {"map": {"old/old": 0.1}})
    (axis,) = visible(figure)
    assert labels(axis)[-1] == "old/old (10.0)"
    assert axis.get_ylim()[0] < 10


def test_metrics_can_be_chosen_and_unknown_ones_are_refused() -> None:
    """Panels come in the order asked for; a metric without a curve is an error."""
    figure = curves_figure(curves(), metrics=["map"])
    assert [axis.get_title(loc="left") for axis in visible(figure)] == ["mAP (%)"]
    with pytest.raises(InputError, match=r"'mrr'.*cmc@1, map"):
        curves_figure(curves(), metrics=["mrr"])
    with pytest.raises(InputError, match="no curve to draw"):
        curves_figure([])


def test_many_panels_stand_in_rows_of_three() -> None:
    """A fourth panel opens a second row, the spare places stay empty."""
    many = [Curve(f"cmc@{k}", [0, 1], [0.1, 0.2], "a") for k in (1, 2, 3, 4)]
    figure = curves_figure(many)
    assert len(visible(figure)) == 4
    assert len(figure.axes) == 6


def test_timeline_draws_every_line_in_the_unit() -> None:
    """Online, offline and no update are all there, the axis names the unit."""
    chosen = [curve for curve in curves(1) if curve.metric == "map"]
    figure = timeline_figure(timeline(chosen, old=0.1, items=1, per_item=30, unit="days"))
    (axis,) = visible(figure)
    assert sorted(labels(axis)) == ["no update", "offline backfilling", "random", "sigma"]
    assert axis.get_xlabel() == "days since the update"
    offline = next(line for line in axis.lines if line.get_label() == "offline backfilling")
    np.testing.assert_allclose(offline.get_ydata(), [10, 10, 50, 50])


def test_diagnostic_figures_have_a_panel_per_order_or_metric(findings: Findings) -> None:
    """Flips by metric; groups by order and the gap; served by order."""
    assert findings.flips is not None
    assert findings.groups is not None
    (flips,) = visible(flips_figure(findings.flips.positive, findings.flips.negative))
    assert labels(flips) == ["+ sigma", "+ random", "− sigma", "− random"]
    groups = visible(groups_figure(findings.groups.quality["map"], findings.groups.gaps))
    assert [axis.get_title(loc="left") for axis in groups][:2] == [
        "sigma: mAP (%)",
        "random: mAP (%)",
    ]
    assert labels(groups[0]) == ["few", "many"]
    assert labels(groups[-1]) == ["sigma", "random"]
    assert len(visible(served_figure(findings.groups.served))) == 2


def test_sigma_figure_shows_values_and_ranks_with_tau() -> None:
    """Two panels per loss; zeros and constants can be drawn on logarithmic axes."""
    variance = np.array([0.0, 1.0, 2.0])
    figure = sigma_figure(variance, {"l2": np.zeros(3), "disc": variance}, {"l2": 0.5, "disc": 1.0})
    titles = [axis.get_title(loc="left") for axis in visible(figure)]
    assert titles == ["", "", "Kendall τ = 0.500", "Kendall τ = 1.000"]
    with pytest.raises(InputError, match="one number per item"):
        sigma_figure(variance, {"l2": np.zeros(2)}, {"l2": 0.0})


def test_ranks_agree_with_scipy() -> None:
    """Ranks are SciPy's average ranks as shares."""
    values = np.random.default_rng(0).integers(0, 9, 50).astype(float)
    np.testing.assert_allclose(ranks(values), (rankdata(values) - 1) / 49)


def test_helpers_of_the_scatter() -> None:
    """Zeros become the smallest positive value; a sample is sorted, unique and repeatable."""
    assert positive(np.array([0.0, 0.5, 2.0])).tolist() == [0.5, 0.5, 2.0]
    assert positive(np.zeros(2)).tolist() == [1.0, 1.0]
    chosen = subsample(10_000)
    assert len(np.unique(chosen)) == 5_000
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(chosen, subsample(10_000))


def test_of_many_groups_only_the_outermost_are_named() -> None:
    """Twenty groups are twenty lines, of which six have a name, the same under every order."""
    many = [Series(str(k), "map", FRACTIONS, FRACTIONS * k / 20) for k in range(20)]
    assert outermost({"sigma": many}, 4) == ["0", "1", "18", "19"]
    gap = [Series("sigma", "map", FRACTIONS, FRACTIONS)]
    figure = groups_figure({"sigma": many, "random": many[::-1]}, gap)
    for axis in visible(figure)[:2]:
        assert len(axis.lines) == 20
        assert sorted(labels(axis)) == ["0", "1", "17", "18", "19", "2"]
    colours = {line.get_color() for line in axis.lines}
    assert len(colours) == 7  # six of their own, one for the rest


def test_without_a_gap_there_is_no_panel_for_it() -> None:
    """One group alone has a panel per order and no more."""
    one = [Series("a", "map", FRACTIONS, FRACTIONS)]
    assert len(visible(groups_figure({"sigma": one, "random": one}, []))) == 2


def test_panels_of_groups_share_an_axis_that_holds_all() -> None:
    """No panel cuts off a line that is higher than those of the first."""
    low = [Series("a", "map", FRACTIONS, 0.1 + 0.1 * FRACTIONS)]
    high = [Series("a", "map", FRACTIONS, 0.8 + 0.1 * FRACTIONS)]
    figure = groups_figure({"low": low, "high": high}, [Series("x", "map", FRACTIONS, FRACTIONS)])
    first, second, _ = visible(figure)
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] < 10
    assert first.get_ylim()[1] > 90


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    """Dollar signs, underscores and brackets are no mathematics and no markup."""
    figure = curves_figure([Curve("map", [0, 1], [0.1, 0.2], r"_a $\frac{x}$ <b>")])
    (axis,) = visible(figure)
    assert labels(axis) == [r" _a $\frac{x}$ <b> (15.0)"]
    for path in save(figure, tmp_path / "odd"):
        assert path.stat().st_size > 1_000


def test_saving_twice_gives_the_same_files(tmp_path: Path) -> None:
    """SVG and PNG do not depend on the moment, and leave nothing else behind."""
    for name in ("a", "b"):
        save(curves_figure(curves()), tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]
    for kind in ("svg", "png"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_a_figure_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    """A failure half-way through a file changes nothing in the folder."""
    figure = curves_figure(curves())
    paths = save(figure, tmp_path / "a")
    before = [path.read_bytes() for path in paths]

    def fail(file: Path, **_: object) -> None:
        Path(file).write_bytes(b"half")
        raise OSError("disk full")

    figure.savefig = fail
    with pytest.raises(FileError, match="disk full"):
        save(figure, tmp_path / "a")
    assert [path.read_bytes() for path in paths] == before
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"matplotlib.*fastfill\[report\]"):
        curves_figure(curves())


def test_drawing_leaves_matplotlib_s_state_alone() -> None:
    """Neither pyplot nor any of its settings is touched, and importing the room needs neither."""
    script = (
        "import sys, fastfill.report as report; assert 'matplotlib' not in sys.modules\n"
        "import matplotlib; before = matplotlib.rcParams.copy()\n"
        "from fastfill.evaluate import Curve\n"
        "report.curves_figure([Curve('map', [0, 1], [0.1, 0.2], 'a')])\n"
        "assert matplotlib.rcParams.copy() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    path = ":".join(sys.path)
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": path})


def test_a_folder_holds_page_tables_numbers_and_figures(findings: Findings, tmp_path: Path) -> None:
    """Everything is written into a folder that need not exist, and nothing besides."""
    written = write_folder(tmp_path / "new" / "folder", findings)
    names = {path.name for path in written}
    assert {"report.html", "tables.md", "curves.json", "curve.svg", "curve.png"} <= names
    for figure in ("timeline-map", "flips", "groups-map", "served", "sigma"):
        assert {f"{figure}.svg", f"{figure}.png"} <= names
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == names


def test_a_file_in_place_of_the_folder_is_an_error(findings: Findings, tmp_path: Path) -> None:
    """A folder cannot be made where a file is."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match=r"taken: no folder can be made there"):
        write_folder(tmp_path / "taken", findings)
