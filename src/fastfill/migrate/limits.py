"""`Limits`: what a run of a backfill may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import time as clock_time

from fastfill.migrate.progress import Progress
from fastfill.migrate.refit import REFIT_EVERY

LEASE = 300.0  # seconds


@dataclass(frozen=True)
class Limits:
    """What a run may do before it ends by itself."""

    rows: int | None = None
    cost: float | None = None
    rate: float | None = None  # rows per second
    between: tuple[clock_time, clock_time] | None = None
    price_per_1k_tokens: float = 0.0
    price_per_hour: float = 0.0
    lease: float = LEASE
    refit: float | None = REFIT_EVERY  # learn the map again at each such share of the rows
    make_room: bool = True  # slow down when the store answers queries slowly
    batch: int | None = None  # rows claimed together; chosen by speed otherwise
    enough: Callable[[Progress], str | None] | None = None  # asked now and then: why to end, if so
