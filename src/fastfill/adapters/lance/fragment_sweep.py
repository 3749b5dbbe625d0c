"""Sweeps that leave out what nobody has written since: by the fragments of the table.

Lance changes no file. A row that is changed moves to another fragment, or its fragment gets another
file; so a fragment with the same files holds the same rows as before, but for those deleted. A
sweep notes the files of each fragment in which it has found nothing to do, as a document, and the
next one for the same models reads the other fragments alone: those that were written since, by
FastFill too, or compacted, and those in which something was left to do.

Fragments are listed by the package of Lance's own format (pylance, extra `scale`), which the client
LanceDB does not bring. Without it every sweep reads all rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from fastfill.adapters.lance.context import LanceContext
from fastfill.adapters.lance.documents import LanceDocuments
from fastfill.errors import StoreError
from fastfill.gallery import JsonDocument, Settled

FRAGMENT_BITS = np.uint64(32)  # of an address: those below are the place in the fragment


@dataclass(frozen=True)
class CleanFragments(JsonDocument):
    """Fragments in which a sweep has found nothing to do."""

    NAME: ClassVar[str] = "clean fragments"

    settled: str = ""  # the models that are right, and the columns, as a digest
    files: Mapping[str, str] = field(default_factory=dict)  # by number of the fragment, as digests


class Sweep:
    """A look at every row of the table."""

    def __init__(self, context: LanceContext) -> None:
        self._context = context
        self.version = int(context.table.version)  # or a later one

    def scan(self, where: str | None, names: list[str], rows: int) -> Iterator[Any]:
        """Arrow tables of at most `rows` rows that may have to be settled."""
        return self._context.scan(where, names, rows)

    def found(self, table: Any) -> None:
        """There is something to do in these rows."""

    def end(self) -> None:
        """All rows have been looked at."""


class FragmentSweep(Sweep):
    """A look at the fragments that may hold something to do, of one version of the table."""

    def __init__(
        self, context: LanceContext, documents: LanceDocuments, dataset: Any, settled: Settled
    ) -> None:
        super().__init__(context)
        self._documents, self._dataset = documents, dataset
        self.version = int(dataset.version)
        self._about = _about(context, settled, dataset)
        self._document = documents.load(CleanFragments.NAME)
        value = None if self._document is None else self._document.value
        self._kept = CleanFragments() if value is None else CleanFragments.from_bytes(value)
        clean = self._kept.files if self._kept.settled == self._about else {}
        fragments = dataset.get_fragments()
        self._files = {str(each.fragment_id): _files(each) for each in fragments}
        self.fragments = [
            each for each in fragments if clean.get(n := str(each.fragment_id)) != self._files[n]
        ]

    def scan(self, where: str | None, names: list[str], rows: int) -> Iterator[Any]:
        """Arrow tables of at most `rows` rows that may have to be settled."""
        if not self.fragments:
            return
        with self._context.connection.errors():
            scanner = self._dataset.scanner(
                columns=names, filter=where, fragments=self.fragments, batch_size=max(rows, 1)
            )
            for block in scanner.to_batches():
                if block.num_rows:
                    yield pa.Table.from_batches([block]).select(names)

    def found(self, table: Any) -> None:
        """There is something to do in these rows, and so in their fragments the next time too."""
        for number in np.unique(table["_rowaddr"].to_numpy() >> FRAGMENT_BITS):
            self._files.pop(str(number), None)

    def end(self) -> None:
        """Remember what the next sweep may leave out; who is faster may have noted it too."""
        clean = CleanFragments(self._about, self._files)
        if clean == self._kept or not self._documents.exist():
            return
        version = 0 if self._document is None else self._document.version
        with suppress(StoreError):  # whoever may only read leaves nothing
            self._documents.save(CleanFragments.NAME, clean.to_bytes(), version)


class FragmentSweeps:
    """The sweeps of one table."""

    def __init__(self, context: LanceContext, documents: LanceDocuments) -> None:
        self._context, self._documents = context, documents

    def begin(self, settled: Settled) -> Sweep:
        """A sweep of the table as it is now, by its fragments where they can be listed."""
        try:
            import lance

            dataset = lance.dataset(f"{self._context.path}/{self._context.table_name}.lance")
        except (ImportError, OSError, ValueError):
            return Sweep(self._context)
        return FragmentSweep(self._context, self._documents, dataset, settled)

    def forget(self) -> None:
        """The marks are gone."""
        self._documents.remove([CleanFragments.NAME])


def _about(context: LanceContext, settled: Settled, dataset: Any) -> str:
    """Columns are told by their numbers: one that is dropped and made again has another."""
    numbers = {each.name(): each.id() for each in dataset.lance_schema.fields()}
    names = [context.columns.old, context.columns.input or "", *context.marks]
    return _digest([settled.aligned, settled.new, [numbers.get(name) for name in names]])


def _files(fragment: Any) -> str:
    files = fragment.metadata.files
    return _digest([[file.path, list(file.fields)] for file in files])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
