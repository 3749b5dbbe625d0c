"""`Quarantine`: items that the encoder could not embed, after a few tries left out of the work."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from fastfill.gallery import Documents, Id, JsonDocument

TRIES = 3  # of an item before it is quarantined
LONGEST = 300  # characters of an error that are kept


@dataclass(frozen=True)
class Failures(JsonDocument):
    """Tries and last error of each item that has failed.

    Ids are kept as JSON, because JSON knows only texts as keys.
    """

    NAME: ClassVar[str] = "failures"

    items: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """FastFill 0.1 wrote the items without a name around them."""
        items = plain if version == 0 else plain["items"]
        return cls({key: (int(tries), str(error)) for key, (tries, error) in items.items()})


class Quarantine:
    """The failures in a store, and which of the items are not tried again.

    >>> from fastfill.gallery import MemoryStore
    >>> quarantine = Quarantine(MemoryStore({"id": [1], "vector": [[1.0]]}), tries=2)
    >>> quarantine.add({7: "cannot be read"}); quarantine.items()
    {}
    >>> quarantine.add({7: "cannot be read"}); quarantine.items()
    {7: 'cannot be read'}
    >>> quarantine.release(); quarantine.items()
    {}
    """

    def __init__(self, documents: Documents, tries: int = TRIES) -> None:
        self._documents = documents
        self._tries = tries

    def failures(self) -> dict[Id, tuple[int, str]]:
        """Every item that has failed: tries and last error."""
        log = Failures.load(self._documents) or Failures()
        return {json.loads(key): entry for key, entry in log.items.items()}

    def items(self) -> dict[Id, str]:
        """Items that are not tried again, with the last error."""
        failures = self.failures().items()
        return {key: error for key, (tries, error) in failures if tries >= self._tries}

    def add(self, errors: Mapping[Id, str]) -> None:
        """Count one more try of each."""

        def change(log: Failures | None) -> Failures:
            items = dict((log or Failures()).items)
            for key, error in errors.items():
                name = json.dumps(key)
                items[name] = (items.get(name, (0, ""))[0] + 1, error[:LONGEST])
            return Failures(items)

        if errors:
            Failures.change(self._documents, change)

    def release(self, ids: Iterable[Id] | None = None) -> None:
        """Forget the failures of these items, or of all: they are tried again."""
        log = Failures.load(self._documents)
        if log is None or not log.items:
            return
        names = set(log.items) if ids is None else {json.dumps(key) for key in ids} & set(log.items)
        if names:
            Failures.change(self._documents, lambda latest: _without(latest or Failures(), names))


def _without(log: Failures, names: set[str]) -> Failures:
    return Failures({key: entry for key, entry in log.items.items() if key not in names})
