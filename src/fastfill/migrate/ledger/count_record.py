"""`CountRecord`: how long it took to count every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastfill.gallery import Documents, JsonDocument


@dataclass(frozen=True)
class CountRecord(JsonDocument):
    """What the latest count of every row took."""

    NAME: ClassVar[str] = "counted"

    seconds: float = 0.0

    @classmethod
    def last(cls, documents: Documents) -> CountRecord:
        """The latest one; 0 seconds where there was none."""
        return cls.load(documents) or cls()
