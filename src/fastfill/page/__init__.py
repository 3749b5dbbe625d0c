"""The live page of a migration, and the same figures for Prometheus: served here, read only."""

from fastfill.page.charts import quality_charts
from fastfill.page.html import live_page
from fastfill.page.prometheus import RunFigures, exposition
from fastfill.page.server import Answer, PageServer
from fastfill.page.snapshot import CachedReader
from fastfill.page.summary import summary

__all__ = [
    "Answer",
    "CachedReader",
    "PageServer",
    "RunFigures",
    "exposition",
    "live_page",
    "quality_charts",
    "summary",
]
