"""`Job`: one migration as the functions of this room see it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fastfill.align import Alignment
from fastfill.errors import MigrationError
from fastfill.gallery import Gallery, State, Store, load_state
from fastfill.migrate.encoding import Encode, Encoder
from fastfill.migrate.notes import Failures

TRIES = 3  # of an item before it is set aside
ALIGNMENTS, LEARNED_FROM = "alignment/", "learned-from/"  # names of documents begin so


def _ignore(event: str, details: dict[str, Any]) -> None:
    """A hook that does nothing."""


@dataclass
class Job:
    """The store, the encoder as it was given, and whom to tell."""

    gallery: Gallery
    encode: Encode | None
    encoder_name: str
    tell: Callable[[str, dict[str, Any]], None] = _ignore  # hooks and log lines
    stop: threading.Event = field(default_factory=threading.Event)  # ends cleanly after the batch
    tries: int = TRIES
    _alignment: tuple[str, Alignment] | None = None

    @property
    def store(self) -> Store:
        """The store under the gallery."""
        return self.gallery.store

    @cached_property
    def batch(self) -> int:
        """Rows that the store likes to be given in one write."""
        return self.store.describe().batch

    @cached_property
    def beside(self) -> bool:
        """Does a scan save time by reading on beside the writes of what it has read?"""
        return self.store.describe().beside

    @property
    def failures(self) -> Failures:
        """Items that could not be embedded."""
        return Failures(self.store, self.tries)

    @property
    def state(self) -> State:
        """The state as it is in the store now; an error where no migration is open."""
        state = load_state(self.store)
        if state is None or state.phase == "rolled back":
            raise MigrationError(
                f"{self.store.name}: no migration is open. Begin with: fastfill plan, then start."
            )
        return state

    def encoder(self, state: State | None = None, at_once: int = 256) -> Encoder:
        """The encoder with its answers checked."""
        if self.encode is None:
            raise MigrationError("This needs the new model: give --encoder.")
        if self.store.columns.input is None:
            raise MigrationError(
                f"{self.store.name}: what is to be encoded? Name its column with --input."
            )
        return Encoder(
            self.encode,
            distance=state.distance if state else self.gallery.distance,
            dim=state.dim if state else None,
            root=state.root if state else None,
            at_once=at_once,
            proven=lambda: self._embedded_item(state),
        )

    def _embedded_item(self, state: State | None) -> Any:
        """The input of a row that the encoder of the state has embedded, or None."""
        if state is not None and self.store.describe().new_dim is not None:
            for rows in self.store.scan("new", batch=256, new=False):
                for content, model in zip(rows.inputs, rows.model, strict=True):
                    if model == state.model and content is not None:
                        return content
        return None

    def alignment(self, state: State) -> Alignment:
        """The alignment of the state, read from the store once."""
        if state.alignment is None:
            raise MigrationError(
                f"{self.store.name}: no alignment has been learned yet. Run: fastfill start."
            )
        if self._alignment is None or self._alignment[0] != state.alignment:
            self._alignment = (state.alignment, self.load_alignment(state.alignment))
        return self._alignment[1]

    def load_alignment(self, tag: str) -> Alignment:
        """An alignment by the tag that rows carry."""
        document = self.store.load(alignment_document(tag))
        if document is None:
            raise MigrationError(
                f"{self.store.name}: the alignment {tag} is missing from the store."
            )
        return Alignment.from_bytes(document.value, self.store.name)


def alignment_document(tag: str) -> str:
    """Where the bytes of an alignment are kept."""
    return f"{ALIGNMENTS}{tag}"


def documents_of(tag: str) -> tuple[str, str]:
    """The two documents of an alignment: its bytes, and of which pairs it was learned."""
    return alignment_document(tag), f"{LEARNED_FROM}{tag}"


def model_tag(encoder_name: str) -> str:
    """The short mark of an encoder on the rows that it has embedded.

    >>> model_tag("my_module:encode")
    'db0ffe2063a3'
    """
    return hashlib.sha256(encoder_name.encode()).hexdigest()[:12]


def alignment_tag(alignment: Alignment) -> str:
    """The short mark of an alignment on the rows that it has aligned."""
    return alignment.fingerprint[:12]
