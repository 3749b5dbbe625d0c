"""Writing added vectors and marks: each row is compared just before."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfill.adapters.chroma.collection import DOCUMENT, ChromaRecord, equals, pages_of
from fastfill.adapters.chroma.context import ChromaContext
from fastfill.adapters.chroma.layout import ChromaLayout
from fastfill.errors import StoreError
from fastfill.features import Array, Matrix
from fastfill.gallery import Id, Marks, Rows
from fastfill.gallery.input_rows import INPUTS, unchanged_content


class ChromaWrites:
    """A batch is one request; Chroma writes each of its records whole."""

    def __init__(self, context: ChromaContext) -> None:
        self._context = context

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Write added vectors and marks where the row is still what was read."""
        layout, written = self._context.layout, 0
        for positions in pages_of(range(len(rows)), layout.batch):
            part = np.asarray(positions)
            chosen = None if vectors is None else vectors[part]
            written += write_batch(layout, rows.take(part), chosen, marks.take(part))
        return written

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id, for an application that knows of the migration."""
        layout, columns = self._context.layout, self._context.columns
        keys = list(values[columns.id])
        there = layout.owner.present(keys)
        alone = layout.owner is layout.added
        ours = {columns.id, columns.old, *columns.added}
        kept = {name: v for name, v in values.items() if name not in ours}
        vectors = values.get(columns.new if alone else columns.old, [None] * len(keys))
        records = {
            key: _record({name: column[i] for name, column in kept.items()}, vectors[i])
            for i, key in enumerate(keys)
        }
        added = {key: _whole(record) for key, record in records.items() if key not in there}
        without = [key for key, record in added.items() if record.vector is None]
        if without:
            raise StoreError(
                f"{self._context.name}: a record of Chroma needs a vector; {without[0]!r} has none."
            )
        layout.owner.add(added)
        layout.owner.update({key: records[key] for key in records if key in there})
        if layout.added is not None and not alone and set(columns.added) & values.keys():
            layout.added.forget(keys)
            _give(layout, dict(zip(keys, values.get(columns.new, []), strict=False)))

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        layout = self._context.layout
        layout.owner.forget(list(ids))
        if layout.added is not None:
            layout.added.forget(list(ids))


def write_batch(layout: ChromaLayout, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
    """Write the rows that are still what was read; how many were?"""
    ids = rows.ids.tolist()
    if layout.added is None or not ids:
        return 0
    records, entries = layout.items(ids, vectors=rows.held != INPUTS), layout.entries(ids)
    same = unchanged(layout, records, entries, rows)
    stamp, mark = uuid.uuid4().hex, layout.columns.mark
    written = {}
    for i in same:
        key = ids[i]
        own = {
            mark("generation"): marks.generation,
            mark("model"): marks.model,
            mark("variance"): None if marks.variance is None else float(marks.variance[i]),
            mark("priority"): 0.0 if marks.priority is None else float(marks.priority[i]),
            mark("fingerprint"): rows.seen[i, 0],
            mark("stamp"): stamp,
        }
        before = entries.get(key)
        copy = layout.copy_of(records[key], before)
        metadata = {**copy, **own}
        written[key] = ChromaRecord(
            metadata if before else _present(metadata),
            records[key].document if copy else None,
            _placeholder(layout) if vectors is None else vectors[i],
        )
    layout.added.add({key: record for key, record in written.items() if key not in entries})
    layout.added.update({key: record for key, record in written.items() if key in entries})
    return len(layout.added.ids(equals({mark("stamp"): stamp}))) if written else 0


def unchanged(
    layout: ChromaLayout,
    records: Mapping[Id, ChromaRecord],
    entries: Mapping[Id, ChromaRecord],
    rows: Rows,
) -> list[int]:
    """Positions of the rows whose content and marks are still those that were read."""
    _, _, prints = layout.contents(list(records.values()))
    now = dict(zip(records, prints, strict=True))
    stamps = {key: layout.mark(entry, "stamp") for key, entry in entries.items()}
    same = unchanged_content(rows, now)
    return [i for i in same if stamps.get(rows.ids[i]) == rows.seen[i, 1]]


def _placeholder(layout: ChromaLayout) -> Array:
    """The vector of a row that waits for its first one: a record of Chroma needs one."""
    return np.full(layout.new_dim or 1, 1e-6, dtype=np.float32)


def _record(row: Mapping[str, Any], vector: Any) -> ChromaRecord:
    """A row of an application; a value that is None is taken off."""
    metadata = {name: value for name, value in row.items() if name != DOCUMENT}
    return ChromaRecord(
        metadata, row.get(DOCUMENT), None if vector is None else np.asarray(vector, np.float32)
    )


def _whole(record: ChromaRecord) -> ChromaRecord:
    return ChromaRecord(_present(record.metadata), record.document, record.vector)


def _present(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a record that is new can have: Chroma takes None only for what is to be taken off."""
    return {name: value for name, value in metadata.items() if value is not None}


def _give(layout: ChromaLayout, vectors: Mapping[Id, Any]) -> None:
    """Put the application's own new vectors into the second collection, without marks."""
    given = {key: vector for key, vector in vectors.items() if vector is not None}
    if layout.added is None or not given:
        return
    records = layout.owner.records(list(given))
    layout.added.upsert(
        {
            key: ChromaRecord(
                layout.copy_of(record, None), record.document, np.asarray(given[key], np.float32)
            )
            for key, record in records.items()
        },
    )
