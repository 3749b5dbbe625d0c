"""`Pacer`: lets a worker wait where there is a reason to: paused, hours, rate, slow queries."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime

from fastfill.migrate.ledger.control import Control
from fastfill.migrate.run.context import Run
from fastfill.migrate.run.duty_cycle import DutyCycle
from fastfill.migrate.run.throttle import Reason, Signals, throttle

CALLBACK_EVERY = 60.0  # seconds between two events for the same kind of waiting


class Pacer:
    """Collects the signals of one worker, and waits as `throttle` says."""

    def __init__(self, run: Run) -> None:
        self._run, self._cycle = run, DutyCycle()
        self._encoding = 0.0  # seconds that the encoder took since the last pause
        self.rate = run.options.rate
        self._rate_since, self._rate_rows = run.started, 0
        self._event, self._event_at = "", 0.0

    def wait(self, limited: bool = True) -> Reason | None:
        """Between two batches; only embedding is `limited` in its rate."""
        control = Control.of(self._run.job.store)
        rate = self._run.options.rate if control.rate is None else control.rate
        if rate != self.rate:  # changed while running: count from now
            self.rate, self._rate_since = rate, time.monotonic()
            self._rate_rows = self._run.written
        return self._rest(
            replace(
                self._signals(),
                paused=control.paused,
                rate=rate if limited else None,
                rows=self._run.written - self._rate_rows,
                elapsed=time.monotonic() - self._rate_since,
                between=self._run.options.between,
            )
        )

    def pause(self) -> Reason | None:
        """Between two pieces of a batch."""
        return self._rest(self._signals())

    def add_encoding(self, seconds: float) -> None:
        """The encoder took so long for what was just written."""
        self._encoding += seconds

    def _signals(self) -> Signals:
        """How queries fare, and what the store has done for this run since the last pause."""
        latency = self._run.probe.latency() if self._run.probe else None
        self._cycle.look(latency)
        signals = Signals(
            now=datetime.now(),
            latency=latency and latency.now,
            resting_latency=latency and latency.resting,
            share=self._cycle.share,
            worked=self._run.store_time.take(),
            encoded=self._encoding,
        )
        self._encoding = 0.0
        return signals

    def _rest(self, signals: Signals) -> Reason | None:
        reason = throttle(signals)
        if reason is not None:
            self._call_back("paused" if signals.paused else "throttled", reason)
            self._run.job.stop.wait(reason.seconds)
        return reason

    def _call_back(self, event: str, reason: Reason) -> None:
        """Waiting goes on for long: an event when it begins, and now and then."""
        now = time.monotonic()
        if event != self._event or now - self._event_at > CALLBACK_EVERY:
            self._event, self._event_at = event, now
            self._run.job.callback(event, {"reason": reason.text, "seconds": reason.seconds})
