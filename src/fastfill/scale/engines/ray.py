"""Ray: a task for each piece, tried again where its machine is lost; or actors, for encoders."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastfill.errors import EngineError, FastFillError
from fastfill.scale.packages import import_extra
from fastfill.scale.pieces import Piece

T = TypeVar("T")

RETRIES = 4  # of a piece whose worker was lost
AHEAD = 3  # pieces for each worker that are waiting or done and not yet asked for
QUEUED = 2  # pieces that an actor has: one that it does, and the next


def make_engine(address: str | None, workers: int) -> RayEngine:
    """A cluster at an address (`auto`: that of this machine), or one of this machine alone."""
    _import_ray()
    return RayEngine(address, workers)


def _import_ray() -> Any:
    return import_extra("ray", "ray", "ray", "The engine ray")


@dataclass(frozen=True)
class RayEngine:
    """Remote tasks, or with `actors` so many processes that keep what they have loaded.

    Machines of a cluster need FastFill installed, and read and write the same storage.
    """

    address: str | None = None
    workers: int = 0  # 0: all cores of the cluster
    actors: int = 0  # 0: tasks

    def map(self, work: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[T]:
        """The results in the order of the pieces."""
        ray = self._connected()
        cores = int(ray.cluster_resources().get("CPU", 1))
        if self.actors > cores:
            raise EngineError(
                f"Ray has {cores} cores, and {self.actors} actors need one each: use fewer."
            )
        if self.actors:
            kept = ray.put(work)  # to the end: an actor that starts again is given it again
            yield from _ActorRun(ray, self._actors(ray, kept), pieces).results()
            return
        submit = _task_calls(ray, work)
        most = AHEAD * (self.workers or cores)
        waiting, running = deque(pieces), deque[tuple[Piece, Any]]()
        while waiting or running:
            while waiting and len(running) < most:
                running.append((waiting[0], submit(waiting.popleft())))
            piece, call = running.popleft()
            yield _result(ray, piece, call)

    def _connected(self) -> Any:
        ray = _import_ray()
        if not ray.is_initialized():
            cores = None if self.address else self.workers or None
            try:
                ray.init(
                    self.address, num_cpus=cores, include_dashboard=False, log_to_driver=False,
                    logging_level="error",
                )  # fmt: skip
            except Exception as error:  # Ray raises plain exceptions here
                where = f"at {self.address} cannot be reached" if self.address else "did not start"
                text = next(iter(str(error).splitlines()), type(error).__name__)
                raise EngineError(f"Ray {where} ({text}). Start it, and run again.") from error
        return ray

    def _actors(self, ray: Any, kept: Any) -> list[Any]:
        """Processes that keep the work; one that dies starts again with its pieces."""
        options: dict[str, float] = {
            "num_cpus": 1, "max_restarts": -1, "max_task_retries": RETRIES,
        }  # fmt: skip
        cards = int(ray.cluster_resources().get("GPU", 0))
        if cards:  # several share one where there are not enough
            options["num_gpus"] = 1 / -(-self.actors // cards)
        return [ray.remote(_Worker).options(**options).remote(kept) for _ in range(self.actors)]


class _ActorRun:
    """Gives the next piece to whichever actor has the fewest, and results out in order."""

    def __init__(self, ray: Any, actors: Sequence[Any], pieces: Sequence[Piece]) -> None:
        self._ray, self._actors, self._pieces = ray, actors, pieces
        self._held = [0] * len(actors)
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

    def _submit(self, wanted: int) -> None:
        end = min(len(self._pieces), wanted + 4 * AHEAD * len(self._actors))
        while self._next < end and min(self._held) < QUEUED:
            actor = self._held.index(min(self._held))
            call = self._actors[actor].do.remote(self._pieces[self._next])
            self._running[call] = (self._next, actor)
            self._held[actor] += 1
            self._next += 1

    def _collect(self) -> None:
        ready, _ = self._ray.wait(list(self._running))
        for call in ready:
            place, actor = self._running.pop(call)
            self._held[actor] -= 1
            self._done[place] = _result(self._ray, self._pieces[place], call)


class _Worker:
    """What an actor keeps from piece to piece: the work, with the encoder that it has opened."""

    def __init__(self, work: Callable[[Piece], Any]) -> None:
        self._work = work

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
        raise EngineError(
            f"{piece.name}: its workers were lost {RETRIES + 1} times ({text}). Run again: "
            "finished pieces are kept."
        ) from error
