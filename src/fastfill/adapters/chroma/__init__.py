"""Chroma: `chroma:///PATH#COLLECTION`, `chroma+http://HOST:PORT#COLLECTION`.

What the design rests on, in Chroma's terms:
- a record has one vector, so the added vectors live in a second collection by the same ids, with a
  copy of the owner's metadata and document for filters. Nothing of the owner's is ever written;
- the marks are metadata of the second collection's record: Chroma writes a record whole, so a
  vector and its marks never disagree;
- Chroma has no conditional write. A row is compared just before it is written. What falls between
  the two is not refused but found: the marks are of the content that was read, and the write that
  was lost is not counted;
- `add` leaves an id that exists as it is. That is how documents are replaced by compare-and-set:
  each version is a record of its own, and the one who adds it first has written it;
- a scan takes all ids first and reads the records page by page, so no row is met twice.
"""

from fastfill.errors import MissingExtraError

try:
    from fastfill.adapters.chroma.connection import open_folder, open_server
    from fastfill.adapters.chroma.store import ChromaStore
except ImportError as error:
    raise MissingExtraError("chromadb", "chroma", "A chroma:// URL") from error

__all__ = ["ChromaStore", "open_folder", "open_server"]
