"""Figures for Prometheus: scraped by HTTP from a real run, read by Prometheus' own parser."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from datetime import time as clock_time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from page_world import make_gallery, run_command, start

from fastfill.errors import EncoderBusyError
from fastfill.forecast import Forecast
from fastfill.gallery import load_state
from fastfill.migrate import Progress, QualityForecast, Signals, Status, WorkerReport, throttle
from fastfill.migrate.backoff import Backoff
from fastfill.page import PageServer, RunFigures, exposition
from fastfill.page.figures import waiting_kind
from fastfill.wiring import connect

parser = pytest.importorskip("prometheus_client.parser", reason="no prometheus-client")
PATIENT = 240  # seconds, on a busy machine
Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(text: str) -> Samples:
    """Values by name and labels."""
    families = parser.text_string_to_metric_families(text)
    return {
        (sample.name.removeprefix("fastfill_"), tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_real_run_is_scraped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While `backfill --metrics-port` works, its figures can be read by HTTP."""
    url = make_gallery(tmp_path, monkeypatch)
    assert "Metrics: http://127.0.0.1:" in start(url)
    run = run_command("backfill", url, "--rate", "15", "--batch", "5", "--metrics-port", "0")
    assert run.stderr is not None
    address = next(line.split()[-1] for line in run.stderr if line.startswith("Metrics: "))
    deadline = time.monotonic() + PATIENT
    while True:
        with urlopen(address) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            scraped = samples(answer.read().decode())
        done = scraped.get(("rows_embedded_total", ()), 0) >= 10 and scraped["workers", ()]
        if done or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=PATIENT)
    generations = ("new", "aligned", "waiting", "unmarked")
    assert sum(scraped["rows", (generation,)] for generation in generations) == 200
    assert scraped["rows", ("new",)] >= 70
    assert scraped["rows_per_second", ()] > 0
    assert sum(scraped["serving", (way,)] for way in ("old", "aligned", "both")) == 1
    assert scraped["phase", ("started",)] == 1
    assert scraped["workers", ()] == 1
    assert scraped["items_quarantined", ()] == 0


def test_quality_and_its_forecast_are_told() -> None:
    """The ratio, its band, and the shares of the rows at which 95 and 99 % are expected."""
    line = [0.4, 0.6, 0.8]
    forecast = Forecast("map", [0, 0.5, 1], line, line, line, items=100, pairs=0)
    expected = QualityForecast(forecast, label="album", policy="sigma", first=0.0)
    status = Status("started", Progress(100, new=50, aligned=50), None, forecast=expected)
    scraped = samples(exposition(status))
    assert scraped["quality_ratio", ("map",)] == pytest.approx(0.75)
    assert scraped["quality_measured", ("map",)] == 0
    assert scraped["forecast_fraction", ("map", "0.95")] == pytest.approx(0.9)
    assert scraped["forecast_fraction", ("map", "0.99")] == pytest.approx(0.98)


def test_what_is_not_known_is_left_out() -> None:
    """Without a forecast, a sweep or a run there is no figure for them, not a zero."""
    scraped = samples(exposition(Status("planned", Progress(10), None)))
    names = {name for name, _ in scraped}
    assert not names & {"quality_ratio", "last_sweep_age_seconds", "rows_per_second", "waiting"}
    assert scraped["serving", ("old",)] == 1


def test_ages_and_workers_are_of_now() -> None:
    """The last sweep has an age; a run that has been silent for a minute is not at work."""
    reports = {"ann": WorkerReport(at=950.0), "bob": WorkerReport(at=900.0)}
    status = Status("started", Progress(10), None, workers=reports, swept=990.0)
    scraped = samples(exposition(status, now=1000.0))
    assert scraped["last_sweep_age_seconds", ()] == 10
    assert scraped["workers", ()] == 1


def test_every_reason_to_wait_has_a_word() -> None:
    """What `throttle` says, with numbers in it, is one of a few labels."""
    now, hours = datetime(2025, 1, 1, 12), (clock_time(22), clock_time(6))
    cases = {
        "paused": Signals(now, paused=True),
        "hours": Signals(now, between=hours),
        "rate": Signals(now, rate=10, rows=50, elapsed=1),
        "queries": Signals(now, share=0.5, worked=1, latency=0.02, resting_latency=0.01),
    }
    for kind, signals in cases.items():
        reason = throttle(signals)
        assert reason is not None
        assert waiting_kind(reason.text) == kind
        run = RunFigures(progress=Progress(10, reason=reason.text))
        scraped = samples(exposition(Status("started", Progress(10), None), run))
        assert [key for (name, key), on in scraped.items() if name == "waiting" and on] == [(kind,)]
    assert waiting_kind(throttle(Signals(now, share=0.5, worked=1)).text) == "queries"  # type: ignore[union-attr]


