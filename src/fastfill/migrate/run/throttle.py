"""`throttle`: may the next batch go ahead, and if not, why not and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time

from fastfill.errors import InputError

SLOWER = 1.25  # latency of queries over that of a store left alone at which to slow down
SLOWEST = 3.0  # times as long as at full speed, where one batch is encoded while one is written
LONGEST = 10.0  # seconds between two looks at the signals


@dataclass(frozen=True)
class Signals:
    """What is known when a batch is about to be encoded."""

    now: datetime
    paused: bool = False
    rate: float | None = None  # rows per second at most
    rows: int = 0  # written since `elapsed` began
    elapsed: float = 0.0  # seconds
    latency: float | None = None  # seconds that 95 of 100 queries take at most, probed
    resting_latency: float | None = None  # the same while the store is left alone
    share: float = 1.0  # of the time that the store may be kept busy
    worked: float = 0.0  # seconds that it was kept busy since the last pause
    encoded: float = 0.0  # seconds that the encoder took for that work
    between: tuple[time, time] | None = None  # hours of the day in which to work


@dataclass(frozen=True)
class Reason:
    """Why the work waits, and for how many seconds before looking again."""

    text: str
    seconds: float


def throttle(signals: Signals) -> Reason | None:
    """The reason to wait, or None. Pure: it looks at nothing but its argument.

    >>> throttle(Signals(now=datetime(2025, 1, 1), rate=100, rows=50, elapsed=0.1))
    Reason(text='rate limit of 100 rows/s', seconds=0.4)
    >>> throttle(Signals(now=datetime(2025, 1, 1)))
    """
    if signals.paused:
        return Reason("paused", 1.0)
    if signals.between is not None and not _within(signals.now.time(), *signals.between):
        start, end = signals.between
        return Reason(f"outside {start:%H:%M}-{end:%H:%M}", LONGEST)
    if signals.rate is not None:
        ahead = signals.rows / signals.rate - signals.elapsed
        if ahead > 0.001:
            return Reason(f"rate limit of {signals.rate:g} rows/s", round(min(ahead, LONGEST), 3))
    return _duty_cycle_pause(signals)


def _duty_cycle_pause(signals: Signals) -> Reason | None:
    """After each piece of work a pause, so that the store is busy for its share of the time."""
    if signals.share >= 1 or signals.worked <= 0:
        return None
    wanted = signals.worked * (1 / signals.share - 1)
    seconds = min(wanted, longest_pause(signals.worked, signals.encoded), LONGEST)
    text = f"at work {100 * signals.share:.0f} % of the time"
    if signals.latency is not None and signals.resting_latency is not None:
        now, resting = 1e3 * signals.latency, 1e3 * signals.resting_latency
        text = f"queries take {now:.0f} ms, {resting:.0f} ms between writes: {text}"
    return Reason(text, round(seconds, 3))


def longest_pause(worked: float, encoded: float) -> float:
    """Seconds after which work and pause have taken `SLOWEST` times as long as at full speed.

    >>> longest_pause(worked=2.0, encoded=1.0)
    3.0
    """
    return SLOWEST * max(worked, encoded) - (worked + encoded)


def _within(now: time, start: time, end: time) -> bool:
    return start <= now < end if start <= end else now >= start or now < end


def parse_hours(text: str) -> tuple[time, time]:
    """`22:00-06:00` as two times of day.

    >>> parse_hours("22:00-06:00")
    (datetime.time(22, 0), datetime.time(6, 0))
    """
    try:
        start, end = (time.fromisoformat(part.strip()) for part in text.split("-"))
    except ValueError:
        raise InputError(f"Hours are written 22:00-06:00, not {text!r}.") from None
    return start, end
