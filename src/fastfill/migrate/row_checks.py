"""What is wrong with a sample of rows: vectors, inputs, ids, and signs of two models in one column.

Every function looks at rows as they were read and returns checks; none of them asks the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import some
from fastfill.features import Distance, Matrix
from fastfill.gallery import RepeatedIds, Rows
from fastfill.gallery.fingerprint import missing_vectors

Level = Literal["ok", "warning", "problem"]
UNIT, FAR = 2e-3, 1e-2  # off unit length: as rounding makes it, and as no rounding does
FEW = 0.05  # share of unit vectors below which they are so by chance
SAME = 1e-3  # relative distance of two vectors that one model made of the same input


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and the way out where it is not good."""

    name: str
    level: Level
    text: str
    ids: tuple[Any, ...] = ()  # some of the rows at fault

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"check": self.name, "level": self.level, "text": self.text, "ids": list(self.ids)}


def check_rows(
    rows: Rows, distance: Distance | None, repeated: RepeatedIds | None, *, inputs: bool
) -> list[Check]:
    """All checks of a sample; without `inputs` no column of them was named.

    `repeated` is what a look at the ids of all rows has found, where there was one.
    """
    checks = [*check_vectors(rows, distance), check_duplicates(rows)]
    checks.append(check_ids(rows) if repeated is None else check_all_ids(repeated))
    if inputs:
        checks += [check_inputs(rows), check_repeated_inputs(rows)]
    return [*checks, check_lengths(rows)]


def check_vectors(rows: Rows, distance: Distance | None) -> list[Check]:
    """Rows without a vector, with numbers that are not finite, or of length zero."""
    missing = missing_vectors(rows.old)
    broken = ~missing & ~np.isfinite(rows.old).all(axis=1)
    zero = (rows.old == 0).all(axis=1)
    faults = [
        _fault("missing vectors", "warning", rows, missing, "have no vector: they wait until they "
               "are embedded, and no search finds them before"),
        _fault("non-finite vectors", "problem", rows, broken, "have NaN or infinite numbers: embed "
               "them again, or set their vector to null"),
        _fault("zero vectors", "warning" if distance in ("l2", "ip") else "problem", rows, zero,
               "are zero, which has no direction: embed them again, or set them to null"),
    ]  # fmt: skip
    wrong = [fault for fault in faults if fault is not None]
    return wrong or [Check("vectors", "ok", "all are there, finite and not zero")]


def check_duplicates(rows: Rows) -> Check:
    """Different inputs with the very same vector: cut-off, empty or failed embeddings."""
    usable = np.flatnonzero(rows.usable & (rows.old != 0).any(axis=1))
    inputs: dict[bytes, set[object]] = {}
    keys = [rows.old[place].tobytes() for place in usable]
    for key, place in zip(keys, usable, strict=True):
        content = rows.inputs[place]
        inputs.setdefault(key, set()).add(rows.ids[place] if content is None else content)
    shared = np.zeros(len(rows), dtype=bool)
    shared[usable] = [len(inputs[key]) > 1 for key in keys]
    fault = _fault(
        "duplicate vectors", "warning", rows, shared,
        "share their vector with an item of another input: no search tells them apart",
    )  # fmt: skip
    return fault or Check("duplicate vectors", "ok", "no two different items share a vector")


def check_inputs(rows: Rows) -> Check:
    """Rows that cannot be embedded: no input, or an empty one."""
    empty = np.array([content is None or not len(str(content).strip()) for content in rows.inputs])
    fault = _fault(
        "missing inputs", "problem", rows, empty.astype(bool),
        "have no input, so the new model cannot embed them: fill the column, or delete the rows",
    )  # fmt: skip
    return fault or Check("inputs", "ok", "every row has one")


