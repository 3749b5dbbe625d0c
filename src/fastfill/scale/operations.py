"""What is done with the rows of a piece: align them, score them (and in `embedding`, embed them).

An operation is a small frozen value that travels to the workers. It turns record batches into
record batches of the columns that it adds, and knows nothing of files, tables and engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Aligned, Alignment
from fastfill.errors import OrderError
from fastfill.features import Matrix, check_finite
from fastfill.features.parquet_files import list_matrix
from fastfill.order import POLICIES, PolicyInput, check_policy
from fastfill.scale.pieces import Piece, digest

Scores = NDArray[np.float64]

BY_ROW = ("sigma", "random", "mixed", "entropy", "margin", "least-confidence")
BY_VARIANCE = ("sigma", "mixed")  # of these policies σ² alone is enough
MADE_BY = b"fastfill.made_by"  # in the metadata of a column


class Operation(Protocol):
    """Columns that are made of others, row by row."""

    @property
    def reads(self) -> list[str]:
        """The columns that it looks at."""
        ...

    @property
    def job(self) -> str:
        """What it does, for people: results of another job are never replaced by its own."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes whenever its results do."""
        ...

    @property
    def tags(self) -> dict[str, str]:
        """The columns that it adds, with what each says of what it was made by."""
        ...

    def __call__(self, batch: Any, piece: Piece, first_row: int) -> Any:
        """The added columns of a record batch, which begins at this row of the piece."""
        ...


@lru_cache(maxsize=2)
def _loaded(artefact: bytes) -> Alignment:
    """An alignment is read once in each process."""
    return Alignment.from_bytes(artefact)


@dataclass(frozen=True)
class AlignmentSpec:
    """An alignment and the column of old vectors that it is applied to."""

    artefact: bytes = field(repr=False)
    fingerprint: str
    column: str

    @classmethod
    def of(cls, alignment: Alignment, column: str) -> AlignmentSpec:
        """To be sent to the workers."""
        return cls(alignment.to_bytes(), alignment.fingerprint, column)

    @property
    def alignment(self) -> Alignment:
        """The alignment itself, which this process keeps."""
        return _loaded(self.artefact)

    @property
    def aligned_column(self) -> str:
        """The column of aligned vectors."""
        return f"{self.column}_aligned"

    @property
    def variance_column(self) -> str:
        """The column of their predicted error."""
        return f"{self.column}_variance"

    def has_written(self, schema: Any) -> bool:
        """Does a data set hold the error of its rows, as this very alignment predicts it?"""
        return is_made_by(schema, {self.variance_column: self.fingerprint})

    def vectors(self, batch: Any, piece: Piece, first_row: int) -> Matrix:
        """The old vectors of a record batch."""
        column, dim = batch.column(self.column), self.alignment.old_dim
        lists = list_matrix(column, piece.name, first_row, dim, self.column)
        matrix = np.ascontiguousarray(lists, dtype=np.float32)
        check_finite(matrix, piece.name, first_row)
        return matrix

    def aligned(self, batch: Any, piece: Piece, first_row: int) -> Aligned:
        """The aligned vectors of a record batch."""
        old = self.vectors(batch, piece, first_row)
        return self.alignment.mapped(old, None, piece.name, first_row)


@dataclass(frozen=True)
class AlignRows:
    """Adds `COLUMN_aligned` and `COLUMN_variance`; with `estimates`, h without its penalty."""

    spec: AlignmentSpec
    estimates: bool = False

    @property
    def reads(self) -> list[str]:
        """The old vectors."""
        return [self.spec.column]

    @property
    def job(self) -> str:
        """Whatever the alignment: another one does the same job again."""
        return f"transform of {self.spec.column}"

    @property
    def fingerprint(self) -> str:
        """Of the alignment, and of what is written of it."""
        return digest("align", self.spec.fingerprint, self.spec.column, self.estimates)

    @property
    def tags(self) -> dict[str, str]:
        """The alignment, and for vectors without its penalty that too."""
        maker = self.spec.fingerprint
        vectors = f"{maker} estimates" if self.estimates else maker
        return {self.spec.aligned_column: vectors, self.spec.variance_column: maker}

    def __call__(self, batch: Any, piece: Piece, first_row: int) -> Any:
        """Aligned vectors and their predicted error."""
        import pyarrow as pa

        aligned = self.spec.aligned(batch, piece, first_row)
        vectors = aligned.h if self.estimates else aligned.vectors
        return tagged([vector_array(vectors), pa.array(aligned.variance)], self.tags)


