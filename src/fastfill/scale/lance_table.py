"""A Lance table: a piece is a fragment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from fastfill.errors import InputError, StoreError, some
from fastfill.scale.folders import Folder
from fastfill.scale.operations import AlignmentSpec, AlignRows, Operation, is_made_by
from fastfill.scale.packages import import_extra
from fastfill.scale.pieces import BATCH_ROWS, Piece, digest

WORK = "_fastfill"  # a folder beside the tables, for pieces that are finished and not committed


def import_lance() -> Any:
    """The package of Lance's own format, which the client LanceDB does not bring."""
    return import_extra("lance", "pylance", "scale", "Work on a Lance table by fragment")


@dataclass(frozen=True)
class LanceTable:
    """A vector column of a table, at one version of it."""

    database: str  # a folder, or a URL of object storage
    table: str
    column: str
    version: int | None = None  # None: the latest

    @classmethod
    def from_url(cls, url: str) -> LanceTable:
        """From `lance://PATH#TABLE.COLUMN`, where PATH may be `s3://BUCKET/FOLDER`.

        >>> LanceTable.from_url("lance://s3://bucket/db#photos.vector").uri
        's3://bucket/db/photos.lance'
        """
        place, _, target = url.removeprefix("lance://").rpartition("#")
        table, _, column = target.partition(".")
        if not (url.startswith("lance://") and place and table and column):
            raise InputError(f"{url!r} is not the URL of a column: use lance://PATH#TABLE.COLUMN.")
        return cls(place.rstrip("/"), table, column)

    @property
    def uri(self) -> str:
        """The folder of the table."""
        return f"{self.database}/{self.table}.lance"

    @property
    def name(self) -> str:
        """The URL of the column."""
        return f"lance://{self.database}#{self.table}.{self.column}"

    @property
    def work_folder(self) -> Folder:
        """Where finished pieces are remembered."""
        return Folder(self.database).child(f"{WORK}/{self.table}.{self.column}")

    def open(self) -> Any:
        """The data set of Lance."""
        try:
            return _latest(self.uri) if self.version is None else _at(self.uri, self.version)
        except (OSError, ValueError) as error:
            text = next(iter(str(error).splitlines()), "")
            raise StoreError(f"{self.name}: cannot be opened ({text}). Check the URL.") from error

    def latest(self) -> LanceTable:
        """The same, fixed at the version that is the latest now."""
        return replace(self, version=replace(self, version=None).open().version)

    def pieces(self) -> list[Piece]:
        """The fragments; their identity is that of their files, deletions and columns."""
        data = self.open()
        if self.column not in data.schema.names:
            raise StoreError(
                f"{self.name}: the table has no column '{self.column}', only "
                f"{some(data.schema.names)}."
            )
        columns = str(data.lance_schema)
        pieces: list[Piece] = []
        first = 0
        for fragment in data.get_fragments():
            facts = json.dumps(fragment.metadata.to_json(), sort_keys=True)
            rows = fragment.count_rows()
            name = f"fragment {fragment.fragment_id}"
            pieces.append(Piece(name, digest(columns, facts), len(pieces), first, rows))
            first += rows
        return pieces

    def fragment(self, piece: Piece) -> Any:
        """The fragment of a piece."""
        return self.open().get_fragment(fragment_id(piece))

    def has_variance(self, piece: Piece, spec: AlignmentSpec) -> bool:
        """Has this alignment made aligned vectors and errors of what is in the fragment now?"""
        data = self.open()
        operation = AlignRows(spec)
        return spec.has_written(data.schema) and _is_made(data, fragment_id(piece), operation)

    def without(self, pieces: Sequence[Piece], operation: Operation) -> list[Piece]:
        """The fragments that do not have the columns which an operation makes of them."""
        data = self.open()
        if not is_made_by(data.schema, operation.tags):
            return list(pieces)
        return [piece for piece in pieces if not _is_made(data, fragment_id(piece), operation)]

    def batches(self, piece: Piece, columns: Sequence[str]) -> Iterator[Any]:
        """The rows that are not deleted; without columns, only their number is of use."""
        batches = self.fragment(piece).to_batches(
            columns=list(columns), batch_size=BATCH_ROWS, with_row_id=not columns
        )
        return (batch for batch in batches if batch.num_rows)


def _latest(uri: str) -> Any:
    return import_lance().dataset(uri)


@lru_cache(maxsize=4)
def _at(uri: str, version: int) -> Any:
    """A version never changes: a process that does many pieces of it opens it once."""
    return import_lance().dataset(uri, version=version)


def fragment_id(piece: Piece) -> int:
    """The number by which a table knows the fragment of a piece.

    >>> fragment_id(Piece("fragment 7", "…", 0, 0, 5))
    7
    """
    return int(piece.name.removeprefix("fragment "))


def field_ids(schema: Any, columns: Sequence[str]) -> dict[str, int]:
    """The numbers by which the files of a table name these columns, as Lance's schema says."""
    return {field.name(): field.id() for field in schema.fields() if field.name() in columns}


def _is_made(data: Any, fragment: int, operation: Operation) -> bool:
    """Do the added columns lie in a file of their own, behind what they were made of?

    So they do where the operation has made them of what is there. A row that was written or
    updated later lies in another fragment, and a column that was rewritten in a later file.
    """
    added = set(field_ids(data.lance_schema, list(operation.tags)).values())
    looked_at = set(field_ids(data.lance_schema, operation.reads).values())
    files = [set(file.fields) for file in data.get_fragment(fragment).metadata.files]
    mine = [number for number, fields in enumerate(files) if fields == added]
    return bool(mine) and not any(fields & looked_at for fields in files[mine[0] :])
