"""Tables, figures, the HTML report. What they show is measured by `fastfill.evaluate`."""

from fastfill.evaluate import (
    ByOrder,
    Candidate,
    Estimate,
    Findings,
    FlipLines,
    GroupLines,
    Levels,
    Series,
    Setting,
    Sigma,
    study,
)
from fastfill.report.diagnostics import flips_figure, groups_figure, served_figure, sigma_figure
from fastfill.report.figures import curves_figure, timeline_figure
from fastfill.report.folder import write_folder
from fastfill.report.formats import marks_of, percent, points, title
from fastfill.report.html import html_page, write_html
from fastfill.report.style import save
from fastfill.report.tables import (
    Grid,
    comparison_markdown,
    comparison_table,
    grids,
    grids_of,
    markdown,
    rich_tables,
)

__all__ = [
    "ByOrder",
    "Candidate",
    "Estimate",
    "Findings",
    "FlipLines",
    "Grid",
    "GroupLines",
    "Levels",
    "Series",
    "Setting",
    "Sigma",
    "comparison_markdown",
    "comparison_table",
    "curves_figure",
    "flips_figure",
    "grids",
    "grids_of",
    "groups_figure",
    "html_page",
    "markdown",
    "marks_of",
    "percent",
    "points",
    "rich_tables",
    "save",
    "served_figure",
    "sigma_figure",
    "study",
    "timeline_figure",
    "title",
    "write_folder",
    "write_html",
]
