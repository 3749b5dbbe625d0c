"""Leases of many workers whose steps are interleaved in every order: no item has two holders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.gallery import Document, Id, MemoryStore
from fastfill.migrate.ledger import leases as module
from fastfill.migrate.ledger.leases import FORGOTTEN, ROWS, Lease, Leases, lease_names

SECONDS = 10.0
ITEMS = 3
TIMEOUT = 20.0


def empty_store() -> MemoryStore:
    """A store for documents alone."""
    return MemoryStore({"id": [1], "vector": [[1.0]]})


class World:
    """A store and a clock of which each use is one step, taken when its worker has the turn."""

    def __init__(self) -> None:
        self.store, self.time = empty_store(), 0.0
        self.refused = 0

    def run(
        self, scripts: Sequence[Callable[[Turn], None]], order: Sequence[tuple[int, int, float]]
    ) -> None:
        """All scripts side by side; `order` says who takes how many steps, and what time passes."""
        turns = [Turn(self, script) for script in scripts]
        for number, steps, seconds in order:
            for _ in range(steps):
                turns[number % len(turns)].step()
            self.time += seconds
        for turn in turns:
            turn.finish()


class Turn:
    """The documents as one worker sees them: every call waits for its turn."""

    def __init__(self, world: World, script: Callable[[Turn], None]) -> None:
        self._world = world
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.over = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=[script], daemon=True)
        self._thread.start()
        assert self._stopped.acquire(timeout=TIMEOUT)

    def _run(self, script: Callable[[Turn], None]) -> None:
        try:
            script(self)
        except BaseException as error:
            self._error = error
        self.over = True
        self._stopped.release()

    def wait(self, *_: object) -> None:
        """Stop here until the next turn."""
        self._stopped.release()
        assert self._go.acquire(timeout=TIMEOUT)

    def step(self) -> None:
        """Go on until the next stop."""
        if not self.over:
            self._go.release()
            assert self._stopped.acquire(timeout=TIMEOUT)
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Take all steps that are left."""
        while not self.over:
            self.step()
        self._thread.join()

    def load(self, name: str) -> Document | None:
        """One step."""
        self.wait()
        return self._world.store.load(name)

    def save(self, name: str, value: bytes, version: int) -> bool:
        """One step."""
        self.wait()
        saved = self._world.store.save(name, value, version)
        self._world.refused += not saved
        return saved

    def names(self, prefix: str) -> list[str]:
        """One step."""
        self.wait()
        return self._world.store.names(prefix)

    def remove(self, names: Sequence[str]) -> None:
        """One step."""
        self.wait()
        self._world.store.remove(names)

    def now(self) -> float:
        """Looking at the clock is a step too."""
        self.wait()
        return self._world.time


@dataclass
class Beliefs:
    """What each worker takes to be its own, and until when."""

    world: World
    held: dict[int, tuple[set[Id], float]] = field(default_factory=dict)
    claims: int = 0

    def forget(self, worker: int, keep: Sequence[Id]) -> None:
        """From now on it takes only these to be its own."""
        ids, until = self.held.get(worker, (set(), 0.0))
        self.held[worker] = (ids & set(keep), until)

    def add(self, worker: int, ids: set[Id], until: float) -> None:
        """From now on it takes these to be its own: nobody else may."""
        self.held[worker] = (ids, until)
        self.claims += bool(ids)
        now = self.world.time
        alive = {who: mine for who, (mine, until) in self.held.items() if until > now}
        for who, mine in alive.items():
            for other, theirs in alive.items():
                assert who == other or not mine & theirs, (who, other, mine & theirs)


Step = tuple[list[int], bool]
some_ids = st.lists(st.integers(0, ITEMS - 1), unique=True, min_size=1, max_size=ITEMS)
claims = st.lists(st.tuples(some_ids, st.booleans()), min_size=1, max_size=4)
passing = st.sampled_from([0.0] * 6 + [0.5, 4.0, SECONDS])  # seconds after some steps
orders = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), passing), max_size=60)


def worker(number: int, steps: Sequence[Step], beliefs: Beliefs) -> Callable[[Turn], None]:
    """Claims one after another, keeping or letting go of what it has, as a backfill does."""

    def script(turn: Turn) -> None:
        leases = Leases(turn, f"w{number}", seconds=SECONDS, rest=turn.wait)
        mine: list[Id] = []
        for ids, keeping in steps:
            keep = mine if keeping else []
            beliefs.forget(number, keep)
            wanted: list[Id] = [key for key in ids if key not in keep]
            mine = leases.claim(wanted, keep)
            # What it keeps and its lease still names is its own too.
            beliefs.add(number, set(leases._lease.ids), leases._lease.until)
            for _ in range(4):  # of work
                turn.wait()
        beliefs.forget(number, [])
        leases.release()

    return script


@settings(max_examples=500, deadline=None)
@given(plans=st.lists(claims, min_size=2, max_size=3), order=orders)
def test_no_item_has_two_holders(
    plans: list[list[Step]], order: list[tuple[int, int, float]]
) -> None:
    """In every order of steps, and however long each takes, two live leases share no item."""
    world = World()
    beliefs = Beliefs(world)
    scripts = [worker(number, steps, beliefs) for number, steps in enumerate(plans)]
    world.run(scripts, order)
    assert world.refused == 0  # no write was in vain
    assert lease_names(world.store) == []


