"""SQLite with sqlite-vec: `sqlite://PATH#TABLE.COLUMN`.

What the design rests on, in SQLite's terms:
- one program writes to a file at a time. A batch takes the lock first (`BEGIN IMMEDIATE`), compares
  each row byte by byte in the condition of its UPDATE, and lets go within a fraction of a second;
- the added vector and the marks are more columns of the owner's table. Where that cannot be, or
  would wake triggers of the owner's (a view, a `vec0` or other virtual table, a STRICT table, a
  trigger on every UPDATE), they are in a table of their own by the row's id;
- one index over the marks answers picks and counts without reading any vector;
- a scan takes the ids first and reads rows page by page, so that no row is met twice and no read
  keeps a writer waiting for long;
- a name in quotes that no column has is a text to SQLite: names are always told with their table.
"""

from fastfill.errors import MissingExtraError

try:
    from fastfill.adapters.sqlite.store import SqliteStore
except ImportError as error:
    raise MissingExtraError("sqlite-vec", "sqlite", "A sqlite:// URL") from error

__all__ = ["SqliteStore"]
