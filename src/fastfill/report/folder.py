"""A folder with everything that an evaluation found: page, tables, figures, numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fastfill.errors import FileError
from fastfill.evaluate import Findings
from fastfill.features import Source, replacing
from fastfill.report.diagnostics import flips_figure, groups_figure, served_figure, sigma_figure
from fastfill.report.figures import curves_figure, timeline_figure
from fastfill.report.html import write_html
from fastfill.report.style import save
from fastfill.report.tables import comparison_markdown, grids_of, markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_folder(folder: Source, findings: Findings, *, figures: bool = True) -> list[Path]:
    """Write `report.html`, `tables.md`, `curves.json` and each figure as SVG and PNG.

    Every file is written whole or not at all, and may replace one of an earlier evaluation.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{target}: no folder can be made there ({error.strerror}).") from None
    written = [target / "report.html", target / "tables.md", target / "curves.json"]
    write_html(written[0], findings)
    _write(written[1], _tables(findings))
    _write(written[2], json.dumps(findings.to_dict(), indent=1, ensure_ascii=False) + "\n")
    if figures:
        for name, figure in _figures(findings):
            written += save(figure, target / name)
    return written


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _tables(findings: Findings) -> str:
    parts = [f"    {findings.command}"] if findings.command else []
    parts += [markdown(grid) for grid in grids_of(findings)]
    if findings.comparisons:
        parts.append(comparison_markdown(findings.comparisons))
    return "\n\n".join(parts) + "\n"


def _figures(findings: Findings) -> Iterator[tuple[str, Figure]]:
    """The figures one after the other, each drawn when it is asked for."""
    yield "curve", curves_figure(findings.curves, findings.levels)
    for one in findings.timelines:
        yield f"timeline-{_plain(one.metric)}", timeline_figure(one)
    if findings.flips is not None:
        yield "flips", flips_figure(findings.flips.positive, findings.flips.negative)
    if (groups := findings.groups) is not None:
        for metric, orders in groups.quality.items():
            gaps = [one for one in groups.gaps if one.metric == metric]
            yield f"groups-{_plain(metric)}", groups_figure(orders, gaps)
        if groups.served:
            yield "served", served_figure(groups.served)
    for place, sigma in enumerate(findings.sigma.values()):
        name = "sigma" if place == 0 else f"sigma-{place + 1}"
        yield name, sigma_figure(sigma.variance, sigma.losses, sigma.taus)


def _plain(metric: str) -> str:
    """A metric's name as a part of a file name.

    >>> _plain("cmc@1")
    'cmc-1'
    """
    return metric.replace("@", "-")
