"""A Lance table: a piece is a fragment; columns are written by fragment and committed at once.

Workers write a data file of the added columns beside those of a fragment, which nobody sees until
one commit names all of them. Where others have appended, deleted or updated rows meanwhile, Lance
refuses that commit: fragments that are as they were keep their files, the others are done again.
Fragments that are appended all the time may be left out of it: they have nothing in the columns.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastfill.errors import InputError, StoreError, some
from fastfill.scale.folders import Folder, read_at_once
from fastfill.scale.operations import AlignmentSpec, Operation
from fastfill.scale.packages import import_extra
from fastfill.scale.pieces import BATCH_ROWS, Piece, digest

WORK = "_fastfill"  # a folder beside the tables, for pieces that are finished and not committed


class TableChangedError(StoreError):
    """Others have written to the table since its fragments were listed."""


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
        lance = import_lance()
        try:
            return lance.dataset(self.uri, version=self.version)
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
        return self.open().get_fragment(int(piece.name.removeprefix("fragment ")))

    def has_variance(self, piece: Piece, spec: AlignmentSpec) -> bool:
        """Do aligned vectors and errors lie in a file of their own, added behind the old vectors?

        So they do where this alignment has made them of what is there. A row that was written or
        updated later lies in another fragment, and a column that was rewritten in a later file.
        """
        data = self.open()
        if not spec.has_written(data.schema):
            return False
        added = _field_ids(data, [spec.aligned_column, spec.variance_column])
        files = [set(file.fields) for file in self.fragment(piece).metadata.files]
        mine = [number for number, fields in enumerate(files) if fields == added]
        behind = _field_ids(data, [spec.column])
        return bool(mine) and not any(fields & behind for fields in files[mine[0] :])

    def batches(self, piece: Piece, columns: Sequence[str]) -> Iterator[Any]:
        """The rows that are not deleted; without columns, only their number is of use."""
        batches = self.fragment(piece).to_batches(
            columns=list(columns), batch_size=BATCH_ROWS, with_row_id=not columns
        )
        return (batch for batch in batches if batch.num_rows)


@dataclass(frozen=True)
class LanceWork:
    """Writes the columns that an operation adds as a new data file of a fragment."""

    source: LanceTable
    operation: Operation

    @property
    def folder(self) -> Folder:
        """A record for each finished fragment: its description with the new file."""
        return self.source.work_folder

    def file_name(self, piece: Piece) -> str:
        """Named by what it depends on."""
        return f"column-{digest(piece.identity, self.operation.fingerprint)}.json"

    def __call__(self, piece: Piece) -> None:
        """Read, work and write one fragment, a batch at a time."""
        import pyarrow as pa

        added = self._added(piece)
        head = next(added)
        reader = pa.RecordBatchReader.from_batches(head.schema, itertools.chain([head], added))
        fragment, schema = self.source.fragment(piece).merge_columns(reader)
        record = {"fragment": fragment.to_json(), "schema": _schema_to_json(schema)}
        self.folder.write(self.file_name(piece), json.dumps(record).encode())

    def _added(self, piece: Piece) -> Iterator[Any]:
        first = 0
        for batch in self.source.batches(piece, self.operation.reads):
            yield self.operation(batch, piece, first)
            first += batch.num_rows

    def finished(self, pieces: Sequence[Piece]) -> FinishedColumns:
        """What the records of these pieces say."""
        names = [self.file_name(piece) for piece in pieces]
        records = [json.loads(text) for text in read_at_once(self.folder.read, names)]
        fragments = {
            piece.identity: json.dumps(record["fragment"])
            for piece, record in zip(pieces, records, strict=True)
        }
        return FinishedColumns(fragments, _schema_from_json(records[0]["schema"]))


@dataclass(frozen=True)
class FinishedColumns:
    """Fragments with their new files, by the identity of their pieces, and the table's schema."""

    fragments: Mapping[str, str]
    schema: Any

    def hold(self, pieces: Sequence[Piece]) -> bool:
        """Are all of these fragments still what they were?"""
        return self.fragments.keys() <= {piece.identity for piece in pieces}

    def commit(self, table: LanceTable, pieces: Sequence[Piece]) -> int:
        """Make the columns visible in one version that follows on that of `table`.

        Fragments that others have appended since have nothing in them; returns their rows.
        """
        lance = import_lance()
        data = table.open()
        present = zip(pieces, data.get_fragments(), strict=True)
        fragments = [
            lance.fragment.FragmentMetadata.from_json(self.fragments[piece.identity])
            if piece.identity in self.fragments
            else fragment.metadata
            for piece, fragment in present
        ]
        try:
            lance.LanceDataset.commit(
                table.uri,
                lance.LanceOperation.Merge(fragments, self.schema),
                read_version=table.version,
                max_retries=0,
            )
        except lance.commit.CommitConflictError as error:
            raise TableChangedError(f"{table.name}: others have written meanwhile.") from error
        return sum(piece.rows for piece in pieces if piece.identity not in self.fragments)


def _field_ids(data: Any, columns: Sequence[str]) -> set[int]:
    """The numbers by which a table's files name these columns."""
    return {field.id() for field in data.lance_schema.fields() if field.name() in columns}


def _schema_to_json(schema: Any) -> list[str]:
    """Lance's schema with the numbers of its fields, which an Arrow schema does not have.

    It has no other form to be kept in than the parts that it is copied by: its metadata and one
    protocol buffer for each field.
    """
    metadata, *fields = schema.__reduce__()[1]
    return [metadata, *(base64.b64encode(part).decode() for part in fields)]


def _schema_from_json(parts: Sequence[str]) -> Any:
    kind = import_lance().schema.LanceSchema
    return kind._from_protos(parts[0], *(base64.b64decode(part) for part in parts[1:]))


def check_columns(table: LanceTable, columns: Sequence[str]) -> None:
    """Refuse to add what is there already."""
    present = [name for name in columns if name in table.open().schema.names]
    if present:
        raise StoreError(
            f"{table.name}: the table has {some(present)} already. Drop what a former run has "
            "added, if it is of no use any more, and run again."
        )
