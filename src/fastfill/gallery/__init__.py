"""The `Store` protocol, the in-memory reference store, and `Gallery`."""

from fastfill.gallery.composed import ComposedStore
from fastfill.gallery.documents import JsonDocument
from fastfill.gallery.fingerprint import fingerprints
from fastfill.gallery.gallery import Gallery
from fastfill.gallery.hits import Hits, Side, wanted_sides
from fastfill.gallery.inspection import Inspectable, Inspection, VectorIndex
from fastfill.gallery.known_marks import KnowsMarks
from fastfill.gallery.late_writes import LateWrites, late_writes_of
from fastfill.gallery.layouts import (
    LAYOUTS,
    HasLayouts,
    LayoutChoice,
    LayoutOption,
    NotesWrites,
)
from fastfill.gallery.memory import MemoryStore
from fastfill.gallery.parts import OVER, latest_migration, note_part
from fastfill.gallery.quick_sweeps import QuickSweeps
from fastfill.gallery.repeated_ids import MayRepeatIds, RepeatedIds, repeated_ids_of
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
    Layout,
    Marks,
    Picked,
    Rows,
    Settled,
    Store,
    objects,
)
from fastfill.gallery.where import Where, parse_where, where_text

__all__ = [
    "FUSION",
    "LAYOUTS",
    "MARKS",
    "OVER",
    "Columns",
    "ComposedStore",
    "Description",
    "Document",
    "Documents",
    "Gallery",
    "Generation",
    "HasLayouts",
    "Hits",
    "Id",
    "Inspectable",
    "Inspection",
    "JsonDocument",
    "KnowsMarks",
    "LateWrites",
    "Layout",
    "LayoutChoice",
    "LayoutOption",
    "Learning",
    "Marks",
    "MayRepeatIds",
    "MemoryStore",
    "NotesWrites",
    "Phase",
    "Picked",
    "QuickSweeps",
    "RepeatedIds",
    "Rows",
    "Settled",
    "Side",
    "State",
    "Store",
    "VectorIndex",
    "Where",
    "candidates_for",
    "change_state",
    "fingerprints",
    "fuse_hits",
    "late_writes_of",
    "latest_migration",
    "load_fusion",
    "load_state",
    "note_part",
    "objects",
    "parse_where",
    "repeated_ids_of",
    "save_fusion",
    "set_phase",
    "wanted_sides",
    "where_text",
]
