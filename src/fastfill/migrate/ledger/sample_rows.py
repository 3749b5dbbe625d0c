"""`SampleRows`: which rows the quality of the migration is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fastfill.gallery import Documents, Id, JsonDocument

MOST_QUERIES = 1_000
LEAST_QUERIES = 50


@dataclass(frozen=True)
class SampleRows(JsonDocument):
    """The ids of the sample's rows."""

    NAME: ClassVar[str] = "panel"

    queries: Sequence[Id] = ()  # rows that are new by chance and by no policy
    others: Sequence[Id] | None = None  # None: not chosen yet

    @classmethod
    def of(cls, documents: Documents) -> SampleRows:
        """As they are kept in the store."""
        return cls.load(documents) or cls()

    @classmethod
    def add_queries(cls, documents: Documents, ids: Sequence[Id]) -> SampleRows:
        """Remember rows that were embedded because chance chose them."""

        def change(sample: SampleRows | None) -> SampleRows:
            before = sample or cls()
            queries = list(dict.fromkeys([*before.queries, *ids]))[:MOST_QUERIES]
            return replace(before, queries=queries)

        return cls.change(documents, change)

    @classmethod
    def set_others(cls, documents: Documents, ids: Sequence[Id]) -> SampleRows:
        """Choose the rows that are searched beside the queries, once."""

        def change(sample: SampleRows | None) -> SampleRows:
            before = sample or cls()
            return before if before.others is not None else replace(before, others=list(ids))

        return cls.change(documents, change)
