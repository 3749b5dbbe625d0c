"""`diagnose`: is a gallery fit to be migrated, and what would that need? Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastfill.errors import FastFillError, InputError
from fastfill.features import Distance
from fastfill.gallery import (
    Gallery,
    Inspectable,
    Inspection,
    Rows,
    VectorIndex,
    repeated_ids_of,
)
from fastfill.migrate.planning import MARK_BYTES, size
from fastfill.migrate.row_checks import Check, Level, check_dimensions, check_rows

SAMPLE = 10_000  # rows that are looked at one by one; the others are counted
BEHIND = 0.1  # share of the rows that an index may lack before it is worth a word


@dataclass(frozen=True)
class Diagnosis:
    """All checks of a gallery; `good` where nothing stands in the way of a migration."""

    store: str
    rows: int
    sampled: int
    random: bool  # are those at random, or the first ones, where the store cannot do otherwise?
    checks: tuple[Check, ...]

    @property
    def good(self) -> bool:
        """Is there no problem? Warnings do not stand in the way."""
        return not any(check.level == "problem" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "store": self.store,
            "good": self.good,
            "rows": self.rows,
            "sampled": self.sampled,
            "random": self.random,
            "checks": [check.to_json() for check in self.checks],
        }

    @classmethod
    def refused(cls, store: str, error: FastFillError) -> Diagnosis:
        """That of a gallery that cannot even be opened."""
        return cls(store, 0, 0, True, (Check("opening", "problem", str(error)),))


def diagnose(
    gallery: Gallery, *, sample: int = SAMPLE, dim: int | None = None, seed: int = 0
) -> Diagnosis:
    """Look at a gallery: its vectors, inputs, indexes, free space and permissions.

    Up to `sample` random rows are read. `dim` are the dimensions of the new model, where known.

    >>> from fastfill.gallery import MemoryStore
    >>> rows = {"id": [1, 2], "text": ["a", ""], "vector": [[1.0, 0.0], [0.0, 0.0]]}
    >>> gallery = Gallery(MemoryStore(rows), id="id", input="text", distance="cosine")
    >>> [check.name for check in diagnose(gallery).checks if check.level == "problem"]
    ['zero vectors', 'missing inputs']
    """
    store, state = gallery.store, gallery.state
    if state is not None and state.ended:  # its new vectors are the only ones
        gallery.begin_after(state)
    count = store.describe().rows
    distance = _distance(gallery)
    inspection = store.inspect(sample, seed) if isinstance(store, Inspectable) else None
    checks = [*_versions(inspection), *_check_state(gallery, count)]
    rows: Rows | None = None
    if inspection is not None:
        checks.append(check_dimensions(inspection.kind, inspection.dims.items()))
    if count and (inspection is None or len(inspection.dims) <= 1):
        rows = _sampled_rows(gallery, inspection, sample)
        repeated = repeated_ids_of(store)
        checks += check_rows(rows, distance, repeated, inputs=store.columns.input is not None)
    checks += [_check_input_column(gallery), *_check_models(gallery, rows)]
    checks += _check_distance(distance)
    if inspection is not None:
        checks += check_indexes(inspection.indexes, distance, count)
        checks.append(_check_permissions(inspection))
    checks.append(check_space(inspection, count, dim or store.describe().old_dim, dim is not None))
    shown = tuple(check for check in checks if check.text)
    sampled = 0 if rows is None else len(rows)
    return Diagnosis(gallery.name, count, sampled, inspection is not None, shown)


def _distance(gallery: Gallery) -> Distance | None:
    """That of the gallery; None where neither an index nor the caller tells it."""
    try:
        return gallery.distance
    except InputError:
        return None


def _sampled_rows(gallery: Gallery, inspection: Inspection | None, sample: int) -> Rows:
    if inspection is not None:
        return gallery.store.read(list(inspection.ids))
    return next(iter(gallery.store.scan(None, batch=sample, new=False)))


def _versions(inspection: Inspection | None) -> list[Check]:
    """Not right or wrong: what a report of an error needs."""
    software = () if inspection is None else inspection.software
    return [Check("versions", "ok", ", ".join(software))]


def _check_state(gallery: Gallery, count: int) -> list[Check]:
    """Is there anything to migrate, is a migration open, and are the names free that it adds?"""
    checks = [] if count else [Check("rows", "problem", "there is no row: nothing to migrate")]
    state = gallery.state
    if state is not None and state.phase != "rolled back":
        text = f"one is {state.phase}, by {state.encoder}: see fastfill status"
        return [*checks, Check("migration", "ok", text)]
    occupied = gallery.store.occupied()
    if occupied:
        text = f"there is already {', '.join(occupied)}, which no migration has added: rename or "
        return [*checks, Check("names", "problem", f"{text}drop it before start")]
    return [*checks, Check("names", "ok", "those that a migration adds are free")]


def _check_input_column(gallery: Gallery) -> Check:
    named = gallery.store.columns.input is not None
    text = "" if named else "no column of inputs is named, so they were not looked at: give --input"
    return Check("inputs", "ok" if named else "warning", text)


def _check_models(gallery: Gallery, rows: Rows | None) -> list[Check]:
    """During a migration: added vectors that neither the map nor the model of it has made.

    Looked for in the sample: a count of all rows takes long, and some stores keep it.
    """
    state = gallery.state
    if state is None or rows is None or state.phase not in ("started", "completing"):
        return []
    marks = [key for key in zip(rows.generation, rows.model, strict=True) if key[0] is not None]
    wrong = sum(not state.settled.is_right(*key) for key in marks)
    text = (
        f"{wrong:,} of the {len(rows):,} rows that were looked at bear marks of other models than "
        "the present ones: run fastfill backfill"
    )
    return [Check("mixed models", "warning", text)] if wrong else []


def _check_distance(distance: Distance | None) -> list[Check]:
    text = "no index tells the distance of the search: give --distance l2, cosine or ip"
    return [Check("distance", "warning", text)] if distance is None else []


def check_indexes(
    indexes: Sequence[VectorIndex], distance: Distance | None, rows: int
) -> list[Check]:
    """Indexes that are broken, of another distance than the search, or far behind the rows.

    >>> [check.level for check in check_indexes([VectorIndex("a", "hnsw", "l2")], "cosine", 9)]
    ['problem']
    """
    if not indexes:
        text = "none on this column: every search looks at every row"
        return [Check("indexes", "ok" if rows < SAMPLE else "warning", text)]
    tests: list[tuple[Callable[[VectorIndex], bool], Level, str]] = [
        (lambda i: not i.valid, "problem", "is not valid, and no search uses it: drop it and "
         "build it again"),
        (lambda i: i.distance not in (distance, None), "problem",
         f"is not of the distance {distance}, and no search by that uses it: build one that fits"),
        (lambda i: i.unindexed > BEHIND * max(rows, 1), "warning",
         "lacks more than a tenth of the rows: build it again"),
    ]  # fmt: skip
    wrong = [
        Check("indexes", level, f"{index.name} ({index.kind}, {index.distance}) {text}")
        for index in indexes
        for test, level, text in tests
        if test(index)
    ]
    names = ", ".join(f"{index.name} ({index.kind}, {index.distance})" for index in indexes)
    return wrong or [Check("indexes", "ok", names)]


def _check_permissions(inspection: Inspection) -> Check:
    missing = inspection.missing_permissions
    if not missing:
        return Check("permissions", "ok", "this user may do all that a migration does")
    return Check("permissions", "problem", f"this user may not {'; nor '.join(missing)}")


def check_space(inspection: Inspection | None, rows: int, dim: int, certain: bool) -> Check:
    """What a migration would add, and whether there is space for it.

    `start` writes every row once more, and the version before stays until it is cleaned away.

    >>> check_space(None, 1_000, 256, certain=True).text
    'the added vectors (256 dimensions) and marks take about 1.09 MB'
    """
    added = rows * (4 * dim + MARK_BYTES)
    guess = "" if certain else ", or what --dim says"
    text = f"the added vectors ({dim} dimensions{guess}) and marks take about {size(added)}"
    stored = None if inspection is None else inspection.stored_bytes
    free = None if inspection is None else inspection.free_bytes
    if stored is None and free is None:
        return Check("space", "ok", text)
    needed = (stored or 0) + added
    if stored is not None:
        text += f"; with every row written once more up to {size(needed)} are needed for a while"
    if free is None:
        return Check("space", "ok", f"{text} (the server does not tell what is free)")
    level: Level = "ok" if free > needed else "problem"
    return Check("space", level, f"{text}, {size(free)} are free")