@dataclass(frozen=True)
class ScoreRows:
    """The scores of a policy, row by row; of `mixed` those of σ², from which its turns are made."""

    spec: AlignmentSpec
    policy: str = "mixed"
    seed: int = 0

    def __post_init__(self) -> None:
        check_policy(self.policy)
        if self.policy not in BY_ROW:
            raise OrderError(
                f"The policy {self.policy!r} cannot be worked out piece by piece: use one of "
                f"{', '.join(BY_ROW)}."
            )

    @property
    def fingerprint(self) -> str:
        """`mixed` and `sigma` share their scores."""
        base = "sigma" if self.policy == "mixed" else self.policy
        return digest("score", self.spec.fingerprint, self.spec.column, base, self.seed)

    def scores(self, batch: Any, piece: Piece, first_row: int) -> Scores:
        """One score per row, the highest to be backfilled first; by σ² where that is given."""
        if self.policy == "random":
            return random_scores(self.seed, piece.first_row + first_row, batch.num_rows)
        if batch.schema.names == [self.spec.variance_column]:
            return np.asarray(batch.column(0).to_numpy(), dtype=np.float64)
        aligned = self.spec.aligned(batch, piece, first_row)
        base = "sigma" if self.policy == "mixed" else self.policy
        return POLICIES[base](PolicyInput(aligned, head=self.spec.alignment.head))


def tagged(arrays: Sequence[Any], tags: Mapping[str, str]) -> Any:
    """A record batch of these columns, each of which says what it was made by."""
    import pyarrow as pa

    fields = [
        pa.field(name, values.type, metadata={MADE_BY: maker.encode()})
        for values, (name, maker) in zip(arrays, tags.items(), strict=True)
    ]
    return pa.record_batch(list(arrays), schema=pa.schema(fields))


def is_made_by(schema: Any, tags: Mapping[str, str]) -> bool:
    """Does a data set have all these columns, and do they say that they were made by this?

    >>> import pyarrow as pa
    >>> schema = tagged([pa.array([0.5])], {"vector_variance": "one map"}).schema
    >>> is_made_by(schema, {"vector_variance": "one map"})
    True
    >>> is_made_by(schema, {"vector_variance": "another"}), is_made_by(schema, {"rank": "one map"})
    (False, False)
    """
    places = {name: schema.get_field_index(name) for name in tags}
    return all(
        places[name] >= 0
        and (schema.field(places[name]).metadata or {}).get(MADE_BY) == maker.encode()
        for name, maker in tags.items()
    )


def random_scores(seed: int, first_row: int, rows: int) -> Scores:
    """Those that the policy `random` gives to these rows of the whole set.

    >>> whole = np.random.default_rng(7).random(10)
    >>> bool((random_scores(7, 4, 3) == whole[4:7]).all())
    True
    """
    source = np.random.PCG64(seed)
    source.advance(first_row)  # one step of the generator is one number
    return np.random.Generator(source).random(rows)


def vector_array(vectors: Matrix, missing: NDArray[np.bool_] | None = None) -> Any:
    """A matrix as an Arrow array of vectors, without a copy; null where vectors are missing.

    >>> vector_array(np.float32([[1, 2]])).type
    FixedSizeListType(fixed_size_list<item: float>[2])
    """
    import pyarrow as pa

    flat = pa.array(np.ascontiguousarray(vectors).ravel())
    mask = None if missing is None else pa.array(missing)
    return pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1], mask=mask)
