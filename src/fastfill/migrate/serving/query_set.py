"""`QuerySet`: queries of the application, on which ways to serve are compared."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fastfill.errors import FileError, InputError, ShapeError, some
from fastfill.features import (
    Ints,
    Judgements,
    Matrix,
    Source,
    as_matrix,
    read_column,
    read_lines,
    read_matrix,
    read_qrels,
    read_texts,
)

MOST = 300  # queries that are kept: more would cost time and change no choice


@dataclass(frozen=True, eq=False)
class QuerySet:
    """Queries as texts, or as vectors of both models; judgements or clicks where there are some.

    >>> QuerySet(["q1", "q2"], texts=["red shoes", "a lamp"], judgements={"q1": {"item-9": 1}})
    QuerySet(2 texts, 1 judged)
    """

    ids: Sequence[str]
    texts: Sequence[str] | None = None
    old: Matrix | None = None  # (q, d_old)
    new: Matrix | None = None  # (q, d_new)
    judgements: Judgements = field(default_factory=dict)  # {query id: {item id: grade}}

    def __post_init__(self) -> None:
        if (self.texts is None) == (self.old is None or self.new is None):
            raise InputError("Queries are texts, or vectors of both models (old and new).")
        for name in ("texts", "old", "new"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.ids):
                raise ShapeError(f"{len(self.ids):,} queries, but {len(values):,} {name}.")
        if not len(self.ids):
            raise InputError("There are no queries to compare ways to serve on.")
        strangers = set(self.judgements) - set(self.ids)
        if self.judgements and len(strangers) == len(self.judgements):
            raise InputError(
                f"None of the judged queries ({some(sorted(strangers))}) is among the queries "
                f"({some(list(self.ids))}). Check that the ids are the same."
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        kind = "vectors" if self.texts is None else "texts"
        judged = len(self.judged)
        return f"QuerySet({len(self):,} {kind}{f', {judged:,} judged' if judged else ''})"

    @property
    def judged(self) -> list[str]:
        """Ids of the queries for which something is right."""
        best = {query: max(grades.values(), default=0) for query, grades in self.judgements.items()}
        return [key for key in self.ids if best.get(key, 0) > 0]

    @classmethod
    def of_vectors(
        cls, old: ArrayLike, new: ArrayLike, ids: Sequence[str] | None = None,
        judgements: Judgements | None = None,
    ) -> QuerySet:  # fmt: skip
        """The same queries under both models; they are called 0, 1, … unless they have ids."""
        old, new = as_matrix(old, "old queries"), as_matrix(new, "new queries")
        if len(old) != len(new):
            raise ShapeError(
                f"There are {len(old):,} queries under the old model and {len(new):,} under the "
                "new one: give the same queries under both, row by row."
            )
        names = [str(row) for row in range(len(old))] if ids is None else [str(key) for key in ids]
        return cls(names, old=old, new=new, judgements=judgements or {})

    @classmethod
    def read(cls, file: Source, judgements: Source | None = None) -> QuerySet:
        """From a file, and judgements (TREC or BEIR) from another.

        `.npz` holds the arrays `old` and `new`, and `ids` if they are not 0, 1, …; `.jsonl` has a
        query on each line, {"_id": "q1", "text": "…"}; any other file is one query a line, which
        are called 1, 2, … by the number of the line.
        """
        grades = {} if judgements is None else read_qrels(judgements)
        path = Path(file)
        if path.suffix == ".npz":
            return _read_vectors(path, grades)
        if path.suffix == ".jsonl":
            queries = read_texts(path, "queries")
            return cls(queries.ids, texts=queries.texts, judgements=grades)
        lines = dict(read_lines(path))
        if not lines:
            raise FileError(f"{path}: holds no queries. Write one on each line.")
        return cls([str(n) for n in lines], texts=[*lines.values()], judgements=grades)

    def sample(self, most: int = MOST, seed: int = 0) -> QuerySet:
        """At most so many: judged ones first, at random among them."""
        if len(self) <= most:
            return self
        judged = set(self.judged)
        lot = np.random.default_rng(seed).permutation(len(self))
        rank = np.array([key not in judged for key in self.ids])[lot]
        return self._take(np.sort(lot[np.argsort(rank, kind="stable")][:most]))

    def _take(self, rows: Ints) -> QuerySet:
        ids = [self.ids[row] for row in rows]
        return QuerySet(
            ids,
            None if self.texts is None else [self.texts[row] for row in rows],
            None if self.old is None else self.old[rows],
            None if self.new is None else self.new[rows],
            {key: grades for key, grades in self.judgements.items() if key in set(ids)},
        )


def _read_vectors(path: Path, grades: Mapping[str, Mapping[str, float]]) -> QuerySet:
    """Queries as vectors: the arrays `old` and `new` of an `.npz`."""
    old, new = read_matrix(f"{path}:old"), read_matrix(f"{path}:new")
    with zipfile.ZipFile(path) as archive:
        named = "ids.npy" in archive.namelist()
    ids = [str(key) for key in read_column(f"{path}:ids")] if named else None
    return QuerySet.of_vectors(old, new, ids, grades)
