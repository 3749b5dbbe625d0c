"""Rows as they are read: the owner's records joined with those of the second collection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.adapters.chroma.collection import (
    MOST,
    ChromaCollection,
    ChromaRecord,
    as_matrix,
    both,
)
from fastfill.features import Matrix
from fastfill.gallery import MARKS, Columns, Id, Rows, Side, objects
from fastfill.gallery.base import batch_rows
from fastfill.gallery.fingerprint import content_fingerprints
from fastfill.gallery.input_rows import as_input_rows

DIM = "fastfill_dim"  # of the added vectors, in the metadata of the second collection
BATCH_NUMBERS = 1_000_000  # floats of a request: as JSON below the 40 MB that a server takes
OWN_MARKS = (*MARKS, "stamp", "copied")
SEEN = ("print", "stamp", "fingerprint")  # what is remembered of a row as it was
WAITING = "waiting"  # the generation of a record whose vector is a placeholder
_NOTHING = ChromaRecord()


@dataclass(frozen=True)
class ChromaLayout:
    """Where everything is."""

    owner: ChromaCollection  # of the rows: after a swap, or without the old one, the added one
    old: ChromaCollection | None  # of the old vectors; None when these have been dropped
    added: ChromaCollection | None  # None before there is a second collection
    columns: Columns
    old_dim: int  # 0 when the old vectors have been dropped
    named: bool  # do the old vectors bear the name that `columns` says?

    @property
    def dropped(self) -> bool:
        """Are the old vectors gone?"""
        return self.old is None

    @property
    def new_dim(self) -> int | None:
        """Dimensions of the added vectors; None before there are any."""
        return None if self.added is None else int(self.added.metadata[DIM])

    @property
    def batch(self) -> int:
        """Rows of one request."""
        dim = max(self.old_dim, self.new_dim or 1)
        return batch_rows(BATCH_NUMBERS, dim, least=64, most=MOST)

    def mark(self, record: ChromaRecord, name: str) -> Any:
        """A mark of a record of the second collection."""
        return record.metadata.get(self.columns.mark(name))

    def marked(self) -> bool:
        """Has any row marks?"""
        return bool(self.of_generation("aligned", "new", WAITING, limit=1))

    def of_generation(self, *generations: str, limit: int | None = None) -> list[Id]:
        """Ids of the second collection's records of these generations."""
        return self.that_fit([{self.columns.mark("generation"): {"$in": list(generations)}}], limit)

    def that_fit(self, conditions: Sequence[dict[str, Any]], limit: int | None = None) -> list[Id]:
        """Ids of the second collection's records that fulfil all conditions."""
        return [] if self.added is None else self.added.ids(both(conditions), limit)

    def entries(self, ids: Sequence[Id], *, vectors: bool = False) -> dict[Id, ChromaRecord]:
        """Records of the second collection, without the copies of the owner's documents.

        The placeholder of a row that waits for its first vector is no vector.
        """
        if self.added is None:
            return {}
        records = self.added.records(ids, vectors=vectors, documents=False)
        if not vectors:
            return records
        return {
            key: ChromaRecord(record.metadata)
            if self.mark(record, "generation") == WAITING
            else record
            for key, record in records.items()
        }

    def read(self, ids: Sequence[Id], *, new: bool) -> Rows:
        """These rows as they are now."""
        records = self.items(ids)
        return self.rows(records, self.entries(list(records), vectors=new), new=new)

    def read_inputs(self, ids: Sequence[Id]) -> Rows:
        """The same without any vector."""
        records = self.items(ids, vectors=False)
        rows = self.rows(records, self.entries(list(records)), new=False)
        written = rows.seen[:, SEEN.index("fingerprint")].tolist()
        read = as_input_rows(rows, written)
        return self.read(ids, new=False) if read is None else read

    def items(self, ids: Sequence[Id], *, vectors: bool = True) -> dict[Id, ChromaRecord]:
        """Those of the rows that exist, with their old vectors."""
        if not vectors or self.old is None or self.old is self.owner:
            return self.owner.records(ids, vectors=vectors and bool(self.old_dim))
        old = self.old.records(ids, vectors=True)
        return {
            key: ChromaRecord(record.metadata, record.document, old.get(key, _NOTHING).vector)
            for key, record in self.owner.records(ids).items()
        }

    def rows(
        self, records: Mapping[Id, ChromaRecord], entries: Mapping[Id, ChromaRecord], *, new: bool
    ) -> Rows:
        """The owner's records with the marks of their `entries`; with `new` these bear vectors."""
        ids = list(records)
        told = [entries.get(key, _NOTHING) for key in ids]
        old, inputs, prints = self.contents(list(records.values()))
        seen = np.empty((len(ids), len(SEEN)), dtype=object)
        for i, entry in enumerate(told):
            seen[i] = prints[i], self.mark(entry, "stamp"), self.mark(entry, "fingerprint")
        return Rows(
            ids=objects(ids),
            old=old,
            inputs=inputs,
            generation=objects([self.mark(entry, "generation") for entry in told]),
            model=objects([self.mark(entry, "model") for entry in told]),
            seen=seen,
            new=as_matrix(told, self.new_dim or 1) if new else None,
        )

    def contents(
        self, records: Sequence[ChromaRecord]
    ) -> tuple[Matrix, NDArray[np.object_], list[str]]:
        """Old vectors, inputs and their fingerprints."""
        old, name = as_matrix(records, self.old_dim), self.columns.input
        inputs = objects([record.value(name) if name else None for record in records])
        return old, inputs, content_fingerprints(old, inputs).astype(str).tolist()

    def vectors_of(self, ids: Sequence[Id], side: Side) -> Matrix | None:
        """The old or the added vectors of these rows, NaN where one has none; None: no such."""
        dim = self.old_dim if side == "old" else self.new_dim
        if not dim:
            return None
        if side == "old":
            records = {} if self.old is None else self.old.records(ids, vectors=True)
        else:
            records = self.entries(ids, vectors=True)
        return as_matrix([records.get(key) for key in ids], dim)

    # --- copies of the owner's metadata and document ---------------------------------------------

    def copy_of(self, record: ChromaRecord, before: ChromaRecord | None) -> dict[str, Any]:
        """The owner's metadata for the second collection: what is there no more is taken off.

        Nothing where the copy is up to date: Chroma takes its time for every key that it is sent.
        """
        told = content_hash(record)
        if before is not None and self.mark(before, "copied") == told:
            return {}
        own = {self.columns.mark(name) for name in OWN_MARKS}
        gone = (before.metadata.keys() if before else set()) - record.metadata.keys() - own
        return {**dict.fromkeys(gone), **record.metadata, self.columns.mark("copied"): told}

    def follow(
        self, records: Mapping[Id, ChromaRecord], entries: Mapping[Id, ChromaRecord]
    ) -> None:
        """Bring the copies of these records' metadata and documents up to date."""
        if self.added is None or self.added is self.owner:
            return
        copies = {k: self.copy_of(records[k], entry) for k, entry in entries.items()}
        self.added.update(
            {k: ChromaRecord(copy, records[k].document) for k, copy in copies.items() if copy}
        )


def content_hash(record: ChromaRecord) -> str:
    """Changes when the document or a value of the metadata does.

    >>> one, other = ChromaRecord({"a": 1, "b": 2}), ChromaRecord({"b": 2, "a": 1})
    >>> content_hash(one) == content_hash(other)
    True
    """
    text = json.dumps([record.document, dict(record.metadata)], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
