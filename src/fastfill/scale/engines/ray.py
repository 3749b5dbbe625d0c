"""Ray: a task for each piece, tried again where its machine is lost; or actors, for encoders."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastfill.errors import EngineError, FastFillError
from fastfill.scale.packages import import_extra
from fastfill.scale.pieces import Piece

T = TypeVar("T")

RETRIES = 4  # of a piece whose worker was lost
AHEAD = 3  # pieces for each worker that are waiting or done and not yet asked for
QUEUED = 2  # pieces that an actor has: one that it does, and the next
PATIENCE = 10.0  # seconds without any actor after which that is told

Tell = Callable[[str], None]


def make_engine(address: str | None, workers: int) -> RayEngine:
    """A cluster at an address (`auto`: that of this machine), or one of this machine alone."""
    _import_ray()
    return RayEngine(address, workers)


def _import_ray() -> Any:
    return import_extra("ray", "ray", "ray", "The engine ray")


@dataclass(frozen=True)
class RayEngine:
    """Remote tasks, or with `actors` so many processes that keep what they have loaded.

    Machines of a cluster need FastFill installed, and read and write the same storage. A cluster
    may grow: its cores are looked up again and again, and an actor gets pieces once it has started.
    """

    address: str | None = None
    workers: int = 0  # 0: all cores of the cluster
    actors: int = 0  # 0: tasks
    tell: Tell = field(default=lambda _: None, repr=False, compare=False)  # what is waited for

    def map(self, work: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[T]:
        """The results in the order of the pieces."""
        ray = self._connected()
        if self.actors:
            kept = ray.put(work)  # to the end: an actor that starts again is given it again
            yield from _ActorRun(ray, self._actors(ray, kept), pieces, self.tell).results()
            return
        submit = _task_calls(ray, work)
        waiting, running = deque(pieces), deque[tuple[Piece, Any]]()
        while waiting or running:
            most = AHEAD * (self.workers or max(_cores(ray), 1))
            while waiting and len(running) < most:
                running.append((waiting[0], submit(waiting.popleft())))
            piece, call = running.popleft()
            yield _result(ray, piece, call)

    def _connected(self) -> Any:
        ray = _import_ray()
        if not ray.is_initialized():
            local = self.address is None and not os.environ.get("RAY_ADDRESS")
            cores = self.workers or None if local else None
            try:
                ray.init(
                    "local" if local else self.address, num_cpus=cores, include_dashboard=False,
                    log_to_driver=False, logging_level="error",
                )  # fmt: skip
            except Exception as error:  # Ray raises plain exceptions here
                where = f"at {self.address} cannot be reached" if self.address else "did not start"
                text = next(iter(str(error).splitlines()), type(error).__name__)
                raise EngineError(f"Ray {where} ({text}). Start it, and run again.") from error
            if local and self.actors > _cores(ray):  # it never grows
                raise EngineError(
                    f"Ray has {_cores(ray)} cores, and {self.actors} actors need one each: use "
                    "fewer."
                )
        return ray

    def _actors(self, ray: Any, kept: Any) -> list[Any]:
        """Processes that keep the work; one that dies starts again, where there is room for it."""
        options: dict[str, float] = {"num_cpus": 1, "max_restarts": -1}
        cards = int(ray.cluster_resources().get("GPU", 0))
        if cards:  # several share one where there are not enough
            options["num_gpus"] = 1 / -(-self.actors // cards)
        return [ray.remote(_Worker).options(**options).remote(kept) for _ in range(self.actors)]


def _cores(ray: Any) -> int:
    """Of the cluster as it is now."""
    return int(ray.cluster_resources().get("CPU", 0))


class _LostError(EngineError):
    """The process that did a piece is gone."""


class _ActorRun:
    """Gives the next piece to whichever actor has the fewest, and results out in order.

    Actors that have not started hold nothing up, nor do those that are lost, whose pieces others
    do: on a cluster they may wait for a machine as long as they like.
    """

    def __init__(
        self, ray: Any, actors: Sequence[Any], pieces: Sequence[Piece], tell: Tell
    ) -> None:
        self._ray, self._actors, self._pieces, self._tell = ray, actors, pieces, tell
        self._starting: dict[Any, int] = {}  # call: actor
        self._held: dict[int, int] = {}  # by actor that has started: its pieces
        self._again: list[int] = []  # places of pieces whose actor was lost
        self._lost = [0] * len(pieces)  # how often
        for number in range(len(actors)):
            self._await(number)
        self._running: dict[Any, tuple[int, int]] = {}  # call: place of its piece, actor
        self._done: dict[int, Any] = {}
        self._next = 0  # piece to be given out

    def results(self) -> Iterator[Any]:
        """One after the other; a slow piece holds none of the others up."""
        for place in range(len(self._pieces)):
            while place not in self._done:
                self._submit(place)
                self._collect()
            yield self._done.pop(place)

    def _await(self, actor: int) -> None:
        started = self._actors[actor].ready.options(max_task_retries=-1).remote()
        self._starting[started] = actor

    def _submit(self, wanted: int) -> None:
        end = min(len(self._pieces), wanted + 4 * AHEAD * len(self._actors))
        while self._again or self._next < end:
            actor = min(self._held, key=lambda each: self._held[each], default=None)
            if actor is None or self._held[actor] >= QUEUED:
                return
            if self._again:
                place = self._again.pop(0)
            else:
                place, self._next = self._next, self._next + 1
            call = self._actors[actor].do.remote(self._pieces[place])
            self._running[call] = (place, actor)
            self._held[actor] += 1

    def _collect(self) -> None:
        patience = None if self._held else PATIENCE
        ready, _ = self._ray.wait([*self._running, *self._starting], timeout=patience)
        if not ready:
            self._tell(
                f"Ray has {_cores(self._ray)} cores, and no room for an actor, of which "
                f"{len(self._actors)} are wanted with one core each: waiting for the cluster."
            )
        for call in ready:
            if call in self._starting:
                _result(self._ray, self._pieces[0], call)
                self._held[self._starting.pop(call)] = 0
            else:
                self._take(call)

    def _take(self, call: Any) -> None:
        """The result of a piece; without its actor another one does it."""
        place, actor = self._running.pop(call)
        try:
            self._done[place] = _result(self._ray, self._pieces[place], call)
        except _LostError:
            self._lost[place] += 1
            if self._lost[place] > RETRIES:
                raise
            self._again.append(place)
            if self._held.pop(actor, None) is not None:
                self._await(actor)
        else:
            if actor in self._held:
                self._held[actor] -= 1


class _Worker:
    """What an actor keeps from piece to piece: the work, with the encoder that it has opened."""

    def __init__(self, work: Callable[[Piece], Any]) -> None:
        self._work = work

    def ready(self) -> None:
        """It has started."""

    def do(self, piece: Piece) -> Any:
        """One piece."""
        return self._work(piece)


def _task_calls(ray: Any, work: Callable[[Piece], Any]) -> Callable[[Piece], Any]:
    kept = ray.put(work)  # travels once to each machine
    task = ray.remote(_do).options(num_cpus=1, max_retries=RETRIES)

    def submit(piece: Piece) -> Any:
        return task.remote(kept, piece)

    return submit


def _do(work: Callable[[Piece], T], piece: Piece) -> T:
    return work(piece)


def _result(ray: Any, piece: Piece, call: Any) -> Any:
    try:
        return ray.get(call)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FastFillError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise _LostError(
            f"{piece.name}: its workers were lost {RETRIES + 1} times ({text}). Run again: "
            "finished pieces are kept."
        ) from error
