"""Figures by OpenTelemetry: read by its own SDK, and received over HTTP from a real run."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from page_world import make_gallery, run_command, start

from fastfill.migrate import Progress, Status
from fastfill.page import RunFigures, exposition, observe
from fastfill.page.figures import FIGURES

metrics = pytest.importorskip("opentelemetry.sdk.metrics", reason="no opentelemetry-sdk")
export = pytest.importorskip("opentelemetry.sdk.metrics.export")
messages = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
PATIENT = 240  # seconds, on a busy machine
Values = dict[tuple[str, tuple[str, ...]], float]


def collected(status: Status, run: RunFigures | None = None) -> Values:
    """What the SDK reads, by name and labels."""
    reader = export.InMemoryMetricReader()
    observe(metrics.MeterProvider([reader]), lambda: status, run)
    data = reader.get_metrics_data()
    return {
        (metric.name, tuple(point.attributes.values())): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_the_figures_are_those_of_prometheus() -> None:
    """Every value that a scrape gets is there, under the same name with a dot, and no other."""
    parser = pytest.importorskip("prometheus_client.parser", reason="no prometheus-client")
    status = Status("started", Progress(10, new=4, aligned=6), None, swept=5.0)
    run = RunFigures(Progress(10, written=3, rate=2.0, reason="paused", cost=1.5))
    run.on_stage("align", 4, 6)
    found = collected(status, run)
    scraped = {
        (
            sample.name.replace("fastfill_", "fastfill.").removesuffix("_total"),
            tuple(sample.labels.values()),
        ): sample.value
        for family in parser.text_string_to_metric_families(exposition(status, run))
        for sample in family.samples
    }
    assert found.keys() == scraped.keys()
    ages = {("fastfill.last_sweep_age_seconds", ())}  # of two moments
    assert {key: found[key] for key in found.keys() - ages} == {
        key: scraped[key] for key in scraped.keys() - ages
    }


def test_what_is_not_known_is_left_out() -> None:
    """Without a run there is no figure of it; what only rises is a counter."""
    found = {name for name, _ in collected(Status("planned", Progress(10), None))}
    assert not found & {"fastfill.rows_per_second", "fastfill.quality_ratio", "fastfill.waiting"}
    reader = export.InMemoryMetricReader()
    status = Status("started", Progress(10), None)
    observe(metrics.MeterProvider([reader]), lambda: status, RunFigures(Progress(10)))
    scope = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
    rising = {metric.name for metric in scope.metrics if isinstance(metric.data, export.Sum)}
    counters = {f"fastfill.{name}" for name, one in FIGURES.items() if one.kind == "counter"}
    assert rising == counters - {"fastfill.map_refits"}  # nothing has been started


@contextmanager
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """An OTLP receiver: its address, and the requests that it has taken."""
    taken: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append((self.path, messages.ExportMetricsServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", taken
    server.shutdown()
    server.server_close()


def test_a_real_run_is_received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`backfill --otel` sends its figures to where the standard variables say."""
    url = make_gallery(tmp_path, monkeypatch)
    start(url)
    with receiver() as (address, taken):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "photos")
        run = run_command("backfill", url, "--budget", "20", "--otel", "--json",
                          stdout=subprocess.PIPE)  # fmt: skip
        printed, said = run.communicate(timeout=PATIENT)
    assert run.returncode == 0, said
    assert f"OpenTelemetry: {address}/v1/metrics" in said
    assert [json.loads(line) for line in printed.splitlines()]
    path, last = taken[-1]
    [resource] = last.resource_metrics
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (path, names["service.name"]) == ("/v1/metrics", "photos")
    [scope] = resource.scope_metrics
    values = {metric.name: metric for metric in scope.metrics}
    [embedded] = values["fastfill.rows_embedded"].sum.data_points
    assert embedded.as_double == 20


def test_nobody_who_listens_does_not_hinder_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that is not there is said, and the rows are embedded all the same."""
    url = make_gallery(tmp_path, monkeypatch)
    start(url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    run = run_command("backfill", url, "--budget", "20", "--otel")
    _, said = run.communicate(timeout=PATIENT)
    assert run.returncode == 0, said
    assert "Embedded 20 rows" in said
    assert "Traceback" not in said


def test_without_the_extra_the_way_out_is_said() -> None:
    """`--otel` names what to install."""
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from fastfill.page import RunFigures, exported\n"
        "with exported(lambda: None, RunFigures()): pass"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'fastfill[otel]'" in done.stderr
