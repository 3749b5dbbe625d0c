"""Columns of a Lance table: written by fragment, committed at once.

Workers write a data file of the added columns beside those of a fragment, which nobody sees until
one commit names all of them. Where others have appended, deleted or updated rows meanwhile, Lance
refuses that commit: fragments that are as they were keep their files, the others are done again.
Fragments that are appended all the time may be left out of it: they have nothing in the columns.

Where the columns are there already, made by the same operation, the fragments without them are
filled in, and no others are touched.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastfill.errors import StoreError, some
from fastfill.scale.folders import Folder, read_at_once
from fastfill.scale.lance_table import LanceTable, field_ids, import_lance
from fastfill.scale.operations import Operation, is_made_by
from fastfill.scale.pieces import Piece, digest

GONE = -2  # Lance's number for a column of a file that a later file has in its place


class TableChangedError(StoreError):
    """Others have written to the table since its fragments were listed."""


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

        present = field_ids(self.source.open().lance_schema, list(self.operation.tags))
        names = [_written_name(name, present) for name in self.operation.tags]
        added = (batch.rename_columns(names) for batch in self._added(piece))
        head = next(added)
        reader = pa.RecordBatchReader.from_batches(head.schema, itertools.chain([head], added))
        fragment, schema = self.source.fragment(piece).merge_columns(reader)
        facts = fragment.to_json()
        if present:
            written = field_ids(schema, names)
            _put_in_place(facts, {written[_written_name(n, present)]: present[n] for n in present})
        record = {"fragment": facts, "schema": _schema_to_json(schema)}
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
        present = field_ids(self.source.open().lance_schema, list(self.operation.tags))
        schema = _schema_from_json(records[0]["schema"]) if records else None
        return FinishedColumns(fragments, schema, list(present.values()))


def _written_name(column: str, present: Mapping[str, int]) -> str:
    """Lance writes a file for columns that a table does not have yet, under their names."""
    return f"_fastfill_{column}" if column in present else column


def _put_in_place(fragment: dict[str, Any], numbers: Mapping[int, int]) -> None:
    """Let the last file of a fragment hold columns that the table has, instead of other files."""
    *others, last = fragment["files"]
    for file in others:
        file["fields"] = [GONE if n in numbers.values() else n for n in file["fields"]]
    last["fields"] = [numbers[number] for number in last["fields"]]


@dataclass(frozen=True)
class FinishedColumns:
    """Fragments with their new files, by the identity of their pieces."""

    fragments: Mapping[str, str]
    schema: Any  # of the table with the columns
    filled: Sequence[int]  # numbers of columns that the table has already

    def hold(self, pieces: Sequence[Piece]) -> bool:
        """Are all of these fragments still what they were?"""
        return self.fragments.keys() <= {piece.identity for piece in pieces}

    def commit(self, table: LanceTable, pieces: Sequence[Piece]) -> LanceTable:
        """Make the columns visible in one version that follows on that of `table`.

        Fragments that others have appended since have nothing in them.
        """
        if not self.fragments:
            return table
        lance = import_lance()
        operation = self._filling() if self.filled else self._adding(table, pieces)
        try:
            data = lance.LanceDataset.commit(
                table.uri, operation, read_version=table.version, max_retries=0
            )
        except lance.commit.CommitConflictError as error:
            raise TableChangedError(f"{table.name}: others have written meanwhile.") from error
        return replace(table, version=data.version)

    def _adding(self, table: LanceTable, pieces: Sequence[Piece]) -> Any:
        """All fragments, with the files of those that are finished."""
        lance = import_lance()
        present = zip(pieces, table.open().get_fragments(), strict=True)
        fragments = [
            self._finished(piece) if piece.identity in self.fragments else fragment.metadata
            for piece, fragment in present
        ]
        return lance.LanceOperation.Merge(fragments, self.schema)

    def _filling(self) -> Any:
        """The finished fragments alone; an index no longer speaks for what was filled in."""
        lance = import_lance()
        fragments = [lance.fragment.FragmentMetadata.from_json(f) for f in self.fragments.values()]
        return lance.LanceOperation.Update(
            updated_fragments=fragments, fields_modified=list(self.filled)
        )

    def _finished(self, piece: Piece) -> Any:
        return import_lance().fragment.FragmentMetadata.from_json(self.fragments[piece.identity])


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


def check_made_by(table: LanceTable, operation: Operation, other: str) -> None:
    """Refuse to fill in columns that `other` has made."""
    schema = table.open().schema
    present = [name for name in operation.tags if name in schema.names]
    if present and not is_made_by(schema, operation.tags):
        raise StoreError(
            f"{table.name}: {some(present)} came from {other}, so nothing can be filled in. Drop "
            f"{some(present)} and run again, or run what made them."
        )


def check_no_ranks(table: LanceTable, columns: Sequence[str]) -> None:
    """Refuse to rank again: with more rows the ranks of all are others."""
    present = [name for name in columns if name in table.open().schema.names]
    if present:
        raise StoreError(
            f"{table.name}: the table has {some(present)} already, and new rows change the ranks "
            f"of all others. Drop {some(present)}, which are quickly made, and run again."
        )
