"""The documents of a migration: one hash, with a value and a version for each."""

from __future__ import annotations

from collections.abc import Sequence

from fastfill.adapters.redis.context import RedisContext
from fastfill.adapters.redis.scripts import SAVE
from fastfill.gallery import Document


class RedisDocuments:
    """Named blobs, replaced by compare-and-set."""

    def __init__(self, context: RedisContext) -> None:
        self._context, self._key = context, context.documents
        self._save = context.connection.script(SAVE)

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        fields = (f"value/{name}", f"version/{name}")
        value, version = self._context.connection.run("HMGET", self._key, *fields)
        return None if version is None else Document(bytes(value), int(version))

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        return bool(self._save([self._key], [name, value, version]))

    def now(self) -> float:
        """By the clock of the server."""
        seconds, micros = self._context.connection.run("TIME")
        return int(seconds) + int(micros) / 1e6

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        fields = [field.decode() for field in self._context.connection.run("HKEYS", self._key)]
        names = (f.removeprefix("version/") for f in fields if f.startswith("version/"))
        return sorted(name for name in names if name.startswith(prefix))

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        fields = [f"{part}/{name}" for name in names for part in ("value", "version")]
        if fields:
            self._context.connection.run("HDEL", self._key, *fields)
