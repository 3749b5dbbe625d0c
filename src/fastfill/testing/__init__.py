"""The suite that every store adapter passes: operation by operation against the reference.

Subclass it in a test module of your adapter and say how a collection is made; pytest does the rest:

    class TestMyStore(StoreSuite):
        def make(self, values, distance=None):
            ...create a collection with these columns, open it...
            return store

`values` has the columns `id`, `text`, `album` and `vector` (lists of floats, some of them None).
A store that cannot hold any text as an id says in `key` what the ids are like; one whose rows
always have a vector sets `vectors_optional = False`.
"""

from fastfill.testing.documents import DocumentChecks
from fastfill.testing.picks import PickChecks
from fastfill.testing.reads import ReadChecks
from fastfill.testing.schema import SchemaChecks
from fastfill.testing.search import SearchChecks
from fastfill.testing.world import (
    COLUMNS,
    NEW_DIM,
    OLD_DIM,
    QUERY,
    SETTLED,
    StoreSuiteError,
    bound,
    marks,
    new_vectors,
    quoted,
    read_sorted,
    snapshot,
    values,
)
from fastfill.testing.writes import WriteChecks

__all__ = [
    "COLUMNS",
    "NEW_DIM",
    "OLD_DIM",
    "QUERY",
    "SETTLED",
    "StoreSuite",
    "StoreSuiteError",
    "bound",
    "marks",
    "new_vectors",
    "quoted",
    "read_sorted",
    "snapshot",
    "values",
]


class StoreSuite(SchemaChecks, ReadChecks, PickChecks, WriteChecks, SearchChecks, DocumentChecks):
    """What a store must do, each test on the adapter and on the reference."""
