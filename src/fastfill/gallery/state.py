"""The state of a migration, kept in the store so that every verb needs only the URL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

from fastfill.align import Fusion, Serving
from fastfill.errors import StoreError
from fastfill.features import Distance
from fastfill.gallery.documents import JsonDocument
from fastfill.gallery.store import Columns, Documents, Settled

FUSION = "fusion/"  # the names of its documents begin so

Phase = Literal[
    "starting",  # columns added, pairs embedded, rows being aligned: readers use the old column
    "started",  # every row has an added vector: readers search as `serving` says
    "completing",
    "complete",
    "rolling back",
    "rolled back",
]


@dataclass(frozen=True)
class Learning:
    """How the map was learned, so that a refit learns it in the same way."""

    method: str = "auto"  # as asked for
    chosen: str | None = None  # what `auto` found to be best
    pairs: int = 0  # on how many pairs that was found
    options: Mapping[str, Any] | None = None  # of the fit, as plain values


@dataclass(frozen=True)
class State(JsonDocument):
    """Everything that later verbs must know.

    >>> state = State("starting", Columns("id", "text", "vector"), "cosine", "m:encode", "1f", 8)
    >>> State.from_bytes(state.to_bytes()) == state
    True
    """

    NAME: ClassVar[str] = "state"
    VERSION: ClassVar[int] = 6

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
    stale: tuple[str, ...] = ()  # tags of alignments before this one that rows may still carry
    learning: Learning | None = None  # None: the alignment came from a file
    learned_rows: int = 0  # rows that were new when the map was last learned, or tried to be
    refits: int = 0  # how often the map has been learned again
    serving: Serving = "aligned"  # how readers search once the migration is started
    single: Serving = "aligned"  # how those search who ask with one model's vector alone
    fusion: str | None = None  # tag of the fusion, whose bytes are a document
    swapped: bool = False  # do the new vectors bear the owner's name? `columns` says so too
    swapping: bool = False  # on the way there or back, so that it can be finished after a crash
    settings: Mapping[str, str] | None = None  # of the encoder, prompts and all; None: not known

    @property
    def settled(self) -> Settled:
        """The models whose vectors are right at present."""
        return Settled(self.alignment, self.model)

    @property
    def alignments(self) -> tuple[str, ...]:
        """Tags of aligned rows that serve: the present one first, then the stale ones."""
        return (*(() if self.alignment is None else (self.alignment,)), *self.stale)

    @property
    def serves_new(self) -> bool:
        """May readers use the added column, alone or beside the old one?"""
        return self.phase in ("started", "completing", "complete")

    @property
    def serves(self) -> Serving:
        """How readers search now: until the start has ended by the old model, whatever is to come.

        Once the old vectors are gone, or about to go, the new model serves alone.
        """
        if not self.serves_new:
            return "old"
        return "aligned" if self.drop_old and self.phase != "started" else self.serving

    @property
    def ended(self) -> bool:
        """Have the old vectors and the marks been dropped, so that nothing is left to do?"""
        return self.phase == "complete" and self.drop_old

    @property
    def closed(self) -> bool:
        """Is nothing of it left but the new vectors, under the owner's name?"""
        return self.ended and self.swapped

    def columns_among(self, have: Collection[str]) -> Columns:
        """The names in use, where the store has these columns.

        During a swap the store knows first.
        """
        if self.swapping and not self.swapped and self.columns.new not in have:
            return self.columns.swapped
        if self.swapping and self.swapped and self.columns.old not in have:
            return self.columns.swapped_back
        return self.columns

    @property
    def serves_single(self) -> Serving:
        """The same for those who ask one model alone: the better one where both serve."""
        return self.single if self.serves == "both" else self.serves

    def to_json(self) -> dict[str, Any]:
        """Plain values; an earlier FastFill finds no `format` here and refuses it."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """Version 1 said `format` for its version and other words for three of the values."""
        values = dict(plain)
        if version == 0:
            if values.pop("format", None) != 1:
                raise StoreError(
                    "The migration's state was written by a FastFill that this one does not know."
                )
            values["stale"] = values.pop("earlier", ())
            values["learned_rows"] = values.pop("learned", 0)
            values["learning"] = values.pop("learning", None) or None
        learning = values.pop("learning")
        for name in ("abandoned", "stale"):
            values[name] = tuple(values.get(name, ()))
        return cls(
            columns=Columns(**values.pop("columns")),
            learning=None if learning is None else Learning(**learning),
            **values,
        )


def load_state(documents: Documents) -> State | None:
    """The state, or None where no migration was ever started."""
    return State.load(documents)


def change_state(documents: Documents, change: Callable[[State], State]) -> State:
    """Change the state of an existing migration; `change` sees the latest one, perhaps again."""

    def existing(state: State | None) -> State:
        if state is None:
            raise StoreError("The migration's state has disappeared from the store.")
        return change(state)

    return State.change(documents, existing)


def set_phase(documents: Documents, phase: Phase) -> State:
    """Move an existing migration to another phase."""
    return change_state(documents, lambda state: replace(state, phase=phase))


def save_fusion(documents: Documents, fusion: Fusion) -> str:
    """Keep a fusion in the store; returns its tag, the same for the same bytes."""
    value = fusion.to_bytes()
    tag = hashlib.sha256(value).hexdigest()[:12]
    documents.save(FUSION + tag, value, 0)  # refused where it is kept already, which is as good
    return tag


def load_fusion(documents: Documents, tag: str) -> Fusion:
    """The fusion with that tag."""
    document = documents.load(FUSION + tag)
    if document is None:
        raise StoreError(f"The fusion {tag} has disappeared from the store.")
    return Fusion.from_bytes(document.value, f"fusion {tag}")
