"""Daft: a table with a row for each piece, and a column that is the work on it.

Daft spreads the rows over processes of this machine, or, with an address, over a Ray cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastfill.errors import EngineError, FastFillError
from fastfill.scale.engines.threads import one_thread_for_blas
from fastfill.scale.packages import import_extra
from fastfill.scale.pieces import Piece

T = TypeVar("T")


def make_engine(address: str | None, workers: int) -> DaftEngine:
    """On this machine, or on a Ray cluster at an address."""
    _import_daft()
    return DaftEngine(address, workers or len(os.sched_getaffinity(0)))


def _import_daft() -> Any:
    return import_extra("daft", "daft", "daft", "The engine daft")


@dataclass(frozen=True)
class DaftEngine:
    """A column of Daft, made by `workers` replicas of a function."""

    address: str | None
    workers: int

    def map(self, work: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[T]:
        """The results in the order of the pieces; nothing is handed on before all are done."""
        if not pieces:
            return
        daft = _import_daft()
        if self.address is not None:
            daft.set_runner_ray(self.address)
        kind = daft.DataType.python()
        replicated = daft.udf(
            return_dtype=kind, batch_size=1, concurrency=self.workers, use_process=True
        )

        def do(column: Any) -> list[Any]:
            one_thread_for_blas()
            return [(piece.number, work(piece)) for piece in column.to_pylist()]

        table = daft.from_pydict({"piece": daft.Series.from_pylist(list(pieces), dtype=kind)})
        results = table.select(replicated(do)(daft.col("piece")).alias("result"))
        yield from (result for _, result in sorted(_rows(results), key=lambda row: int(row[0])))


def _rows(results: Any) -> list[Any]:
    """Run it all; errors of the work come wrapped in Daft's own."""
    try:
        return list(results.to_pydict()["result"])
    except Exception as error:
        if isinstance(error.__cause__, FastFillError):
            raise error.__cause__ from None
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise EngineError(f"Daft: {text}. Run again: finished pieces are kept.") from error
