"""The `Store` protocol, the in-memory reference store, and `Gallery`."""

from fastfill.gallery.composed import ComposedStore
from fastfill.gallery.documents import JsonDocument
from fastfill.gallery.fingerprint import fingerprints
from fastfill.gallery.gallery import Gallery
from fastfill.gallery.memory import MemoryStore
from fastfill.gallery.state import (
    Learning,
    Phase,
    State,
    change_state,
    load_fusion,
    load_state,
    save_fusion,
    set_phase,
)
from fastfill.gallery.store import (
    MARKS,
    Columns,
    Description,
    Document,
    Documents,
    Generation,
    Hits,
    Id,
    Marks,
    Picked,
    Rows,
    Settled,
    Side,
    Store,
    objects,
)

__all__ = [
    "MARKS",
    "Columns",
    "ComposedStore",
    "Description",
    "Document",
    "Documents",
    "Gallery",
    "Generation",
    "Hits",
    "Id",
    "JsonDocument",
    "Learning",
    "Marks",
    "MemoryStore",
    "Phase",
    "Picked",
    "Rows",
    "Settled",
    "Side",
    "State",
    "Store",
    "change_state",
    "fingerprints",
    "load_fusion",
    "load_state",
    "objects",
    "save_fusion",
    "set_phase",
]
