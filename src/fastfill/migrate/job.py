"""`Job`: one migration as the functions of this room see it: store, encoder, callback, stop."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fastfill.align import Alignment, Fusion
from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import Gallery, State, Store, change_state, load_fusion, load_state
from fastfill.gallery.queries import query_encoder
from fastfill.migrate.backoff import Backoff
from fastfill.migrate.encoding import Encode, Encoder
from fastfill.migrate.ended import check_not_ended
from fastfill.migrate.events import Callback, ignore
from fastfill.migrate.identity import ModelIdentity
from fastfill.migrate.ledger.alignments import Alignments
from fastfill.migrate.ledger.quarantine import Quarantine
from fastfill.migrate.waits import Waits


@dataclass
class Job:
    """The gallery, the encoder as it was given, who hears of events, and how to end the work."""

    gallery: Gallery
    encode: Encode | None
    encoder_name: str
    callback: Callback = ignore
    stop: threading.Event = field(default_factory=threading.Event)  # ends cleanly after the batch
    label: str | None = None  # the column of a run's labels, which may choose how to serve
    reconnects: int = 0  # how often the store had to be reached again
    waits: Waits = field(default_factory=Waits)  # what is being waited for

    def __post_init__(self) -> None:
        heard_before, heard = self.store.notify, self.callback

        def tell(event: str, details: dict[str, Any]) -> None:
            self.waits.on_event(event, details)
            heard(event, details)

        def notify(text: str, seconds: float) -> None:
            heard_before(text, seconds)
            self._store_waits(text, seconds)

        self.callback, self.store.notify = tell, notify
        self._begin_after_closed()

    def _begin_after_closed(self) -> None:
        """Another model after a cut-over: what was new is what is old now, under the same name."""
        state = load_state(self.store)
        if state is not None and self.encode is not None and self.follows(state):
            self.gallery.begin_after(state)

    def follows(self, state: State) -> bool:
        """Is it closed, and the model at hand another one, to which a new migration leads?"""
        return state.closed and bool(self.identity.differences(state))

    def _store_waits(self, text: str, seconds: float) -> None:
        """The store cannot be reached: say so, and give up when the work is to stop."""
        if self.stop.is_set():
            raise StoreError(f"{self.store.name}: stopped while it could not be reached. {text}")
        self.reconnects += 1
        self.callback("reconnecting", {"reason": text, "seconds": round(seconds, 2)})

    @cached_property
    def identity(self) -> ModelIdentity:
        """The new model by its name and settings."""
        return ModelIdentity.of(self.encoder_name, self.encode)

    def keep_settings(self, state: State) -> State:
        """The state of the model at hand, with its settings as they are now."""
        settings, known = self.identity.settings, state.settings
        if settings is None or (known is not None and settings.items() <= known.items()):
            return state
        return change_state(self.store, lambda latest: replace(latest, settings=settings))

    @property
    def store(self) -> Store:
        """The store under the gallery."""
        return self.gallery.store

    @cached_property
    def alignments(self) -> Alignments:
        """The alignments that the store keeps."""
        return Alignments(self.store)

    @cached_property
    def batch(self) -> int:
        """Rows that the store likes to be given in one write."""
        return self.store.describe().batch

    @cached_property
    def reads_beside_writes(self) -> bool:
        """Does reading the next rows beside a write save time?"""
        return self.store.describe().beside

    @property
    def quarantine(self) -> Quarantine:
        """Items that could not be embedded."""
        return Quarantine(self.store)

    @property
    def state(self) -> State:
        """The state as it is in the store now; an error where no migration is open."""
        state = load_state(self.store)
        if state is None or state.phase == "rolled back":
            raise MigrationError(
                f"{self.store.name}: no migration is open. Begin with: fastfill plan, then start."
            )
        self.gallery.follow(state)
        return state

    @property
    def state_at_work(self) -> State:
        """The same, where there is still something to do; an error where it has ended."""
        state = self.state
        check_not_ended(self.store.name, state)
        return state

    @property
    def open(self) -> bool:
        """Has a migration begun that has not ended?"""
        state = load_state(self.store)
        return state is not None and state.phase != "rolled back" and not state.closed

    def alignment(self, state: State) -> Alignment:
        """The alignment of the state."""
        if state.alignment is None:
            raise MigrationError(
                f"{self.store.name}: no alignment has been learned yet. Run: fastfill start."
            )
        return self.alignments.load(state.alignment)

    def fusion(self, state: State) -> Fusion:
        """What adds up both models' scores."""
        if state.fusion is None:
            raise MigrationError(
                f"{self.store.name}: no fusion of both models has been learned yet. "
                "Run: fastfill start."
            )
        return load_fusion(self.store, state.fusion)

    def encoder(
        self,
        state: State | None = None,
        *,
        root: str | None = None,
        retry: bool = False,
        queries: bool = False,
    ) -> Encoder:
        """The encoder with its answers checked; with `retry` it waits when it is busy, with
        `queries` it embeds these as the model embeds queries."""
        if self.encode is None:
            raise MigrationError("This needs the new model: give --encoder.")
        if self.store.columns.input is None:
            raise MigrationError(
                f"{self.store.name}: what is to be encoded? Name its column with --input."
            )
        return Encoder(
            query_encoder(self.encode) if queries else self.encode,
            distance=state.distance if state else self.gallery.distance,
            dim=state.dim if state else None,
            root=root if root is not None else state.root if state else None,
            backoff=Backoff(self.stop, self.callback) if retry else None,
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
