"""The live page of a migration, and its figures for Prometheus and OpenTelemetry: read only."""

from fastfill.page.charts import quality_charts
from fastfill.page.figures import RunFigures
from fastfill.page.html import live_page
from fastfill.page.otel import exported, observe
from fastfill.page.prometheus import exposition
from fastfill.page.server import Answer, PageServer
from fastfill.page.snapshot import CachedReader
from fastfill.page.summary import summary

__all__ = [
    "Answer",
    "CachedReader",
    "PageServer",
    "RunFigures",
    "exported",
    "exposition",
    "live_page",
    "observe",
    "quality_charts",
    "summary",
]