def test_waiting_in_the_middle_of_a_step_is_told() -> None:
    """A busy encoder and a lost store show at once, and before any step, as in `start`."""
    status, run, waits = Status("started", Progress(10), None), RunFigures(), []
    for event, details in (
        ("throttled", {"reason": "429", "seconds": 600.0, "refusals": 1, "retry_after": 600.0}),
        ("reconnecting", {"reason": "the connection was lost", "seconds": 600.0}),
    ):
        run.on_event(event, details)
        scraped = samples(exposition(status, run))
        waits += [key for (name, key), on in scraped.items() if name == "waiting" and on]
    assert waits == [("encoder",), ("store",)]


def test_refusals_of_the_encoder_are_counted() -> None:
    """Each time that a busy encoder is waited for counts; other events do not."""
    import threading

    run, stop = RunFigures(), threading.Event()
    stop.set()  # do not wait
    backoff = Backoff(stop, run.on_event)
    for _ in range(3):
        backoff.wait(EncoderBusyError("429", retry_after=0.0))
    run.on_event("throttled", {"reason": "rate limit", "seconds": 1})
    scraped = samples(exposition(Status("started", Progress(10), None), run))
    assert scraped["encoder_refusals_total", ()] == 3


BUSY = """
import os
from fastfill.errors import EncoderBusyError
from page_encoder import encode as quick


def encode(texts):
    if os.environ.pop("REFUSE_ONCE", None):
        raise EncoderBusyError("at the limit", retry_after=0.0)
    return quick(texts)
"""


def test_prometheus_itself_scrapes_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real Prometheus takes in the figures of a run, and answers with what the store holds."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on this machine: install it to be scraped by a real one")
    url = make_gallery(tmp_path, monkeypatch)
    (tmp_path / "busy_encoder.py").write_text(BUSY)
    start(url, encoder="busy_encoder:encode")
    monkeypatch.setenv("REFUSE_ONCE", "yes")
    watched = ["--until", "0.99", "--metric", "map", "--label", "album"]
    paced = ["--batch", "1", "--rate", "1", "--refit", "never"]  # which keeps the run alive
    run = run_command("backfill", url, *paced, *watched, "--metrics-port", "0")
    assert run.stderr is not None
    address = next(line.split()[-1] for line in run.stderr if line.startswith("Metrics: "))
    try:
        with prometheus(program, tmp_path, address.split("/")[2]) as place:
            more = "fastfill_rows_embedded_total > 0"
            assert float(ask_prometheus(place, more)) > 0
            assert ask_prometheus(place, "sum(fastfill_rows)") == "200"
            new = 'fastfill_rows{generation="new"}'
            seen = float(ask_prometheus(place, new))
            assert ask_prometheus(place, 'fastfill_phase{phase="started"}') == "1"
            assert ask_prometheus(place, "fastfill_encoder_refusals_total") == "1"
            assert 0 < float(ask_prometheus(place, 'fastfill_quality_ratio{metric="map"}')) < 2
            expected = 'fastfill_forecast_fraction{metric="map",quality="0.95"}'
            assert 0 <= float(ask_prometheus(place, expected)) <= 1
            # A busy machine may be slower than the rate, and so never wait for it.
            assert ask_prometheus(place, 'fastfill_waiting{reason="paused"}') == "0"
    finally:
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=PATIENT)
    store = connect(url).store
    state = load_state(store)
    assert state is not None
    assert 60 < seen <= store.counts()["new", state.model]


@contextmanager
def prometheus(program: str, folder: Path, target: str) -> Iterator[str]:
    """A real Prometheus that scrapes this address every second; yields its own."""
    with PageServer({}) as spare:
        place = spare.url.split("/")[2]  # a port that is free when the spare one has gone
    job = {
        "job_name": "fastfill",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "static_configs": [{"targets": [target]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))  # JSON is YAML
    process = subprocess.Popen(
        [program, f"--config.file={folder}/prometheus.yml", f"--web.listen-address={place}",
         f"--storage.tsdb.path={folder}/tsdb"],
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield place
    finally:
        process.terminate()
        process.wait(30)


def ask_prometheus(place: str, query: str) -> str:
    """The value of a query, once there is one."""
    deadline = time.monotonic() + PATIENT
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://{place}/api/v1/query?{urlencode({'query': query})}") as answer:
                result = json.load(answer)["data"]["result"]
        except OSError:
            result = []
        if result:
            return str(result[0]["value"][1])
        time.sleep(0.2)
    return "nothing"
