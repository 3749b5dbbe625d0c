"""`--metrics-port`: the figures of a run for Prometheus, while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from fastfill.cli.main import say
from fastfill.cli.options import bundled

if TYPE_CHECKING:
    from fastfill.migrate import Migration
    from fastfill.page import RunFigures

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class MetricsOptions:
    """Where figures are served, if anywhere."""

    metrics_port: int | None
    metrics_host: str


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
    ],
)


@contextmanager
def served_metrics(
    options: MetricsOptions, migration: Migration, run: RunFigures
) -> Iterator[None]:
    """Serve the figures of `run` and of the store at /metrics until the work has ended."""
    if options.metrics_port is None:
        yield
        return
    from fastfill.page import Answer, CachedReader, PageServer, exposition
    from fastfill.page.prometheus import CONTENT_TYPE

    # The work counts rows itself: a scrape reads small documents alone.
    read = CachedReader(lambda: migration.status(run.progress))

    def scrape() -> Answer:
        status = read()
        if run.progress is not None:  # later than what was read
            status = replace(status, progress=run.progress)
        return Answer(CONTENT_TYPE, exposition(status, run))

    scrape()  # what is missing is said before the work begins
    answers = {"/metrics": scrape}
    with PageServer(answers, options.metrics_host, options.metrics_port) as server:
        say(f"Metrics: {server.url}metrics")
        yield
