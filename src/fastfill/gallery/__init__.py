"""The `Store` protocol, the in-memory reference store, and `Gallery`."""

from fastfill.gallery.fingerprint import fingerprint, fingerprints
from fastfill.gallery.memory import MemoryStore
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
    Rows,
    Settled,
    Side,
    Store,
    objects,
)

__all__ = [
    "MARKS",
    "Columns",
    "Description",
    "Document",
    "Documents",
    "Generation",
    "Hits",
    "Id",
    "Marks",
    "MemoryStore",
    "Rows",
    "Settled",
    "Side",
    "Store",
    "fingerprint",
    "fingerprints",
    "objects",
]
