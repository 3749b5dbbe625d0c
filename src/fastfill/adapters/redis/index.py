"""An index of Redis as its server describes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastfill.adapters.redis.connection import RedisConnection
from fastfill.errors import StoreError, some
from fastfill.features import Distance

DISTANCE_OF: dict[str, Distance] = {"L2": "l2", "IP": "ip", "COSINE": "cosine"}
COPIED = ("TAG", "NUMERIC", "TEXT", "GEO")  # kinds of fields that our index can filter by too


@dataclass(frozen=True)
class IndexField:
    """One field of an index."""

    field: str  # of the hash
    name: str  # in queries
    kind: str
    settings: dict[str, str]

    @property
    def dim(self) -> int:
        """Of the vectors that it holds."""
        return int(self.settings.get("dim", 0))

    @property
    def distance(self) -> Distance:
        """By which its vectors are compared."""
        return DISTANCE_OF[self.settings["distance_metric"].upper()]

    @property
    def schema(self) -> list[str]:
        """How another index is told to have it too."""
        separator = ["SEPARATOR", self.settings["SEPARATOR"]] if self.kind == "TAG" else []
        return [self.field, "AS", self.name, self.kind, *separator]


@dataclass(frozen=True)
class RedisIndex:
    """What an index covers."""

    name: str
    prefixes: tuple[str, ...]
    fields: tuple[IndexField, ...]
    on_hashes: bool
    filtered: bool
    indexing: bool

    def find(self, name: str) -> IndexField | None:
        """The field of this name."""
        return next((each for each in self.fields if each.name == name), None)

    @property
    def copied(self) -> list[IndexField]:
        """Its fields that our index has too, for filters."""
        return [each for each in self.fields if each.kind in COPIED]


def find_index(connection: RedisConnection, name: str) -> RedisIndex | None:
    """The index of this name as it is now, or None."""
    if name.encode() not in connection.run("FT._LIST"):
        return None
    told = _pairs(connection.run("FT.INFO", name))
    definition = _pairs(told["index_definition"])
    return RedisIndex(
        name=name,
        prefixes=tuple(prefix.decode() for prefix in definition["prefixes"]),
        fields=tuple(_field(each) for each in told["attributes"]),
        on_hashes=definition["key_type"] == b"HASH",
        filtered="filter" in definition,
        indexing=int(told.get("indexing", 0)) == 1,
    )


def count_indexed(connection: RedisConnection, name: str) -> int:
    """Hashes that an index has taken in."""
    return int(_pairs(connection.run("FT.INFO", name))["num_docs"])


def require_index(connection: RedisConnection, name: str) -> RedisIndex:
    """The same, of hashes; anything else is refused."""
    index = find_index(connection, name)
    if index is None:
        have = sorted(each.decode() for each in connection.run("FT._LIST"))
        raise StoreError(
            f"{connection.name} has no index '{name}', only {some(have) or 'none at all'}."
        )
    if not index.on_hashes or index.filtered:
        kind = "has a FILTER" if index.on_hashes else "is of JSON documents"
        raise StoreError(f"{connection.name}#{name} {kind}; FastFill can do hashes by prefix.")
    return index


def _field(attribute: Sequence[Any]) -> IndexField:
    values = {key: value for key, value in _pairs(attribute).items() if not isinstance(value, list)}
    texts = {k: v.decode() if isinstance(v, bytes) else str(v) for k, v in values.items()}
    return IndexField(texts["identifier"], texts["attribute"], texts["type"], texts)


def _pairs(flat: Sequence[Any]) -> dict[str, Any]:
    """
    >>> _pairs([b"dim", 8, b"type", b"VECTOR"])
    {'dim': 8, 'type': b'VECTOR'}
    """
    keys = [key.decode() if isinstance(key, bytes) else str(key) for key in flat[::2]]
    return dict(zip(keys, flat[1::2], strict=False))
