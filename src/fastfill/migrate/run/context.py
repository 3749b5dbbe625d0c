"""`Run`: what the parts of one worker share while it works."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from fastfill.gallery import State
from fastfill.migrate.job import Job
from fastfill.migrate.options import BackfillOptions
from fastfill.migrate.run.latency import LatencyProbe, StoreTime
from fastfill.migrate.run.rolled_back import no_longer_ours
from fastfill.migrate.run.spending import Spending


@dataclass
class Run:
    """One worker: what it works on, and what it has done so far."""

    job: Job
    state: State  # as it was read last
    options: BackfillOptions
    owner: str  # its name on leases
    probe: LatencyProbe | None  # None: queries are not looked at
    spending: Spending  # by all workers of the run
    store_time: StoreTime = field(init=False)
    started: float = field(default_factory=time.monotonic)
    written: int = 0

    def __post_init__(self) -> None:
        self.store_time = StoreTime(self.probe)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.started

    def follow_state(self) -> State:
        """Go on with what others have changed; checks that the migration is still ours."""
        current = self.job.state
        if current.model != self.state.model or current.phase != "started":
            raise no_longer_ours(self.job, current)
        self.state = current
        return current
