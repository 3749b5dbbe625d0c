"""LanceDB, the embedded default: `lance://PATH#TABLE.COLUMN`.

What the design rests on, in Lance's terms:
- a batch is one `merge_insert`, which commits one new version of the table or nothing at all;
- the compare-and-set asks whether rows lie where they were read (`compare_and_set.py`);
- a scan reads the version that it began with, so rows that are written meanwhile are not met again;
- a row that was picked is read by its row id, and by its key where it has moved since.
"""

from fastfill.errors import MissingExtraError

try:
    from fastfill.adapters.lance.store import LanceStore
except ImportError as error:
    raise MissingExtraError("lancedb", "lance", "A lance:// URL") from error

__all__ = ["LanceStore"]
