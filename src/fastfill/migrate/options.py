"""What the verbs of a migration may be told, checked before anything is embedded or written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import time as clock_time

from fastfill.align import SERVINGS, Alignment, FitOptions, ServingOption, check_installed
from fastfill.errors import InputError, unknown_choice
from fastfill.gallery import LAYOUTS, LayoutOption
from fastfill.metrics import as_metric
from fastfill.migrate.encoding import Encode
from fastfill.migrate.serving.query_set import QuerySet
from fastfill.order import check_live_policy

DEFAULT_PAIRS = 2_000
REFIT_EVERY: float | None = 0.05  # of the gallery's rows
LEASE = 300.0  # seconds
RECONNECT = 120.0  # seconds
AGREEMENT = "agreement@10"


@dataclass(frozen=True)
class Prices:
    """What the encoder costs, to tell and to limit the cost of a run.

    >>> Prices(per_1k_tokens=0.5).cost(tokens=4_000, seconds=60)
    2.0
    """

    per_1k_tokens: float | None = None
    per_hour: float | None = None

    def __post_init__(self) -> None:
        for name in ("per_1k_tokens", "per_hour"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"A price {name.replace('_', ' ')} is 0 or more, not {value}.")

    @property
    def known(self) -> bool:
        """Was any price given?"""
        return (self.per_1k_tokens, self.per_hour) != (None, None)

    def cost(self, tokens: float, seconds: float) -> float:
        """Of so many tokens in so much time."""
        return (self.per_1k_tokens or 0) * tokens / 1_000 + (self.per_hour or 0) * seconds / 3_600


@dataclass(frozen=True)
class Target:
    """Which quality is watched, and which is enough.

    >>> Target.of(0.99, None, "album")
    Target(until=0.99, metric='map', label='album')
    """

    until: float | None
    metric: str
    label: str | None

    @classmethod
    def of(cls, until: float | None, metric: str | None, label: str | None) -> Target | None:
        """Checked: a metric with labels needs their column, and agreement is never a surprise."""
        if (until, metric, label) == (None, None, None):
            return None
        if until is not None and not 0 < until <= 1:
            raise InputError(f"--until is a share of the new model's quality (0.99), not {until}.")
        if metric is None and label is None:
            raise InputError(
                "Quality in which metric? Name the column that tells which answers are right "
                "(--label album), or without one say --metric agreement@10: the share of the "
                "10 neighbours by the new model that are found, which reaches 0.99 only near the "
                "end."
            )
        name = as_metric(metric or "map").name
        labelled = not name.startswith("agreement")
        if labelled and label is None:
            raise InputError(f"To measure {name}, name the column of the labels with --label.")
        return cls(until, name, label if labelled else None)


@dataclass(frozen=True)
class StartOptions:
    """How a migration starts; None: as a start asked that has not ended, else by default."""

    pairs: int | None = None  # by default 2,000
    alignment: Alignment | None = None  # learned elsewhere: no pairs are embedded
    policy: str | None = None  # None: chosen by what the alignment has
    fit: FitOptions | None = None  # by default what `auto` finds best
    index: bool | None = None  # None: where the old column has one
    serving: ServingOption | None = None  # how readers search; by default what measures best
    queries: QuerySet | None = None  # to measure it on
    encode_old: Encode | None = None  # the old model, for queries as texts
    label: str | None = None  # a column that tells what is right, where there are no queries
    layout: LayoutOption = "auto"  # where what is added is kept; auto: what suits the table
    allow_trigger: bool = False  # on the owner's table, to note what others write to it

    def __post_init__(self) -> None:
        if self.serving not in (*SERVINGS, "auto", None):
            raise InputError(unknown_choice("way to serve", str(self.serving), [*SERVINGS, "auto"]))
        if self.layout not in (*LAYOUTS, "auto"):
            raise InputError(unknown_choice("layout", self.layout, [*LAYOUTS, "auto"]))
        if self.pairs is not None and self.pairs < 2:
            raise InputError(f"At least 2 pairs are needed to learn from, got {self.pairs}.")
        if self.policy is not None:
            check_live_policy(self.policy, head=self.head_known)
        if self.alignment is None:
            check_installed((self.fit or FitOptions()).method)

    @property
    def head_known(self) -> bool:
        """Is there a classifier for the orders that need one?"""
        return self.alignment is not None and self.alignment.head is not None


@dataclass(frozen=True)
class BackfillOptions:
    """What a run of a backfill may do before it ends by itself."""

    policy: str | None = None  # None: as started
    workers: int = 1
    rows: int | None = None  # to embed in this run, by all its workers
    cost: float | None = None
    rate: float | None = None  # rows per second of each worker
    between: tuple[clock_time, clock_time] | None = None  # hours of the day in which to work
    prices: Prices = field(default_factory=Prices)
    refit: float | None = REFIT_EVERY  # learn the map again at each such share of the rows
    throttle: bool = True  # slow down when the store answers queries slowly
    batch: int | None = None  # rows claimed together; chosen by speed otherwise
    lease: float = LEASE  # seconds after which the rows of a dead worker are free
    reconnect: float = RECONNECT  # seconds for which to try when the store cannot be reached

    def __post_init__(self) -> None:
        for name in ("workers", "rows", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is a whole number from 1 on, got {value}.")
        for name in ("rate", "cost", "lease", "reconnect"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} is more than 0, got {value}.")
        if self.cost is not None and not self.prices.cost(1_000, 3_600):
            raise InputError(
                f"A limit of {self.cost:g} needs a price to be counted by: --price-per-1k-tokens "
                "or --price-per-hour."
            )
        if self.refit is not None and not 0 < self.refit < 1:
            raise InputError(f"A step between refits is a share between 0 and 1, not {self.refit}.")