@settings(max_examples=200, deadline=None)
@given(order=st.lists(st.integers(0, 2), max_size=60))
def test_one_of_those_who_want_the_same_gets_it(order: list[int]) -> None:
    """However their steps are interleaved, exactly one of several ends up with a free item."""
    world = World()
    got: list[list[Id]] = []

    def script(turn: Turn) -> None:
        got.append(Leases(turn, "any", seconds=SECONDS, rest=turn.wait).claim(["x"]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LOOKS", 1_000)  # nobody who gives way is that slow
        turns = [Turn(world, script) for _ in range(3)]
        for number in order:
            turns[number].step()
        while not all(turn.over for turn in turns):
            for turn in turns:
                turn.step()
    assert sorted(map(len, got)) == [0, 0, 1]


def test_a_shared_document_of_the_version_before_is_honoured_and_goes() -> None:
    """What a worker of FastFill 0.1 holds is left alone until its lease has run out."""
    now, store = [100.0], empty_store()
    old = b'{"version": 1, "leases": {"ann": {"until": 130.0, "ids": [1, 2]},'
    old += b' "eve": {"until": 110.0, "ids": [3]}}}'
    assert store.save(ROWS, old, 0)
    bob = Leases(store, "bob", seconds=SECONDS, clock=lambda: now[0])
    assert bob.claim([1, 2, 3, 4]) == [4]
    now[0] = 115.0
    assert bob.claim([1, 2, 3]) == [3]
    now[0] = 131.0
    assert bob.claim([1, 2, 3]) == [1, 2, 3]
    now[0] = 131.0 + FORGOTTEN
    assert bob.claim([5]) == [5]
    assert ROWS not in store.names(ROWS)


def held_in(store: MemoryStore) -> list[list[Id]]:
    """What each document says."""
    documents = [store.load(name) for name in lease_names(store)]
    return sorted(list(Lease.from_bytes(d.value).ids) for d in documents if d is not None)


def test_a_renewal_that_comes_too_late_gives_way() -> None:
    """Who takes a lease that runs out while its worker is about to renew it keeps the item."""
    store, now = empty_store(), [0.0]
    looks: list[float] = []

    def clock() -> float:
        looks.append(now[0])
        if len(looks) == 3 and now[0] == 9.0:  # ann knows the time, and is slow to write
            now[0] = 10.5
            assert bob.claim(["x"]) == ["x"]
            return 9.0
        return now[0]

    bob = Leases(store, "bob", seconds=SECONDS, clock=lambda: now[0])
    ann = Leases(store, "ann", seconds=SECONDS, clock=clock, rest=lambda _: None)
    assert ann.claim(["x"]) == ["x"]
    now[0] = 9.0
    looks.clear()
    assert ann.claim(["y"], keep=["x"]) == ["y"]
    assert held_in(store) == [["x"], ["y"]]


def test_a_lease_that_has_run_out_is_never_renewed() -> None:
    """Its worker goes on under another name, so that whoever removes the document may be slow."""
    store, now = empty_store(), [0.0]
    ann = Leases(store, "ann", seconds=SECONDS, clock=lambda: now[0])
    assert ann.claim(["x"]) == ["x"]
    first = lease_names(store)
    now[0] = 5.0
    assert ann.claim(["y"], keep=["x"]) == ["y"]
    assert lease_names(store) == first
    now[0] = 5.0 + SECONDS
    assert ann.claim(["z"], keep=["y"]) == ["z"]
    assert lease_names(store) != first
    assert held_in(store) == [["y", "z"]]


def test_what_the_dead_leave_is_removed_later() -> None:
    """The document of a worker that died is there for a while after its lease, and then gone."""
    now, store = [0.0], empty_store()
    dead, alive = (Leases(store, who, seconds=SECONDS, clock=lambda: now[0]) for who in "da")
    assert dead.claim(["x"]) == ["x"]
    now[0] = SECONDS + 1
    assert alive.claim(["x"]) == ["x"]
    assert len(lease_names(store)) == 2
    now[0] = SECONDS + FORGOTTEN + 1
    assert alive.claim(["y"]) == ["y"]
    assert len(lease_names(store)) == 1
    assert dead.claim(["x", "y"]) == ["x"]  # it was only asleep


def test_a_worker_that_is_taken_for_dead_goes_on_under_another_name() -> None:
    """Where a document was removed although its worker lives, the next claim makes another."""
    store = empty_store()
    ann = Leases(store, "ann", seconds=60)
    assert ann.claim([1]) == [1]
    store.remove(before := lease_names(store))
    assert ann.claim([2], keep=[1]) == [2]
    (name,) = lease_names(store)
    document = store.load(name)
    assert name not in before
    assert document is not None
    assert Lease.from_bytes(document.value).ids == [1, 2]


def test_two_kinds_of_leases_do_not_meet() -> None:
    """Rows and the map are leased apart, whatever their ids are."""
    store: Any = empty_store()
    rows, refit = Leases(store, "a", seconds=60), Leases(store, "a", seconds=60, kind=module.REFIT)
    assert rows.claim(["map"]) == ["map"]
    assert refit.claim(["map"]) == ["map"]
