"""`Migration`: the life of one upgrade, each verb of which can be repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fastfill.align import Alignment
from fastfill.errors import MigrationError
from fastfill.features import Pairs
from fastfill.gallery import Gallery, State, load_state, set_phase
from fastfill.migrate import opening, plan, verify
from fastfill.migrate.encoding import Encode
from fastfill.migrate.health import Balance, IndexHealth, balance, index_health
from fastfill.migrate.hooks import Tell
from fastfill.migrate.job import ALIGNMENTS, LEARNED_FROM, Job, documents_of, model_tag
from fastfill.migrate.leases import LEASES, REFITTING
from fastfill.migrate.limits import Limits
from fastfill.migrate.notes import (
    CONTROL,
    FAILURES,
    FORECAST,
    PANEL,
    SWEPT,
    change_note,
    history,
    note_sweep,
    read_note,
    record,
)
from fastfill.migrate.outlook import Outlook, load_outlook
from fastfill.migrate.pairs import adopt_alignment, embed_pairs, learn, read_pairs
from fastfill.migrate.progress import Progress, count
from fastfill.migrate.refit import REFIT_EVERY, forget_unused
from fastfill.migrate.settle import Settling, rearrange, settle
from fastfill.migrate.watch import AGREEMENT, Aim, Watch, can_forecast, outlook_of
from fastfill.migrate.workers import work

DEFAULT_PAIRS = 2_000
SHORT = 60.0  # seconds of a start after which edits made meanwhile are looked for
ROUNDS = 5  # sweeps of a start before it leaves what others are writing to the backfill


@dataclass(frozen=True)
class Status:
    """Where a migration stands."""

    phase: str
    progress: Progress
    state: State | None
    paused: bool
    rate: float | None
    set_aside: dict[Any, str]
    outlook: Outlook | None = None  # forecast and measured quality, where someone has asked


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
        tell: Tell | None = None,
        root: str | None = None,
    ) -> None:
        name = encoder_name or _name_of(encode)
        self._job = Job(gallery, encode, name)
        self._root = root
        if tell is not None:
            self._job.tell = tell

    @property
    def stop(self) -> threading.Event:
        """Set it to end the work cleanly after the batch."""
        return self._job.stop

    # --- before --------------------------------------------------------------------------------

    def plan(
        self, *, metric: str | None = None, label: str | None = None, **prices: float | None
    ) -> plan.Plan:
        """Rows, bytes, cost and time, and the forecast once there are pairs; changes nothing."""
        planned = plan.plan(self._job, **prices)
        state = load_state(self._job.store)
        if state is None or state.alignment is None or not can_forecast(self._job):
            return planned
        return replace(planned, outlook=self.forecast(metric, label))

    def forecast(self, metric: str | None = None, label: str | None = None) -> Outlook:
        """What quality to expect of backfilling, from the pairs; kept in the store.

        Without a label column that is the agreement of neighbours.
        """
        if label is None:
            metric = metric or AGREEMENT
        return outlook_of(self._job, self._job.state, Aim.of(None, metric, label), REFIT_EVERY)

    def statements(self, dim: int) -> list[str]:
        """The SQL that a whole migration runs, where the store speaks SQL."""
        explain = getattr(self._job.store, "statements", None)
        if explain is None:
            raise MigrationError(f"{self._job.store.name} is not a store that speaks SQL.")
        return list(explain(dim, self._job.gallery.distance))

    def pairs(self, wanted: int, progress: Callable[[int, int], None] = lambda *_: None) -> int:
        """Embed a random sample; its rows are new from now on. Returns how many rows are new."""
        with self._failure_told("pairs"):
            state = opening.open_migration(self._job, root=self._root)
            opening.expand(self._job, state)
            have = embed_pairs(self._job, state, wanted, progress)
            record(self._job.store, "pairs", rows=have)
            return have

    def read_pairs(self) -> Pairs:
        """The gallery's pairs: every row that has both vectors."""
        return read_pairs(self._job, self._job.state)

    def align(self, *, method: str = "auto", **options: Any) -> Alignment:
        """Learn the map from the gallery's pairs and keep it in the store."""
        state = learn(self._job, self._job.state, method=method, **options)
        return self._job.alignment(state)

    def start(
        self,
        pairs: int = DEFAULT_PAIRS,
        alignment: Alignment | None = None,
        *,
        policy: str | None = None,
        method: str = "auto",
        index: bool | None = None,
        progress: Callable[[str, int, int], None] = lambda *_: None,
        **options: Any,
    ) -> Settling:
        """Do whatever of pairs and align has not been done, then align every other row.

        When it ends, queries by the new model work on the whole gallery.
        """
        with self._failure_told("start"):
            return self._start(
                pairs, alignment, policy, index, progress, {"method": method, **options}
            )

    def _start(
        self,
        pairs: int,
        alignment: Alignment | None,
        policy: str | None,
        index: bool | None,
        progress: Callable[[str, int, int], None],
        learning: dict[str, Any],
    ) -> Settling:
        job = self._job
        state = opening.open_migration(job, alignment=alignment, policy=policy, root=self._root)
        job.tell("start", {"store": job.store.name, "encoder": job.encoder_name})
        opening.expand(job, state)
        if alignment is not None:
            state = adopt_alignment(job, state, alignment)
        elif state.alignment is None:
            embed_pairs(job, state, pairs, lambda done, all: progress("pairs", done, all))
            state = self._unless_stopped(lambda: learn(job, state, **learning), state)
        total = job.store.describe().rows
        done, began = Settling(), time.time()
        for round in range(ROUNDS):
            if job.stop.is_set():
                return done
            # Edits of the last seconds are left to the sweeps of the backfill, like later ones.
            sweep = round > 0 and time.time() - began > SHORT
            step = settle(
                job, state, changed=sweep, progress=lambda s: progress("rows", s.rows, total)
            )
            done = _added(done, step)
            if round > 0 and step.rows + step.refused == 0:
                break
        note_sweep(job.store, began)
        if state.phase == "starting" and not job.stop.is_set():
            self._serve(index, total)
        forget_unused(job)
        return done

    def _unless_stopped(self, step: Callable[[], State], state: State) -> State:
        return state if self._job.stop.is_set() else step()

    def _serve(self, index: bool | None, rows: int) -> None:
        """Every row has its vector: bring the store in shape, then let readers use it."""
        store = self._job.store
        store.optimize()
        if index or (index is None and store.indexed("old")):
            store.build_index("new", self._job.gallery.distance)
        state = set_phase(store, "started")
        record(store, "started", alignment=state.alignment, rows=rows)

    # --- the work ------------------------------------------------------------------------------

    def backfill(
        self,
        *,
        policy: str | None = None,
        workers: int = 1,
        until: float | None = None,
        metric: str | None = None,
        label: str | None = None,
        **limits: Any,
    ) -> Iterator[Progress]:
        """Re-embed rows in the order of the policy, until none is left or a limit is reached.

        `until` is a fraction of the new model's quality in `metric`; metrics with labels need the
        column `label` that holds them. `limits` are those of `fastfill.migrate.Limits`.
        """
        with self._failure_told("backfill"):
            watched = (until, metric, label) != (None, None, None)
            aim = Aim.of(until, metric, label) if watched else None
            state = self._ready_to_backfill(policy)
            if limits.get("rate") is not None:  # this and later runs, until another one is given
                change_note(self._job.store, CONTROL, lambda n: {**n, "rate": limits["rate"]})
            record(self._job.store, "backfill", workers=workers, policy=state.policy)
            given = Limits(**limits)
            watch = None if aim is None else Watch(self._job, state, aim, given.refit)
            yield from work(self._job, state, workers, given, watch)

    def _ready_to_backfill(self, policy: str | None) -> State:
        """The state of a migration that can be backfilled, with the policy that is wanted."""
        job, state = self._job, self._job.state
        if state.phase != "started":
            raise MigrationError(
                f"{job.store.name} is {state.phase}: "
                + ("run fastfill start first." if state.phase == "starting" else "nothing to do.")
            )
        if state.model != model_tag(job.encoder_name):
            raise MigrationError(
                f"{job.store.name} is at the model {state.encoder}, not at {job.encoder_name}. "
                "To change the model, run fastfill start with the new --encoder."
            )
        if policy is not None and policy != state.policy:
            state = set_phase(job.store, state.phase, policy=policy)
            rearrange(job, state)
            record(job.store, "changed policy", policy=policy)
        return state

    @contextmanager
    def _failure_told(self, verb: str) -> Iterator[None]:
        """A verb that ends by an error tells the hook why."""
        try:
            yield
        except Exception as error:
            details = {"store": self._job.store.name, "verb": verb, "reason": str(error)}
            self._job.tell("failed", details)
            raise

    def pause(self) -> None:
        """Ask every worker to wait after its batch."""
        _ = self._job.state
        change_note(self._job.store, CONTROL, lambda note: {**note, "paused": True})
        record(self._job.store, "paused")
        self._job.tell("paused", {"store": self._job.store.name})

    def resume(self, rate: float | None = None) -> None:
        """Let the workers go on, with another rate if one is given."""
        _ = self._job.state
        change = {"paused": False} | ({} if rate is None else {"rate": rate})
        change_note(self._job.store, CONTROL, lambda note: {**note, **change})
        record(self._job.store, "resumed", **({} if rate is None else {"rate": rate}))

    def forgive(self) -> None:
        """Try the items that were set aside again."""
        self._job.failures.forgive()

    # --- looking -------------------------------------------------------------------------------

    def status(self) -> Status:
        """Counted in the store."""
        state = load_state(self._job.store)
        if state is None or state.phase == "rolled back":
            rows = self._job.store.describe().rows
            phase = "planned" if state is None else state.phase
            return Status(phase, Progress(rows), state, False, None, {})
        if state.phase == "complete" and state.drop_old:  # the marks went with the old vectors
            rows = self._job.store.describe().rows
            return Status(state.phase, Progress(rows, new=rows), state, False, None, {})
        control = read_note(self._job.store, CONTROL)
        aside = self._job.failures.set_aside()
        progress = replace(count(self._job.store, state), failed=len(aside))
        paused = bool(control.get("paused"))
        outlook = load_outlook(self._job.store, FORECAST)
        return Status(state.phase, progress, state, paused, control.get("rate"), aside, outlook)

    def history(self) -> list[dict[str, Any]]:
        """The audit trail, oldest first."""
        return history(self._job.store)

    def verify(self, sample: int = verify.SAMPLE) -> verify.Verification:
        """Counts in the store, and a sample embedded again and compared."""
        return verify.verify(self._job, self._job.state, sample)

    def index_health(self) -> IndexHealth:
        """Recall of the index on the added column."""
        return index_health(self._job)

    def balance(self) -> Balance:
        """Does one generation crowd out the other?"""
        return balance(self._job, count(self._job.store, self._job.state))

    # --- the end -------------------------------------------------------------------------------

    def complete(self, *, drop_old: bool = False, partial: bool = False) -> None:
        """End the migration: everything is new, or `partial` accepts the aligned rows as they are.

        The old vectors stay unless `drop_old` says otherwise; until then a rollback is possible.
        """
        state = self._job.state
        if state.phase == "complete" and (state.drop_old or not drop_old):
            return
        if state.phase not in ("started", "completing", "complete"):
            raise MigrationError(f"{self._job.store.name} is {state.phase}: run fastfill start.")
        if state.phase == "started":
            self._check_complete(state, partial)
        # Noted first, so that a crash on the way cannot hide that the old vectors may be gone.
        drop_old = drop_old or state.drop_old
        set_phase(self._job.store, "completing", drop_old=drop_old)
        self._finish(drop_old)

    def _check_complete(self, state: State, partial: bool) -> None:
        settle(self._job, state, changed=True)
        found = count(self._job.store, state)
        left = found.total - found.new - (found.aligned if partial else 0)
        if left:
            raise MigrationError(
                f"{self._job.store.name}: {left:,} of {found.total:,} rows are not new "
                f"({found.aligned:,} aligned, {found.waiting:,} without any vector, "
                f"{len(self._job.failures.set_aside()):,} set aside). Run fastfill backfill, or "
                "complete --partial to keep the aligned ones as they are."
            )

    def _finish(self, drop_old: bool) -> None:
        store = self._job.store
        if drop_old:
            store.drop_old()
        store.optimize()
        set_phase(store, "complete", drop_old=drop_old)
        kept = documents_of(self._job.state.alignment or "")
        maps = [*store.names(ALIGNMENTS), *store.names(LEARNED_FROM)]
        gone = [name for name in maps if name not in kept]
        store.remove([LEASES, REFITTING, CONTROL, SWEPT, PANEL, *gone])
        record(store, "completed", drop_old=drop_old)

    def rollback(self) -> None:
        """Drop the added columns: the gallery is what it was before, but for others' writes."""
        store = self._job.store
        state = load_state(store)
        if state is None or state.phase == "rolled back":
            return
        if state.columns.old not in store.describe().columns:
            raise MigrationError(
                f"{store.name}: the old vectors have been dropped, so there is no way back."
            )
        set_phase(store, "rolling back")
        store.contract()
        store.optimize()
        maps = [*store.names(ALIGNMENTS), *store.names(LEARNED_FROM)]
        store.remove([LEASES, REFITTING, CONTROL, FAILURES, SWEPT, PANEL, FORECAST, *maps])
        set_phase(store, "rolled back")
        record(store, "rolled back", model=state.model)


def _added(one: Settling, other: Settling) -> Settling:
    return Settling(
        one.aligned + other.aligned,
        one.adopted + other.adopted,
        one.waiting + other.waiting,
        other.refused,
    )


def _name_of(encode: Encode | None) -> str:
    if encode is None:
        return ""
    module = getattr(encode, "__module__", "library")
    return f"{module}:{getattr(encode, '__qualname__', type(encode).__qualname__)}"
