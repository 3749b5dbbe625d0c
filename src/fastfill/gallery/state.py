"""The state of a migration, kept in the store so that every verb needs only the URL."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from fastfill.errors import StoreError
from fastfill.features import Distance
from fastfill.gallery.store import Columns, Documents, Settled

Phase = Literal[
    "starting",  # columns added, pairs embedded, rows being aligned: readers use the old column
    "started",  # every row has an added vector: readers use the new column; backfilling
    "completing",
    "complete",
    "rolling back",
    "rolled back",
]
STATE = "state"
FORMAT = 1


@dataclass(frozen=True)
class State:
    """Everything that later verbs must know.

    >>> state = State("starting", Columns("id", "text", "vector"), "cosine", "m:encode", "1f", 8)
    >>> State.from_bytes(state.to_bytes()) == state
    True
    """

    phase: Phase
    columns: Columns
    distance: Distance
    encoder: str  # what `fastfill.wiring` makes the encoder from; holds no secret
    model: str  # tag of the encoder on the rows that it has embedded
    dim: int  # of the new vectors
    alignment: str | None = None  # tag of the alignment, whose bytes are a document
    policy: str = "sigma"
    root: str | None = None  # where inputs that are paths or URLs begin
    drop_old: bool = False  # what `complete` was told, so that it can be finished after a crash
    abandoned: tuple[str, ...] = ()  # tags of models given up half-way
    earlier: tuple[str, ...] = ()  # tags of alignments before this one that rows may still carry
    learning: dict[str, Any] = field(default_factory=dict)  # how the map was learned, for refits
    learned: int = 0  # rows that were new when the map was last learned, or tried to be
    refits: int = 0  # how often the map has been learned again

    @property
    def settled(self) -> Settled:
        """The models whose vectors are right at present."""
        return Settled(self.alignment, self.model)

    @property
    def alignments(self) -> tuple[str, ...]:
        """Tags of aligned rows that serve: the present one first, then those before it."""
        return (*(() if self.alignment is None else (self.alignment,)), *self.earlier)

    @property
    def serves_new(self) -> bool:
        """Do readers use the added column, with the new model?"""
        return self.phase in ("started", "completing", "complete")

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """From JSON; a state of a later FastFill is refused."""
        values = json.loads(data)
        if values.pop("format", None) != FORMAT:
            raise StoreError("The migration's state was written by another version of FastFill.")
        columns = Columns(**values.pop("columns"))
        abandoned, earlier = (tuple(values.pop(name, ())) for name in ("abandoned", "earlier"))
        return cls(columns=columns, abandoned=abandoned, earlier=earlier, **values)


def load_state(documents: Documents) -> State | None:
    """The state, or None where no migration was ever started."""
    document = documents.load(STATE)
    return None if document is None else State.from_bytes(document.value)


def change_state(documents: Documents, change: Callable[[State | None], State]) -> State:
    """Replace the state by compare-and-set; `change` sees the latest one, perhaps again."""

    def rewrite(value: bytes | None) -> bytes:
        return change(None if value is None else State.from_bytes(value)).to_bytes()

    return State.from_bytes(update(documents, STATE, rewrite))


def set_phase(documents: Documents, phase: Phase, **changes: Any) -> State:
    """Move an existing migration to another phase."""

    def change(state: State | None) -> State:
        if state is None:
            raise StoreError("The migration's state has disappeared from the store.")
        return replace(state, phase=phase, **changes)

    return change_state(documents, change)


def update(documents: Documents, name: str, change: Callable[[bytes | None], bytes]) -> bytes:
    """Compare-and-set in a loop: read, change, write, again if someone else was faster."""
    while True:
        document = documents.load(name)
        value = change(None if document is None else document.value)
        if document is not None and value == document.value:
            return value
        if documents.save(name, value, 0 if document is None else document.version):
            return value
