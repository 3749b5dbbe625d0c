"""`Progress`: how far the work is, counted in the store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fastfill.gallery import State, Store
from fastfill.migrate.ledger.count_record import CountRecord

LONG = 10.0  # seconds of a look at every row that is worth a word


@dataclass(frozen=True)
class Quality:
    """A metric over what it is when all is new, and half the width of its 90 % band.

    >>> print(Quality("map", 0.971, 0.004, measured=True))
    quality 97.1 ± 0.4 %
    """

    metric: str
    value: float
    band: float
    measured: bool

    def __str__(self) -> str:
        kind = "" if self.measured else " (forecast)"
        return f"quality {100 * self.value:.1f} ± {100 * self.band:.1f} %{kind}"


@dataclass(frozen=True)
class Progress:
    """Rows by generation, speed, time left, and what holds the work up.

    >>> print(Progress(total=1000, new=250, aligned=750, rate=50.0))
    250/1,000  25.0 %  50 rows/s  15 s left
    """

    total: int
    new: int = 0
    aligned: int = 0
    waiting: int = 0  # rows that never had an old vector
    stale: int = 0  # of the aligned: by the map before, to be aligned again
    unmarked: int = 0  # written by others since the last sweep
    failed: int = 0  # quarantined
    written: int = 0  # by this run
    rate: float = 0.0  # rows per second of this run
    cost: float = 0.0
    reconnects: int = 0  # how often the store had to be reached again
    quality: Quality | None = None  # where it is watched
    reason: str | None = None  # why the work waits
    doing: str | None = None  # what is done at present, where that is not embedding
    about: bool = False  # rows were not counted one by one: the store keeps the numbers

    @property
    def fraction(self) -> float:
        """Backfilled share of the gallery."""
        return self.new / self.total if self.total else 1.0

    @property
    def left(self) -> float | None:
        """Seconds until everything is new, at the present speed."""
        rest = self.total - self.new - self.failed
        return rest / self.rate if self.rate > 0 else (0.0 if rest <= 0 else None)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "fraction": self.fraction, "left": self.left}

    @property
    def done(self) -> str:
        """How many rows are new, of how many."""
        return f"{'about ' * self.about}{self.new:,}/{self.total:,}"

    @property
    def notes(self) -> list[str]:
        """What else there is to tell, in parts: how well and how fast, what is done, why it waits.

        >>> Progress(total=1000, new=250, rate=50.0, reason="paused").notes
        ['50 rows/s  15 s left', 'waiting: paused']
        """
        speed = []
        if self.quality is not None:
            speed.append(str(self.quality))
        if self.rate > 0:
            speed.append(f"{self.rate:,.0f} rows/s")
        if self.left:
            speed.append(f"{duration(self.left)} left")
        if self.failed:
            speed.append(f"{self.failed:,} quarantined")
        if self.reconnects:
            speed.append(f"reconnected {self.reconnects}×")
        waits = f"waiting: {self.reason}" if self.reason else ""
        return [part for part in ("  ".join(speed), self.doing, waits) if part]

    def __str__(self) -> str:
        return "  ".join([self.done, f"{100 * self.fraction:.1f} %", *self.notes])


def count(store: Store, state: State, *, about: bool = False) -> Progress:
    """Rows by generation as they are in the store now; rows of another model count as unmarked.

    `about` is enough where nothing is decided by it, and does not read every row if the store has
    another way.
    """
    estimate = store.estimate() if about else None
    rows = {"new": 0, "aligned": 0, "waiting": 0, None: 0}
    stale = 0
    right = {"new": (state.model,), "aligned": state.alignments, "waiting": (state.model,)}
    for (generation, model), number in (estimate or store.counts()).items():
        current = generation is not None and model in right.get(generation, ())
        rows[generation if current else None] += number
        stale += number * (current and model in state.stale)
    return Progress(
        total=sum(rows.values()),
        new=rows["new"],
        aligned=rows["aligned"],
        waiting=rows["waiting"],
        stale=stale,
        unmarked=rows[None],
        about=estimate is not None,
    )


def count_all(store: Store, state: State) -> Progress:
    """Count every row, and keep how long that took for the next one's words."""
    began = store.now()
    progress = count(store, state)
    took = CountRecord(store.now() - began)
    CountRecord.change(store, lambda _: took)
    return progress


def words_of_count(store: Store) -> str | None:
    """What a long count of every row is about to take; None for a short one."""
    seconds = CountRecord.last(store).seconds
    return f"counting all rows: about {duration(seconds)}" if seconds >= LONG else None


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(11_400)
    '3 h 10 min'
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3_600:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3_600:
        return f"{seconds // 3_600:.0f} h {seconds % 3_600 // 60:.0f} min"
    return f"{seconds / 86_400:.1f} days"
