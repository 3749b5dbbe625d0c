"""The owner's hashes: their keys, some of their fields, and rows made of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from fastfill.adapters.redis.connection import RedisConnection
from fastfill.adapters.redis.packing import PackedValues
from fastfill.adapters.redis.scripts import SCRIPT_ROWS, read_script
from fastfill.gallery import Id

PAGE = 512  # hashes that are read in one message
PRINT = 40  # characters of a fingerprint
LOOKED_AT = 64  # hashes whose fields tell which ones there are


@dataclass(frozen=True, eq=False)
class PackedHashes:
    """Some fields of some hashes."""

    keys: list[Id]  # of those that exist
    prints: list[str]  # their fingerprints, where these were asked for
    fields: list[PackedValues]  # of each field that was wanted


class RedisHashes:
    """The hashes under the prefixes of an index."""

    def __init__(
        self, connection: RedisConnection, prefixes: Sequence[str], documents: str
    ) -> None:
        self._connection, self._prefixes, self._documents = connection, prefixes, documents

    def keys(self) -> list[Id]:
        """All of them, each once."""
        return list(dict.fromkeys(key for page in self._pages() for key in page))

    def _pages(self) -> Iterator[list[Id]]:
        """Pages of their keys, some perhaps again; our documents are none of the owner's."""
        for prefix in self._prefixes:
            pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", prefix) + "*"
            for page in self._connection.pages_of_keys(pattern):
                yield [key for key in page if key != self._documents]

    def values(self, keys: Sequence[Id], fields: Sequence[str]) -> dict[Id, list[bytes | None]]:
        """These fields of those of the hashes that exist."""
        values: dict[Id, list[bytes | None]] = {}
        for page in pages_of(keys, PAGE):
            commands = [["HMGET", key, *fields] for key in page]
            answers = self._connection.run_all(commands) if fields else [[] for _ in page]
            values |= {k: a for k, a in zip(page, answers, strict=True) if isinstance(a, list)}
        return self._without_missing(values)

    def _without_missing(
        self, values: dict[Id, list[bytes | None]]
    ) -> dict[Id, list[bytes | None]]:
        """A hash that has none of the fields may not be there at all."""
        bare = [key for key, row in values.items() if not any(v is not None for v in row)]
        there = self._connection.run_all([["EXISTS", key] for key in bare])
        gone = {key for key, answer in zip(bare, there, strict=True) if answer != 1}
        return {key: row for key, row in values.items() if key not in gone}

    def packed(
        self, keys: Sequence[Id], fields: Sequence[str], *, prints: bool = False, first: int = 0
    ) -> PackedHashes:
        """These fields, from the `first` on, of those of the hashes that exist, read by scripts.

        With `prints` also the fingerprints of the first two fields, which need not be wanted.
        """
        keys, told = list(dict.fromkeys(keys)), [2 if prints else 0, first + 1, *fields]
        answers: list[Any] = []
        for page in pages_of(keys, PAGE):
            parts = pages_of(page, SCRIPT_ROWS)
            scripts = [["EVAL", read_script(), len(part), *part, *told] for part in parts]
            answers += self._connection.run_all(scripts, strict=True)
        there = b"".join([answer[0] for answer in answers])
        text = b"".join([answer[1] for answer in answers]).decode()
        return PackedHashes(
            [key for key, is_there in zip(keys, there, strict=True) if is_there == ord("1")],
            [text[at : at + PRINT] for at in range(0, len(text), PRINT)],
            [PackedValues.joined(column) for column in zip(*(a[2:] for a in answers), strict=True)]
            or [PackedValues(b"", b"") for _ in fields[first:]],
        )

    def fields(self) -> list[str]:
        """The fields of some hashes."""
        some = list(islice((key for page in self._pages() for key in page), LOOKED_AT))
        answers = self._connection.run_all([["HKEYS", key] for key in some])
        names = (name.decode() for answer in answers for name in answer)
        return list(dict.fromkeys(names))

    def any_has(self, field: str) -> bool:
        """Has any hash this field? Mostly some of the first have, and no other is looked at."""
        return field in self.fields() or any(
            answer == 1
            for keys in self._pages()
            for page in pages_of(keys, PAGE)
            for answer in self._connection.run_all([["HEXISTS", key, field] for key in page])
        )

    def take_off(self, fields: Sequence[str]) -> None:
        """Delete these fields of all hashes."""
        for page in pages_of(self.keys(), PAGE):
            self._connection.run_all([["HDEL", key, *fields] for key in page])


def pages_of(keys: Sequence[Id], size: int) -> Iterator[Sequence[Id]]:
    """Consecutive parts of at most `size` keys.

    >>> list(pages_of(["a", "b", "c"], 2))
    [['a', 'b'], ['c']]
    """
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


def as_bytes(vector: Any) -> bytes:
    """A vector as a hash holds it."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def content_fingerprint(vector: bytes | None, text: bytes | None) -> str:
    """What `scripts.FINGERPRINT` computes.

    >>> content_fingerprint(None, b"a") == content_fingerprint(b"a", None)
    False
    """
    parts = (b"0" if part is None else b"1" + part for part in (vector, text))
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).hexdigest()


def as_text(value: bytes | None) -> Any:
    """A value as text; bytes that are none stay as they are."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
