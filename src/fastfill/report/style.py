"""How figures look: one restrained style, colours that colour-blind readers can tell apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastfill.errors import MissingExtraError
from fastfill.features import Source, replacing

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.1, 2.3)  # inches of one panel: two stand side by side on a page, one fits a column

# Okabe & Ito (2008), without the yellow that vanishes on white. Lines also differ by dash and
# marker, so that a print in grey can be read.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
_DASH_OF = (0, 1, 2, 3, 2, 0, 1)  # colours that resemble each other differ in their dashes
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK = "#2b2b2b"
FAINT = "#8a8a8a"

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture on every machine
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.2,
    "svg.hashsalt": "fastfill",  # the same figure is the same file
    "text.parse_math": False,  # a name with a dollar sign is a name
}


@dataclass(frozen=True)
class LineStyle:
    """How one name is drawn, in every panel and figure alike."""

    colour: str
    dash: Any
    marker: str

    def line(self) -> dict[str, Any]:
        """Keyword arguments of `Axes.plot`."""
        return {"color": self.colour, "linestyle": self.dash, "marker": self.marker}


def colour_and_dash(place: int) -> tuple[int, int]:
    """Which colour and dash the n-th line has, in figures and on the page.

    >>> [colour_and_dash(place) for place in (0, 1, 7)]
    [(0, 0), (1, 1), (0, 1)]
    """
    again, colour = divmod(place, len(COLOURS))
    return colour, (_DASH_OF[colour] + again) % len(DASHES)


def line_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """A style for each name, by its place among them.

    >>> line_styles(["sigma", "random"])["random"].colour
    '#D55E00'
    """
    styles: dict[str, LineStyle] = {}
    for place, name in enumerate(dict.fromkeys(names)):
        colour, dash = colour_and_dash(place)
        styles[name] = LineStyle(COLOURS[colour], DASHES[dash], MARKERS[place % len(MARKERS)])
    return styles


@contextmanager
def styled() -> Iterator[None]:
    """Within this, matplotlib draws in our style; nothing of it stays behind."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("matplotlib", "report", "Drawing figures") from None
    with matplotlib.rc_context(_RC):
        yield


def panels(
    count: int, columns: int = 3, size: tuple[float, float] = PANEL
) -> tuple[Figure, list[Axes]]:
    """An empty figure of equal panels, row by row, without any of matplotlib's global state."""
    from matplotlib.figure import Figure

    across = min(columns, count)
    down = -(-count // across)
    figure = Figure((size[0] * across, size[1] * down), layout="constrained", dpi=200)
    axes = list(figure.subplots(down, across, squeeze=False).ravel())
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def grow(figure: Figure, lines: int) -> None:
    """Make every row of panels as high as it must be for a legend of so many lines."""
    grid = figure.axes[0].get_gridspec()
    down = 1 if grid is None else grid.nrows
    height = (PANEL[1] + 0.155 * lines) * down
    figure.set_figheight(max(figure.get_figheight(), height))


def save(figure: Figure, stem: Source, kinds: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Write `STEM.svg` and `STEM.png`, each whole or not at all; returns their paths."""
    from pathlib import Path

    paths = [Path(f"{stem}.{kind}") for kind in kinds]
    with styled():
        for path in paths:
            kind = path.suffix[1:]
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            with replacing(path) as temporary:
                figure.savefig(temporary, format=kind, metadata=metadata)
    return paths
