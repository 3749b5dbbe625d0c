"""Qdrant: `qdrant://HOST:PORT#COLLECTION[.VECTOR]`, `qdrant+local://PATH#COLLECTION[.VECTOR]`.

What the design rests on, in Qdrant's terms:
- the owner's payload and vectors are never written. Marks are kept in a collection of our own, the
  ledger, by the same ids; only ids that the owner's collection has count;
- the added vector is another named vector of the owner's points where these have names and the
  server can add one; else the ledger holds it, as a second collection behind an alias, together
  with a copy of the payload for filters;
- a write is conditional on the ledger's stamp, and on the content having been read again just
  before. Qdrant cannot compare a vector, so content that changes in between is not refused but
  found: the marks are of the content that was read, and their fingerprint is not that of the row;
- a named vector and the ledger are two operations. The row is marked as being written before and
  as written after, so one that was left in the middle is neither trusted nor adopted;
- a scan goes by rising ids, so that rows which are written meanwhile are not met again.
"""

from fastfill.errors import MissingExtraError

try:
    from fastfill.adapters.qdrant.connection import open_folder, open_server
    from fastfill.adapters.qdrant.store import QdrantStore
except ImportError as error:
    raise MissingExtraError("qdrant-client", "qdrant", "A qdrant:// URL") from error

__all__ = ["QdrantStore", "open_folder", "open_server"]
