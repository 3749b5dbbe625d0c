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
    seconds: float = 0.0  # that it took

    @classmethod
    def last(cls, documents: Documents) -> SweepRecord:
        """The latest one; at 0 where there was none."""
        return cls.load(documents) or cls()

    @classmethod
    def add(cls, documents: Documents, began: float, seconds: float) -> None:
        """A sweep that began then has seen every row."""
        done = cls(began, seconds)
        cls.change(documents, lambda latest: max(latest or cls(), done, key=lambda each: each.at))
