"""`Migration`: the life of one upgrade, each verb of which can be repeated."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import time as clock_time
from typing import Any

from numpy.typing import ArrayLike

from fastfill.align import Alignment, FitOptions, ServingOption
from fastfill.errors import MigrationError
from fastfill.features import Pairs
from fastfill.gallery import (
    Gallery,
    LateWrites,
    LayoutChoice,
    LayoutOption,
    State,
    late_writes_of,
    load_state,
)
from fastfill.migrate.encoding import Encode
from fastfill.migrate.events import Callback, ignore
from fastfill.migrate.finishing import complete_migration, roll_back, swap_back
from fastfill.migrate.health import Balance, IndexHealth, balance, index_health
from fastfill.migrate.job import Job
from fastfill.migrate.layout import choose_layout
from fastfill.migrate.learning import learn
from fastfill.migrate.ledger.audit import AuditReader, record
from fastfill.migrate.ledger.control import Control
from fastfill.migrate.model_check import check_before_work, check_model
from fastfill.migrate.opening import expand, open_migration, set_policy
from fastfill.migrate.options import (
    AGREEMENT,
    LEASE,
    RECONNECT,
    REFIT_EVERY,
    BackfillOptions,
    Prices,
    StartOptions,
    Target,
)
from fastfill.migrate.pairs import embed_pairs, embed_sample, read_pairs
from fastfill.migrate.planning import Plan, make_plan
from fastfill.migrate.progress import Progress, count
from fastfill.migrate.quality.quality_forecast import QualityForecast
from fastfill.migrate.quality.sample import check_label
from fastfill.migrate.quality.watch import QualityWatch, can_forecast, forecast_quality
from fastfill.migrate.run.heartbeat import with_heartbeat
from fastfill.migrate.run.rolled_back import endings_told
from fastfill.migrate.run.workers import run_workers
from fastfill.migrate.serving.choosing import choose_by_label
from fastfill.migrate.serving.query_set import QuerySet
from fastfill.migrate.settling import Settling
from fastfill.migrate.starting import start_migration
from fastfill.migrate.status import Status, read_status
from fastfill.migrate.verify import SAMPLE, Verification, verify_rows


class Migration:
    """The life of one upgrade: planned → started → backfilling ⇄ paused → complete.

    >>> from fastfill.gallery import MemoryStore
    >>> rows = {"id": [*range(60)], "text": [f"{i:03}" for i in range(60)],
    ...         "vector": [[i % 5, i % 7, 1.0] for i in range(60)]}
    >>> encode = lambda texts: [[int(t) % 5 + 1, int(t) % 7 + 1] for t in texts]
    >>> migration = Migration(Gallery(MemoryStore(rows), input="text", distance="l2"), encode)
    >>> migration.start(pairs=30, method="ridge").aligned
    30
    >>> [*migration.backfill(rows=10)][-1].new
    40
    >>> [*migration.backfill()][-1].fraction
    1.0
    >>> migration.complete()
    """

    def __init__(
        self,
        gallery: Gallery,
        encode: Encode | None = None,
        *,
        encoder_name: str | None = None,
        callback: Callback = ignore,
        root: str | None = None,
        tell: Callback | None = None,
    ) -> None:
        """`callback` hears of events (see `fastfill.migrate.EVENTS`); `root` is the folder or URL
        that inputs are paths under. (`tell` is what `callback` was called before.)"""
        if tell is not None:
            _renamed("tell", "callback")
            callback = tell
        self._job = Job(gallery, encode, encoder_name or _name_of(encode), callback)
        self._root = root
        self._audit = AuditReader(gallery.store)

    @property
    def stop(self) -> threading.Event:
        """Set it to end the work cleanly after the batch."""
        return self._job.stop

    @property
    def prompts(self) -> str:
        """What the encoder puts before items and queries; empty where it does not tell."""
        return self._job.identity.prompts

    # --- before --------------------------------------------------------------------------------

    def plan(
        self,
        *,
        metric: str | None = None,
        label: str | None = None,
        price_per_1k_tokens: float | None = None,
        price_per_hour: float | None = None,
        layout: LayoutOption = "auto",
    ) -> Plan:
        """Rows, bytes, cost and time, and the forecast once there are pairs; changes nothing."""
        chosen = self.layout(layout)
        plan = make_plan(self._job, Prices(price_per_1k_tokens, price_per_hour), chosen)
        state = load_state(self._job.store)
        if state is None or state.alignment is None or not can_forecast(self._job):
            return plan
        return replace(plan, forecast=self.forecast(metric, label))

    def forecast(self, metric: str | None = None, label: str | None = None) -> QualityForecast:
        """What quality to expect of backfilling, from the pairs; kept in the store.

        Without a label column that is the agreement of neighbours.
        """
        if label is None:
            metric = metric or AGREEMENT
        target = Target.of(None, metric, label)
        assert target is not None  # noqa: S101 - a metric or a label is given
        return forecast_quality(self._job, self._job.state_at_work, target, REFIT_EVERY)

    def layout(self, wanted: LayoutOption = "auto") -> LayoutChoice:
        """Where what is added is, or would be kept, and why; changes nothing."""
        return choose_layout(self._job, StartOptions(layout=wanted).layout)

    def statements(self, dim: int, layout: LayoutOption = "auto") -> list[str]:
        """The SQL that a whole migration runs, where the store speaks SQL."""
        store = self._job.store
        explain = getattr(store, "statements", None)
        if explain is None:
            raise MigrationError(f"{store.name} is not a store that speaks SQL.")
        distance = self._job.gallery.distance
        store.bind(replace(store.columns, layout=self.layout(layout).layout))
        return list(explain(dim, distance))

    def pairs(
        self,
        wanted: int,
        progress: Callable[[int, int], None] = lambda *_: None,
        *,
        layout: LayoutOption = "auto",
    ) -> int:
        """Embed a random sample; its rows are new from now on. Returns how many rows are new.

        layout: as of `start`.
        """
        options = StartOptions(pairs=wanted, layout=layout)
        with self._failures_reported("pairs"):
            state = open_migration(self._job, root=self._root, layout=options.layout)
            expand(self._job, state)
            have = embed_pairs(self._job, state, wanted, progress)
            record(self._job.store, "pairs", {"rows": have})
            return have

    def read_pairs(self) -> Pairs:
        """The gallery's pairs: every row that has both vectors."""
        return read_pairs(self._job, self._job.state_at_work)

    def align(
        self,
        *,
        method: str | None = None,
        fit: FitOptions | None = None,
        head: ArrayLike | None = None,
    ) -> Alignment:
        """Learn the map from the gallery's pairs and keep it in the store.

        `head` is the new model's classifier, for orders that look at it.
        """
        state = learn(self._job, self._job.state_at_work, _fit(method, fit), head)
        return self._job.alignment(state)

    def start(
        self,
        pairs: int | None = None,
        alignment: Alignment | None = None,
        *,
        policy: str | None = None,
        method: str | None = None,
        fit: FitOptions | None = None,
        index: bool | None = None,
        serving: ServingOption | None = None,
        queries: QuerySet | None = None,
        encode_old: Encode | None = None,
        label: str | None = None,
        layout: LayoutOption = "auto",
        allow_trigger: bool = False,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> Settling:
        """Do whatever of pairs and align has not been done, then align every other row.

        When it ends, readers search in the way that measured best (`status().serving`), with the
        old model, with the new one on the whole gallery, or with both.

        A start that was killed goes on by another one, as the first was asked: what is not given
        again is kept in the store, but for files of queries that it had not read yet.

        pairs: random rows to embed and learn from, 2,000 by default. alignment: one that was
        learned elsewhere, in the place of pairs. policy: the order of backfilling (see
        `fastfill.order`). method: how the map is learned; `fit` has all its options. index: build
        one on the added column, by default where the old column has one. serving: old, aligned or
        both, not to be measured (auto: measured). queries: what to measure on, else pairs, or
        sentences that items begin with where `encode_old` is given, the old model, which queries as
        texts need too. label: a column that tells what is right without queries: the pairs' own
        labels. layout: where what is added is kept, `columns` of the owner's table or, on
        PostgreSQL, a `side` table. allow_trigger: a trigger on the owner's table may note what
        others write, so that sweeps of a side table read that alone. progress: hears what is done,
        rows done, rows in all.
        """
        asked = None if method is None and fit is None else _fit(method, fit)
        options = StartOptions(
            pairs, alignment, policy, asked, index, serving, queries, encode_old, label,
            layout, allow_trigger,
        )  # fmt: skip
        with self._failures_reported("start"):
            return start_migration(self._job, options, self._root, progress)

    # --- the work ------------------------------------------------------------------------------

    def backfill(
        self,
        *,
        until: float | None = None,
        metric: str | None = None,
        label: str | None = None,
        policy: str | None = None,
        workers: int = 1,
        rows: int | None = None,
        cost: float | None = None,
        price_per_1k_tokens: float | None = None,
        price_per_hour: float | None = None,
        rate: float | None = None,
        between: tuple[clock_time, clock_time] | None = None,
        refit: float | None = REFIT_EVERY,
        throttle: bool = True,
        batch: int | None = None,
        lease: float = LEASE,
        reconnect: float = RECONNECT,
        make_room: bool | None = None,
    ) -> Iterator[Progress]:
        """Re-embed rows in the order of the policy, until none is left or a limit is reached.

        until: a fraction of the new model's quality in `metric` that is enough; metrics with
        labels need the column `label` that holds them. policy: another order from now on. workers:
        encoders side by side. rows, cost: what this run may embed, and spend by the price of a
        thousand tokens or of an hour. rate: rows per second of each worker, in this and later
        runs. between: hours of the day in which to work. refit:
        the share of the rows after which the map is learned again; None: never. throttle: slow
        down when queries become slow. batch: rows embedded together, chosen by speed otherwise.
        lease: seconds after which a dead worker's rows are free. reconnect: seconds for which to
        try again when the store cannot be reached. (`make_room` is what `throttle` was called.)
        """
        if make_room is not None:
            _renamed("make_room", "throttle")
            throttle = make_room
        target = Target.of(until, metric, label)
        prices = Prices(price_per_1k_tokens, price_per_hour)
        options = BackfillOptions(
            policy, workers, rows, cost, rate, between, prices, refit, throttle, batch, lease,
            reconnect,
        )  # fmt: skip
        return self._backfill(options, target)

    def _backfill(self, options: BackfillOptions, target: Target | None) -> Iterator[Progress]:
        job = self._job
        with self._failures_reported("backfill"):
            job.store.reconnect_for = options.reconnect
            if target is not None and target.label is not None:
                check_label(job, target.label)
            state = self._ready_to_backfill(options.policy)
            if target is not None and target.label is not None:
                state = choose_by_label(job, state, target.label)
            if options.rate is not None:  # this and later runs, until another one is given
                Control.set(job.store, rate=options.rate)
            details = {"workers": options.workers, "policy": state.policy}
            record(job.store, "backfill", details)
            steps = self._steps(state, options, target)
            with endings_told(job, state):
                yield from with_heartbeat(job.store, steps, reason=job.waits.reason)

    def _steps(
        self, state: State, options: BackfillOptions, target: Target | None
    ) -> Generator[Progress, None, None]:
        """The work of a backfill, and what comes before it where quality is watched."""
        job, watch = self._job, None
        yield from check_before_work(job, state)
        if target is not None:
            yield replace(
                count(job.store, state, about=True), doing="looking for rows to measure on"
            )
            embed_sample(job, state)
            watch = QualityWatch(job, target, options.refit)
        yield from run_workers(job, state, options, watch)

    def _ready_to_backfill(self, policy: str | None) -> State:
        """The state of a migration that can be backfilled, with the policy that is wanted."""
        job, state = self._job, self._job.state_at_work
        if state.phase != "started":
            raise MigrationError(
                f"{job.store.name} is {state.phase}: "
                + ("run fastfill start first." if state.phase == "starting" else "nothing to do.")
            )
        check_model(job, state)
        return set_policy(job, job.keep_settings(state), policy)

    @contextmanager
    def _failures_reported(self, verb: str) -> Iterator[None]:
        """A verb that ends by an error calls back with the reason."""
        try:
            yield
        except Exception as error:
            details = {"store": self._job.store.name, "verb": verb, "reason": str(error)}
            self._job.callback("failed", details)
            raise

    def pause(self) -> None:
        """Ask every worker to wait after its batch."""
        self._check_working()
        Control.set(self._job.store, paused=True)
        record(self._job.store, "paused")
        self._job.callback("paused", {"store": self._job.store.name})

    def resume(self, rate: float | None = None) -> None:
        """Let the workers go on, with another rate if one is given."""
        options = BackfillOptions(rate=rate)
        self._check_working()
        Control.set(self._job.store, paused=False, rate=options.rate)
        record(self._job.store, "resumed", {} if rate is None else {"rate": rate})

    def _check_working(self) -> None:
        """Refuse where no worker could be waiting, or be told to wait."""
        if (phase := self._job.state_at_work.phase) not in ("starting", "started"):
            raise MigrationError(
                f"{self._job.store.name} is {phase}: no worker is to wait or go on."
            )

    def retry_failed(self) -> None:
        """Try the items that are quarantined again."""
        self._job.quarantine.release()

    def forgive(self) -> None:
        """What `retry_failed` was called before."""
        _renamed("forgive", "retry_failed")
        self.retry_failed()

    # --- looking -------------------------------------------------------------------------------

    def status(self, counted: Progress | None = None) -> Status:
        """Counted in the store, unless the rows have been `counted` just now."""
        return read_status(self._job, counted)

    def history(self) -> list[dict[str, Any]]:
        """The audit trail, oldest first."""
        return self._audit.read()

    def verify(self, sample: int = SAMPLE, seed: int | None = None) -> Verification:
        """Counts in the store, and so many random rows of each generation made again and compared.

        They are others each time, unless a seed is given.
        """
        state = self._job.state_at_work
        if state.swapped:
            raise MigrationError(
                f"{self._job.store.name} is complete under its own name, where the application "
                "writes by itself: there is nothing to compare with. verify before --swap."
            )
        return verify_rows(self._job, state, sample, seed)

    def index_health(self) -> IndexHealth:
        """Recall of the index on the added column."""
        return index_health(self._job)

    def balance(self) -> Balance:
        """Does one generation crowd out the other?"""
        return balance(self._job, count(self._job.store, self._job.state_at_work))

    # --- the end -------------------------------------------------------------------------------

    def complete(
        self, *, drop_old: bool = False, partial: bool = False, swap: bool = False
    ) -> None:
        """End the migration: everything is new, or `partial` accepts the aligned rows as they are.

        The old vectors stay unless `drop_old` says otherwise; until then a rollback is possible.
        With `swap` the new vectors bear the name that the old ones had.
        """
        complete_migration(self._job, drop_old=drop_old, partial=partial, swap=swap)

    def swap_back(self) -> None:
        """Give the old vectors their name back, after `complete(swap=True)`."""
        swap_back(self._job)

    def late_writes(self) -> tuple[LateWrites, ...]:
        """What others wrote during the latest swap, and was left for the operator to decide."""
        return late_writes_of(self._job.store)

    def rollback(self) -> bool:
        """Drop the added columns: the gallery is what it was before, but for others' writes.

        Returns False where that was done before, and nothing is left to do.
        """
        return roll_back(self._job)


def _fit(method: str | None, fit: FitOptions | None) -> FitOptions:
    """All options of the fit, with the method where it is named by itself."""
    options = fit or FitOptions()
    return options if method is None else replace(options, method=method)


def _renamed(before: str, now: str) -> None:
    """Accept an old name, and say so."""
    warnings.warn(f"'{before}' is called '{now}' now.", DeprecationWarning, stacklevel=3)


def _name_of(encode: Encode | None) -> str:
    if encode is None:
        return ""
    module = getattr(encode, "__module__", "library")
    return f"{module}:{getattr(encode, '__qualname__', type(encode).__qualname__)}"
