"""Tables, figures, the HTML report."""

from fastfill.report.diagnostics import flips_figure, groups_figure, served_figure, sigma_figure
from fastfill.report.figures import curves_figure, timeline_figure
from fastfill.report.findings import ByOrder, Findings, FlipLines, GroupLines, Sigma
from fastfill.report.folder import write_folder
from fastfill.report.html import html_page, write_html
from fastfill.report.series import Estimate, Levels, Series
from fastfill.report.study import Candidate, Setting, study
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
    "rich_tables",
    "save",
    "served_figure",
    "sigma_figure",
    "study",
    "timeline_figure",
    "write_folder",
    "write_html",
]
