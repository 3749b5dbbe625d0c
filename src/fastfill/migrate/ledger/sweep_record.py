"""`SweepRecord`: when every row was last looked at for what other writers did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastfill.gallery import Documents, JsonDocument


@dataclass(frozen=True)
class SweepRecord(JsonDocument):
    """When the latest sweep that has seen every row began, by the store's clock."""

    NAME: ClassVar[str] = "swept"

    at: float = 0.0

    @classmethod
    def last(cls, documents: Documents) -> float:
        """When the latest one began; 0 where there was none."""
        return (cls.load(documents) or cls()).at

    @classmethod
    def add(cls, documents: Documents, began: float) -> None:
        """A sweep that began then has seen every row."""
        cls.change(documents, lambda latest: cls(max(began, (latest or cls()).at)))
