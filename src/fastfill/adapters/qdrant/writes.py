"""Writing added vectors and marks: each row by compare-and-set."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from qdrant_client import models

from fastfill.adapters.qdrant.bulk import Point
from fastfill.adapters.qdrant.context import PLAIN, QdrantContext
from fastfill.adapters.qdrant.layout import SEEN, QdrantLayout
from fastfill.adapters.qdrant.ledger import WRITING
from fastfill.adapters.qdrant.points import payload_hash, signatures
from fastfill.adapters.qdrant.probes import Probe, expected
from fastfill.features import Array, Matrix
from fastfill.gallery import Id, Marks, Rows
from fastfill.gallery.input_rows import INPUTS, unchanged_content


class QdrantWrites:
    """Requests of bounded size, each with its condition."""

    def __init__(self, context: QdrantContext) -> None:
        self._context = context

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Write added vectors and marks where the row is still what was read."""
        layout, written = self._context.layout, 0
        for start in range(0, len(rows), layout.batch):
            part = np.arange(start, min(start + layout.batch, len(rows)))
            chosen = None if vectors is None else vectors[part]
            written += write_batch(layout, rows.take(part), chosen, marks.take(part))
        return written

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id, for an application that knows of the migration."""
        layout, columns = self._context.layout, self._context.columns
        names = {name or PLAIN: name for name in layout.owner.vectors() if name != layout.new}
        if layout.beside:
            names[columns.new] = layout.new
        keys = list(values[columns.id])
        there = layout.owner.present(keys)
        for position, key in enumerate(keys):
            row = {name: column[position] for name, column in values.items()}
            vectors = {names[n]: _plain(value) for n, value in row.items() if n in names}
            ours = {*names, *columns.added, columns.id}
            payload = {n: value for n, value in row.items() if n not in ours}
            layout.owner.change(key, payload, vectors, key in there)
        if columns.new in values or columns.mark("generation") in values:
            self._forget(layout, keys)
        if columns.new in values and not layout.beside:
            _give(layout, dict(zip(keys, values[columns.new], strict=True)))

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        layout = self._context.layout
        if len(ids):
            layout.owner.ask("delete", points_selector=list(ids), wait=True)
            self._forget(layout, ids)

    def _forget(self, layout: QdrantLayout, ids: Sequence[Id]) -> None:
        """Take the marks off; after a swap they tell the way back which rows were copied."""
        if layout.ledgered and not layout.swapped:
            layout.ledger.forget(list(ids))


def write_batch(layout: QdrantLayout, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
    """Write the rows that are still what was read; how many were?"""
    points, same = _unchanged(layout, rows)
    if not same:
        return 0
    now = {point.id: point for point in points}
    stamp = uuid.uuid4().hex
    payloads = _marks(layout, rows, vectors, marks, stamp, same)
    seen = rows.seen[same, 1:3]
    ids = rows.ids[same].tolist()
    if layout.beside:
        chosen = None if vectors is None else dict(zip(ids, vectors[same], strict=True))
        return _write_beside(layout, dict(zip(ids, payloads, strict=True)), chosen, seen, stamp)
    copied = [now[key].payload or {} for key in ids]
    written = [
        Point(
            key,
            vector={} if vectors is None else {layout.new: vectors[i]},
            payload={**copy, **own, layout.columns.mark("payload"): payload_hash(copy)},
        )
        for i, key, copy, own in zip(same, ids, copied, payloads, strict=True)
    ]
    layout.ledger.put(written, seen)
    return layout.ledger.finished(stamp)


def _unchanged(layout: QdrantLayout, rows: Rows) -> tuple[list[Any], list[int]]:
    """The points as they are now, and the positions of the rows that are what was read."""
    ids: list[Id] = rows.ids.tolist()
    probes = rows.seen[:, SEEN.index("probe")]
    by_score = layout.probed and rows.held != INPUTS and not any(p is None for p in probes)
    scores = layout.old_scores(ids) if by_score else {}
    points = layout.owner.points(
        ids,
        vectors=[] if by_score or rows.held == INPUTS else layout.content,
        payload=layout.payload if layout.beside else True,
    )
    _, _, prints = layout.contents(points)
    compared = replace(rows, held=INPUTS) if by_score else rows
    now = {point.id: print_ for point, print_ in zip(points, prints, strict=True)}
    same = unchanged_content(compared, now)
    if by_score:
        same = [i for i in same if probes[i].same_old(scores.get(ids[i]))]
    return points, same


def _write_beside(
    layout: QdrantLayout,
    payloads: Mapping[Id, dict[str, Any]],
    vectors: Mapping[Id, Array] | None,
    seen: Array,
    stamp: str,
) -> int:
    """Mark as being written, write the vectors, mark as written: what dies between is seen."""
    generation = layout.columns.mark("generation")
    (ended,) = {payload[generation] for payload in payloads.values()}
    begun = [Point(key, {**payload, generation: WRITING}) for key, payload in payloads.items()]
    layout.ledger.put(begun, seen)
    mine = layout.ledger.stamped(stamp, list(payloads))
    name = layout.new
    if vectors is None:
        layout.owner.take_vectors(mine, [name])
    else:
        layout.owner.put_vectors({key: {name: vectors[key]} for key in mine})
    layout.ledger.finish(stamp, ended)
    return layout.ledger.finished(stamp)


def _marks(
    layout: QdrantLayout,
    rows: Rows,
    vectors: Matrix | None,
    marks: Marks,
    stamp: str,
    chosen: Sequence[int],
) -> list[dict[str, Any]]:
    mark = layout.columns.mark
    signed = None if vectors is None else np.round(signatures(vectors), 6).tolist()
    probes = [None if p is None else list(p) for p in _new_probes(layout, rows, vectors)]
    return [
        {
            mark("generation"): marks.generation,
            mark("model"): marks.model,
            mark("variance"): None if marks.variance is None else float(marks.variance[i]),
            mark("priority"): 0.0 if marks.priority is None else float(marks.priority[i]),
            mark("fingerprint"): rows.seen[i, 0],
            mark("stamp"): stamp,
            mark("signature"): None if signed is None else signed[i],
            mark("probe"): probes[i],
        }
        for i in chosen
    ]


def _new_probes(layout: QdrantLayout, rows: Rows, vectors: Matrix | None) -> Sequence[Probe | None]:
    """The probes of rows once these vectors are written; None where a probe is not known."""
    before: list[Probe | None] = rows.seen[:, SEEN.index("probe")].tolist()
    if not layout.probed or vectors is None:
        return [None if probe is None else Probe(probe.old) for probe in before]
    scores = expected(vectors, layout.owner.distance(layout.new))
    pairs = zip(before, scores, strict=True)
    return [None if probe is None else Probe(probe.old, *score) for probe, score in pairs]


def _give(layout: QdrantLayout, vectors: Mapping[Id, Any]) -> None:
    """Put the application's own new vectors into the second collection, without marks."""
    given = {key: _plain(vector) or [] for key, vector in vectors.items() if vector is not None}
    layout.ledger.give(
        [
            models.PointStruct(
                id=point.id,
                vector={layout.new: given[point.id]},
                payload=point.payload or {},
            )
            for point in layout.owner.points(list(given), payload=True)
        ]
    )


def _plain(vector: Any) -> list[float] | None:
    return None if vector is None else np.asarray(vector, dtype=np.float32).tolist()


def copy_payloads(layout: QdrantLayout, points: Sequence[Any]) -> None:
    """Bring the second collection's copies of these points' payloads up to date."""
    entries = layout.ledger.entries([point.id for point in points])
    for point in points:
        entry, payload = entries.get(point.id), dict(point.payload or {})
        if entry is None or entry.stamp is None or entry.payload == payload_hash(payload):
            continue
        own = layout.ledger.marks(point.id)
        own[layout.columns.mark("payload")] = payload_hash(payload)
        layout.ledger.copy_payload(point.id, {**payload, **own}, entry.stamp)
