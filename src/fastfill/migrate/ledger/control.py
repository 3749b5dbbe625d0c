"""`Control`: what the operator tells all workers, wherever they run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fastfill.gallery import Documents, JsonDocument


@dataclass(frozen=True)
class Control(JsonDocument):
    """Are the workers to wait, and how fast may they go?

    >>> from fastfill.gallery import MemoryStore
    >>> store = MemoryStore({"id": [1], "vector": [[1.0]]})
    >>> _ = Control.set(store, paused=True)
    >>> Control.set(store, rate=5.0)
    Control(paused=True, rate=5.0)
    """

    NAME: ClassVar[str] = "control"

    paused: bool = False
    rate: float | None = None  # rows per second, of each worker

    @classmethod
    def of(cls, documents: Documents) -> Control:
        """As it is now."""
        return cls.load(documents) or cls()

    @classmethod
    def set(
        cls, documents: Documents, *, paused: bool | None = None, rate: float | None = None
    ) -> Control:
        """Change what is given; the rest stays."""

        def change(control: Control | None) -> Control:
            before = control or cls()
            return replace(
                before,
                paused=before.paused if paused is None else paused,
                rate=before.rate if rate is None else rate,
            )

        return cls.change(documents, change)