def check_ids(rows: Rows) -> Check:
    """Ids that several rows bear, or none."""
    counted = Counter(rows.ids.tolist())
    several = np.array([key is None or counted[key] > 1 for key in rows.ids], dtype=bool)
    fault = _fault(
        "duplicate ids", "problem", rows, several,
        "share their id with another row: name a column with --id that tells rows apart",
    )  # fmt: skip
    return fault or Check("ids", "ok", "each is there once")


def check_all_ids(repeated: RepeatedIds) -> Check:
    """The same of all rows."""
    if not repeated:
        return Check("ids", "ok", "each is there once")
    text = f"the column does not tell rows apart: {repeated}. Name one with --id that does"
    return Check("duplicate ids", "problem", text, repeated.ids)


def check_repeated_inputs(rows: Rows) -> Check:
    """The same input with different vectors: two models, or one that is not repeatable."""
    first: dict[object, int] = {}
    differ = np.zeros(len(rows), dtype=bool)
    for place in map(int, np.flatnonzero(rows.usable)):
        other = first.setdefault(rows.inputs[place], place)
        if rows.inputs[place] is not None and _far_apart(rows.old, other, place):
            differ[[other, place]] = True
    fault = _fault(
        "mixed models", "problem", rows, differ,
        "have the same input as another row and another vector: more than one model, or another "
        "prompt, has written this column. Embed it again by one model first",
    )  # fmt: skip
    return fault or Check("repeated inputs", "ok", "no input has two different vectors")


def check_lengths(rows: Rows) -> Check:
    """Vectors of unit length among others: two models, or a step that some rows have missed."""
    norms = np.linalg.norm(np.where(rows.usable[:, None], rows.old, 0).astype(np.float64), axis=1)
    there = norms > 0
    off = np.abs(norms - 1)
    unit, far = there & (off < UNIT), there & (off > FAR)
    between = there & ~unit & ~far
    mixed = unit.sum() >= FEW * max(there.sum(), 1) and between.sum() <= unit.sum() / 10
    fewer = unit if unit.sum() < far.sum() else far
    if not (mixed and unit.any() and far.any()):
        return Check("lengths", "ok", "the vectors' lengths look like those of one model")
    text = (
        f"{unit.sum():,} vectors have unit length and {far.sum():,} have not: two models, or rows "
        "that were never normalised. Embed the smaller part again first"
    )
    return Check("mixed models", "problem", text, _first_ids(rows, fewer))


def check_dimensions(kind: str, dims: Iterable[tuple[int, int]]) -> Check:
    """Vectors of several dimensions in one column.

    >>> check_dimensions("vector", [(384, 90), (768, 10)]).level
    'problem'
    """
    ordered = sorted(dims, key=lambda item: -item[1])
    if len(ordered) > 1:
        counts = ", ".join(f"{count:,} of {dim}" for dim, count in ordered)
        text = f"the column ({kind}) holds vectors of several dimensions: {counts}. Rows of more "
        text += "than one model cannot be searched together: embed the smaller part again first"
        return Check("mixed dimensions", "problem", text)
    return Check("dimensions", "ok", f"{kind}, all of {ordered[0][0] if ordered else 0}")


def _far_apart(vectors: Matrix, one: int, other: int) -> bool:
    scale = float(np.linalg.norm(vectors[one])) or 1.0
    return float(np.linalg.norm(vectors[one] - vectors[other])) > SAME * scale


def _fault(
    name: str, level: Level, rows: Rows, wrong: NDArray[np.bool_], text: str
) -> Check | None:
    """A check that has failed on some rows; None where it has not."""
    count = int(wrong.sum())
    if not count:
        return None
    ids = _first_ids(rows, wrong)
    return Check(name, level, f"{count:,} of {len(rows):,} rows {text} (ids {some(ids)})", ids)


def _first_ids(rows: Rows, wrong: NDArray[np.bool_], most: int = 5) -> tuple[Any, ...]:
    chosen: Sequence[Any] = rows.ids[np.flatnonzero(wrong)[:most]].tolist()
    return tuple(chosen)
