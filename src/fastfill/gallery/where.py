"""Part of a collection: the rows that have certain values in certain columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from fastfill.errors import InputError

Where = tuple[tuple[str, str], ...]  # column and value as text, in order of the columns; (): all


def as_where(values: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> Where:
    """Conditions as they are kept: values as text, in order of the columns.

    >>> as_where({"tenant": 7, "kind": "note"})
    (('kind', 'note'), ('tenant', '7'))
    """
    pairs = values.items() if isinstance(values, Mapping) else values or ()
    return tuple(sorted((str(name), str(value)) for name, value in pairs))


def parse_where(words: Iterable[str]) -> dict[str, str]:
    """Conditions as typed: `COLUMN=VALUE`, all of which must hold.

    >>> parse_where(["tenant=7"])
    {'tenant': '7'}
    """
    parsed: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise InputError(f"--where is COLUMN=VALUE, not {word!r}.")
        if name in parsed:
            raise InputError(f"--where names the column '{name}' twice: a row has one value there.")
        parsed[name] = value
    return parsed


def where_text(where: Where) -> str:
    """For people.

    >>> where_text((("kind", "note"), ("tenant", "7")))
    'kind=note and tenant=7'
    """
    return " and ".join(f"{name}={value}" for name, value in where)


def part_tag(where: Where) -> str:
    """What the names of a part's columns and documents have in common; empty for all rows.

    >>> part_tag(()), part_tag((("tenant", "7"),))
    ('', '3ce325ff')
    """
    if not where:
        return ""
    return hashlib.sha256(json.dumps(where).encode()).hexdigest()[:8]
