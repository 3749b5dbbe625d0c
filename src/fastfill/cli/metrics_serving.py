"""`--metrics-port` and `--otel`: the figures of a run for others, while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from fastfill.cli.main import say
from fastfill.cli.options import bundled

if TYPE_CHECKING:
    from fastfill.migrate import Migration, Status
    from fastfill.page import PageServer, RunFigures

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class MetricsOptions:
    """Where figures are served or sent to, if anywhere."""

    metrics_port: int | None
    metrics_host: str
    otel: bool


metrics_options = bundled(
    MetricsOptions,
    "metrics",
    [
        click.option(
            "--metrics-port",
            type=click.IntRange(0, 65535),
            help="Serve figures for Prometheus on this port; 0: a free one.",
        ),
        click.option(
            "--metrics-host",
            default=LOOPBACK,
            show_default=True,
            help="The address to serve them on; 0.0.0.0 for other machines too.",
        ),
        click.option(
            "--otel",
            is_flag=True,
            help="Send figures by OpenTelemetry (OTLP over HTTP), as the OTEL_* variables say.",
        ),
    ],
)


@contextmanager
def served_metrics(
    options: MetricsOptions, migration: Migration, run: RunFigures
) -> Iterator[None]:
    """Serve and send the figures of `run` and of the store until the work has ended."""
    if options.metrics_port is None and not options.otel:
        yield
        return
    from fastfill.page import CachedReader, exported

    # The work counts rows itself: a scrape reads small documents alone.
    read = CachedReader(lambda: migration.status(run.progress))

    def latest() -> Status:
        status = read()
        return status if run.progress is None else replace(status, progress=run.progress)

    with ExitStack() as stack:
        if options.metrics_port is not None:
            scraped = _metrics_server(options.metrics_host, options.metrics_port, latest, run)
            say(f"Metrics: {stack.enter_context(scraped).url}metrics")
        if options.otel:
            say(f"OpenTelemetry: {stack.enter_context(exported(latest, run))}")
        yield


def _metrics_server(
    host: str, port: int, latest: Callable[[], Status], run: RunFigures
) -> PageServer:
    """The figures at /metrics."""
    from fastfill.page import Answer, PageServer, exposition
    from fastfill.page.prometheus import CONTENT_TYPE

    def scrape() -> Answer:
        return Answer(CONTENT_TYPE, exposition(latest(), run))

    scrape()  # what is missing is said before the work begins
    return PageServer({"/metrics": scrape}, host, port)
