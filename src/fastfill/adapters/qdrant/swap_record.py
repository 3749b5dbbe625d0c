"""What a cut-over notes of itself: that the copy is FastFill's, who makes it, and which way."""

from __future__ import annotations

import json
import uuid
from typing import Literal

from fastfill.adapters.qdrant.documents import QdrantDocuments
from fastfill.errors import StoreError

NAME = "copy"
Stage = Literal["copying", "returning"]


class SwapRecord:
    """A document that the latest process to begin has written."""

    def __init__(self, documents: QdrantDocuments, place: str) -> None:
        self._documents, self._place = documents, place
        self._mine = ""

    @property
    def stage(self) -> Stage | None:
        """Which way, if any."""
        return self._load()[0]

    def begin(self, *, returning: bool = False) -> None:
        """Take it over from whoever has begun before."""
        found = self._documents.load(NAME)
        self._mine = uuid.uuid4().hex
        value = json.dumps({"stage": "returning" if returning else "copying", "by": self._mine})
        version = 0 if found is None else found.version
        if not self._documents.save(NAME, value.encode(), version):
            self.refuse()

    def check_mine(self) -> None:
        """Refuse to go on where another process has begun since."""
        if self._load()[1] != self._mine:
            self.refuse()

    def forget(self) -> None:
        """It is over."""
        self._documents.remove([NAME])

    def _load(self) -> tuple[Stage | None, str]:
        found = self._documents.load(NAME)
        if found is None:
            return None, ""
        value = json.loads(found.value)
        return value["stage"], value["by"]

    def refuse(self) -> None:
        """Say that another process is at it."""
        raise StoreError(
            f"{self._place}: another process has begun to swap meanwhile. Let it end, and look "
            "with fastfill status."
        )
