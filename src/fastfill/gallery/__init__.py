"""The `Store` protocol, the in-memory reference store, and `Gallery`."""

from fastfill.gallery.composed import ComposedStore
from fastfill.gallery.documents import JsonDocument
from fastfill.gallery.fingerprint import fingerprints
from fastfill.gallery.gallery import Gallery
from fastfill.gallery.hits import Hits, Side, wanted_sides
from fastfill.gallery.inspection import Inspectable, Inspection, VectorIndex
from fastfill.gallery.memory import MemoryStore
from fastfill.gallery.serving import candidates_for, fuse_hits
from fastfill.gallery.state import (
    FUSION,
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
    Id,
    Marks,
    Picked,
    Rows,
    Settled,
    Store,
    objects,
)

__all__ = [
    "FUSION",
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
    "Inspectable",
    "Inspection",
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
    "VectorIndex",
    "candidates_for",
    "change_state",
    "fingerprints",
    "fuse_hits",
    "load_fusion",
    "load_state",
    "objects",
    "save_fusion",
    "set_phase",
    "wanted_sides",
]
