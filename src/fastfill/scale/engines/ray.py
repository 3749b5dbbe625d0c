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
        submit = self._actor_calls(ray, work) if self.actors else _task_calls(ray, work)
        most = AHEAD * (self.actors or self.workers or cores)
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

    def _actor_calls(self, ray: Any, work: Callable[[Piece], Any]) -> Callable[[Piece], Any]:
        """Each piece goes to the next actor; one that dies starts again with its pieces."""
        options: dict[str, float] = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": RETRIES}
        cards = int(ray.cluster_resources().get("GPU", 0))
        if cards:  # several share one where there are not enough
            options["num_gpus"] = 1 / -(-self.actors // cards)
        kept = ray.put(work)
        pool = deque(
            ray.remote(_Worker).options(**options).remote(kept) for _ in range(self.actors)
        )

        def submit(piece: Piece, _kept: Any = kept) -> Any:
            # An actor that starts again is given the work again: Ray must not forget it.
            pool.rotate(-1)
            return pool[0].do.remote(piece)

        return submit


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
