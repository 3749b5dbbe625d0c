"""The look after an alias was switched: what was written to the collection that it stood for?

From that moment the application writes to the other collection. So nothing is deleted there, a
point is only inserted where there is none, and a value of a payload is only replaced where it still
is the one that was copied: each is one conditional operation of Qdrant. All else is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from qdrant_client import models

from fastfill.adapters.qdrant.collection import QdrantCollection
from fastfill.adapters.qdrant.points import all_of, equals, is_empty, payload_hash
from fastfill.gallery import Id, LateWrites

_ANY = is_empty("fastfill")
NEVER = all_of(_ANY, but=[_ANY])  # a condition that no point fulfils


class LastLook:
    """Carries over what can be, and remembers the rest."""

    def __init__(self, source: QdrantCollection, target: QdrantCollection) -> None:
        self.source, self.target = source, target
        self.deleted: list[Id] = []  # from the source alone
        self.unembedded: list[Id] = []  # without a new vector for what was written
        self.differing: list[Id] = []  # not in both what they are in one

    def drain(self) -> None:
        """Wait until the source has done what it was asked for: it does so in turn."""
        self.source.ask("delete_payload", keys=["fastfill"], points=NEVER, wait=True)

    def insert(self, points: Sequence[models.PointStruct]) -> None:
        """Insert those that are not there."""
        if points:
            self.target.ask("upsert", points=list(points), update_filter=NEVER, wait=True)

    def change(self, point: Any, copied: str) -> None:
        """Carry over what has changed of a payload, whose hash was `copied`."""
        wanted = dict(point.payload or {})
        found = self._payload(point.id)
        if found is None or payload_hash(found) != copied:  # the application has written it
            self.differing.append(point.id)
            return
        names = [name for name in {**found, **wanted} if _get(found, name) != _get(wanted, name)]
        self._replace(point.id, found, wanted, names)
        after = self._payload(point.id)
        if after is None or any(_get(after, name) != _get(wanted, name) for name in names):
            self.differing.append(point.id)

    def _replace(
        self, key: Id, found: Mapping[str, Any], wanted: dict[str, Any], names: Sequence[str]
    ) -> None:
        """Set some values and take others away, where those of before are still there."""
        given = {name: wanted[name] for name in names if name in wanted}
        taken = [name for name in names if name not in wanted]
        if not all(_is_plain(name, found.get(name)) for name in names):
            return
        if given:
            same = all_of(equals("id", key), *(_still(found, name) for name in given))
            self.target.ask("set_payload", payload=given, points=same, wait=True)
        if taken:
            same = all_of(equals("id", key), *(_still(found, name) for name in taken))
            self.target.ask("delete_payload", keys=taken, points=same, wait=True)

    def _payload(self, key: Id) -> dict[str, Any] | None:
        found = self.target.points([key], payload=True)
        return dict(found[0].payload or {}) if found else None

    def late_writes(self) -> tuple[LateWrites, ...]:
        """What the operator should know."""
        source, meanwhile = self.source.name, "while the alias was switched"
        told = [
            (
                f"deleted from '{source}' {meanwhile}, and still in the gallery",
                "Delete them through the alias if they should be gone",
                self.deleted,
            ),
            (
                f"written to '{source}' {meanwhile}, without a new vector for what was written",
                "Write them again through the alias, embedded by the new model",
                self.unembedded,
            ),
            (
                f"not the same in '{source}', which may have been written {meanwhile}",
                "Compare them with the gallery",
                self.differing,
            ),
        ]
        unique = ((what, advice, tuple(dict.fromkeys(ids))) for what, advice, ids in told)
        return tuple(LateWrites(what, advice, ids) for what, advice, ids in unique if ids)


def _get(payload: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    return name in payload, payload.get(name)


def _is_plain(name: str, value: Any) -> bool:
    """Can a condition say exactly that a key has this value?"""
    plain = value is None or isinstance(value, str | bool | int | float)
    return plain and re.fullmatch(r"\w+", name) is not None


def _still(found: Mapping[str, Any], name: str) -> Any:
    """The condition that a key has the value that it had."""
    if name in found and found[name] is None:
        return models.IsNullCondition(is_null=models.PayloadField(key=name))
    return equals(name, found.get(name))
