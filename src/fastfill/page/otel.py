"""The figures of a migration as instruments of OpenTelemetry; needs the extra `otel`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import fastfill
from fastfill.errors import MissingExtraError
from fastfill.migrate import Status
from fastfill.page.figures import FIGURES, RunFigures, samples

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation


def observe(
    provider: MeterProvider, read: Callable[[], Status], run: RunFigures | None = None
) -> None:
    """Let a MeterProvider of yours read the figures, as `fastfill.rows`, whenever it collects.

    `read` is called once for each figure, so give it a memory: `CachedReader(migration.status)`.
    """
    meter = provider.get_meter("fastfill", fastfill.__version__)
    for name, figure in FIGURES.items():
        counter = figure.kind == "counter"
        make = meter.create_observable_counter if counter else meter.create_observable_gauge
        make(f"fastfill.{name}", [_callback(name, read, run)], description=figure.about)


def _callback(
    name: str, read: Callable[[], Status], run: RunFigures | None
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    from opentelemetry.metrics import Observation

    def values(_: CallbackOptions) -> Iterator[Observation]:
        for sample in samples(read(), run, time.time()):
            if sample.name == name:
                labels = zip(FIGURES[name].labels, sample.labels, strict=True)
                yield Observation(sample.value, dict(labels))

    return values


@contextmanager
def exported(read: Callable[[], Status], run: RunFigures) -> Iterator[str]:
    """Send the figures by OTLP over HTTP, as the OTEL_* variables say, until the work has ended.

    Gives the address that they are sent to.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError:
        raise MissingExtraError(
            "opentelemetry-exporter-otlp-proto-http", "otel", "Sending figures by OpenTelemetry"
        ) from None

    exporter = OTLPMetricExporter()
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)], shutdown_on_exit=False)
    observe(provider, read, run)
    try:
        yield exporter._endpoint
    finally:
        provider.shutdown()  # sends the last figures
