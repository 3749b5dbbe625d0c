"""Rows as they are read: the owner's points joined with what the ledger says about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models

from fastfill.adapters.qdrant.collection import QdrantCollection
from fastfill.adapters.qdrant.ledger import (
    BRIEF,
    MADE_BY,
    OWN_MARKS,
    LedgerEntry,
    QdrantLedger,
)
from fastfill.adapters.qdrant.points import (
    all_of,
    as_matrix,
    has_vector,
    look_up,
    same_signature,
    signatures,
)
from fastfill.adapters.qdrant.probes import Probe, read_probes
from fastfill.features import Matrix
from fastfill.gallery import Columns, Id, Rows, Settled, Side, objects
from fastfill.gallery.base import batch_rows
from fastfill.gallery.fingerprint import content_fingerprints
from fastfill.gallery.input_rows import as_input_rows, same_inputs

SEEN = ("print", "stamp", "generation", "fingerprint", "probe")  # what is remembered of a row
BATCH_NUMBERS = 500_000  # floats of a request: as JSON below the 32 MiB that a server takes
_NOTHING = LedgerEntry()


@dataclass(frozen=True)
class QdrantLayout:
    """Where everything is."""

    owner: QdrantCollection
    ledger: QdrantLedger
    columns: Columns
    old: str  # Qdrant's name of the old vector
    old_home: QdrantCollection | None  # of the old vectors; after a swap not that of the rows
    old_dim: int  # 0 when it has been dropped
    new: str  # Qdrant's name of the added vector
    new_dim: int | None  # None before there is an added vector
    beside: bool  # the added vector is a named vector of the owner's points
    ledgered: bool  # there is a ledger
    probed: bool  # scores can be asked for in place of vectors, see `probes`

    def marked(self) -> bool:
        """Are there marks, or was the ledger made for them alone?"""
        return self.ledgered and (
            self.new not in self.ledger.collection.vectors() or self.ledger.marked()
        )

    @property
    def batch(self) -> int:
        """Rows of one request."""
        dim = max(self.old_dim, self.new_dim or 1)
        return batch_rows(BATCH_NUMBERS, dim, least=64, most=2_048)

    @property
    def swapped(self) -> bool:
        """Do the added vectors bear the owner's name?"""
        return self.new == self.old

    @property
    def home(self) -> QdrantCollection:
        """The collection of the added vector."""
        return self.owner if self.beside else self.ledger.collection

    @property
    def content(self) -> list[str]:
        """The owner's vectors that the content of a row is."""
        return [self.old] if self.old_dim and not self.swapped else []

    @property
    def payload(self) -> Any:
        """What of the payload the content of a row is: a path's first key brings all under it."""
        return [self.columns.input.partition(".")[0]] if self.columns.input else False

    def read(self, ids: Sequence[Id], *, new: bool) -> Rows:
        """These rows as they are now."""
        scores = self.old_scores(ids)
        points = self.owner.points(ids, vectors=self.vectors(new), payload=self.payload)
        return self.rows(points, new=new, scores=scores)

    def read_inputs(self, ids: Sequence[Id]) -> Rows:
        """The same without any vector, which is most of what is sent."""
        points = self.owner.points(ids, payload=self.payload)
        rows = self.rows(points, new=False, brief=True)
        written = rows.seen[:, SEEN.index("fingerprint")].tolist()
        read = as_input_rows(rows, written)
        return self.read(ids, new=False) if read is None else read

    def old_scores(self, ids: Sequence[Id]) -> dict[Id, float]:
        """The probes of the old vectors; without an old vector there is nothing to change."""
        if not self.probed or not self.old_dim:
            return {}
        return self.owner.scores(ids, self.old, self.old_dim)

    def in_doubt(self, points: Sequence[Any], settled: Settled) -> list[Id]:
        """Of points read without vectors those that may not be right: all others surely are."""
        ids: list[Id] = [point.id for point in points]
        entries = self.ledger.entries(ids, marks=BRIEF)
        old, new = self.old_scores(ids), self.owner.scores(ids, self.new, self.new_dim or 1)
        _, _, prints = self.contents(points)
        doubtful = []
        for key, now in zip(ids, prints, strict=True):
            told = entries.get(key, _NOTHING)
            marked = settled.is_right(told.generation, told.model)
            same = told.probe is not None and told.probe.fits(old.get(key), new.get(key))
            if not (marked and same and same_inputs(told.fingerprint, now)):
                doubtful.append(key)
        return doubtful

    def marks(self, ids: Sequence[Id]) -> dict[Id, LedgerEntry]:
        """By whom the added vectors of these rows were made, without those that are not there.

        An application that writes a whole point again takes the named vector off.
        """
        entries = self.ledger.entries(ids, marks=MADE_BY) if self.ledgered else {}
        done = {key: entry for key, entry in entries.items() if entry.settled}
        if not self.beside or not done:
            return done
        among = models.HasIdCondition(has_id=list(done))
        without = all_of(among, but=[has_vector(self.new)])
        lost = {
            point.id for page in self.owner.pages(wanted=without, payload=False) for point in page
        }
        return {k: e for k, e in done.items() if k not in lost or e.generation == "waiting"}

    def vectors(self, new: bool) -> list[str]:
        """The vectors of the owner's points to ask for."""
        return [*self.content, *([self.new] if new and self.beside else [])]

    def vectors_of(self, ids: Sequence[Id], side: Side) -> Matrix | None:
        """The old or the added vectors of these points, NaN where one has none; None: no such."""
        old = (self.old, self.old_dim, self.old_home)
        name, dim, home = old if side == "old" else (self.new, self.new_dim, self.owner)
        if not dim or home is None:
            return None
        records: dict[Id, Any]
        if side == "old" or self.beside:
            points = home.points(ids, vectors=[name], payload=False)
            records = {point.id: point for point in points}
        else:
            records = dict(self.ledger.entries(ids, name))
        return as_matrix([records.get(key) for key in ids], name, dim)

    def rows(
        self,
        points: Sequence[Any],
        *,
        new: bool,
        scores: Mapping[Id, float] | None = None,
        brief: bool = False,
    ) -> Rows:
        """The owner's points with their marks.

        With the added vectors at hand, marks that are not those of the vector are not believed:
        a write has been left in the middle, or the application has written since. `scores` are of
        the moment before the old vectors were read; `brief`: these were not read at all.
        """
        ids: list[Id] = [point.id for point in points]
        inside = self.new if new and not self.beside and self.new_dim else None
        marks = BRIEF if brief else OWN_MARKS
        entries = self.ledger.entries(ids, inside, marks) if self.ledgered else {}
        told = [entries.get(key, _NOTHING) for key in ids]
        old, inputs, prints = self.contents(points)
        believed = np.array([entry.settled for entry in told], dtype=bool)
        added = None
        if new and self.beside:
            added = as_matrix(points, self.new, self.new_dim or 1)
            believed &= same_signature(signatures(added), _signed(told))
            added[~believed & ~_given(told, prints)] = np.nan
        elif new:
            added = as_matrix(told, self.new, self.new_dim or 1)
        seen = np.empty((len(ids), len(SEEN)), dtype=object)
        probes = [entry.probe for entry in told] if brief else self._probes(ids, old, scores)
        for i, entry in enumerate(told):
            marked = entry.stamp, entry.generation, entry.fingerprint
            seen[i] = (prints[i], *marked, probes[i])
        pairs = list(zip(told, believed, strict=True))
        return Rows(
            ids=objects(ids),
            old=old,
            inputs=inputs,
            generation=objects([entry.generation if good else None for entry, good in pairs]),
            model=objects([entry.model if good else None for entry, good in pairs]),
            seen=seen,
            new=added,
        )

    def _probes(
        self, ids: Sequence[Id], old: Matrix, scores: Mapping[Id, float] | None
    ) -> Sequence[Probe | None]:
        """Of old vectors as they were read; None where that is not known."""
        if not self.probed or scores is None:
            return [None] * len(ids)
        if not self.old_dim:
            return [Probe(None)] * len(ids)
        return read_probes([scores.get(key) for key in ids], old, self.owner.distance(self.old))

    def contents(self, points: Sequence[Any]) -> tuple[Matrix, NDArray[np.object_], list[str]]:
        """Old vectors, inputs and their fingerprints."""
        there = [None] * len(points) if self.swapped else points
        scaled = bool(self.old_dim) and self.owner.scales_late(self.old)
        old = as_matrix(there, self.old, self.old_dim, scaled=scaled)
        path = self.columns.input
        inputs = objects([look_up(point.payload, path) if path else None for point in points])
        return old, inputs, content_fingerprints(old, inputs).astype(str).tolist()


def _signed(entries: Sequence[LedgerEntry]) -> NDArray[np.float64]:
    return np.array([entry.signature for entry in entries], dtype=np.float64).reshape(-1, 4)


def _given(entries: Sequence[LedgerEntry], prints: Sequence[str]) -> NDArray[np.bool_]:
    """Rows whose added vector can only be the application's own.

    We have never written them, or they have been written anew as a whole since we did.
    """
    pairs = zip(entries, prints, strict=True)
    return np.array(
        [e.stamp is None or (e.settled and e.fingerprint != now) for e, now in pairs], dtype=bool
    )
