"""Maps learned elsewhere, corrected by the gallery's own pairs.

A map that was learned from training data knows the classes and has seen many items, but the new
model has memorised those: on a gallery it is wrong in ways that its training set does not show. A
sample of the gallery shows them. h is the mean of the given maps; a kernel map from the old vector
and h together learns new − h from the gallery's pairs, with the error that is left.

Two more things are done to the vectors. Their lengths go half-way to the mean length of the
gallery's new vectors: h is a mean of what is possible, so doubtful items are short, and short
vectors are near to everything. And where the classes' mean vectors are known, an item moves towards
that of its class, the more so the surer the classifier is of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfill.align.alignment import Alignment, forms
from fastfill.align.artefact import fingerprint
from fastfill.align.fitting import MIN_PAIRS, fit_residuals
from fastfill.align.penalty import KEY, Penalty, penalised, penalised_by_default
from fastfill.align.reference import ROWS, Reference, reference_rows
from fastfill.align.values import Aligned
from fastfill.errors import InputError, ShapeError
from fastfill.features import Matrix, Pairs, as_matrix

TOWARDS_LENGTH = 0.5
TOWARDS_CLASS = 0.5  # of the way, for an item whose class is certain
SURENESS = 3  # power of the largest probability


@dataclass(frozen=True, eq=False)
class Correction:
    """From old vectors and h to vectors in the new space, with their predicted error."""

    kernel: Alignment  # from [old, h] in the units below to new − h
    units: tuple[float, float]  # of the old vectors and of h
    length: float | None  # mean length of the gallery's new vectors; None: of unit length
    penalty: Penalty | None = None
    head: Matrix | None = None  # (classes, d_new)
    means: Matrix | None = None  # (classes, d_new): the mean new vector of each class

    @classmethod
    def fit(
        cls, old: Matrix, h: Matrix, new: Matrix, *, head: Matrix | None = None,
        means: Matrix | None = None, penalty: float | None = None, seed: int = 0,
    ) -> Correction:  # fmt: skip
        """Learn from pairs what h gets wrong; `penalty` as in `Alignment.fit`.

        >>> rng = np.random.default_rng(0)
        >>> old = rng.normal(size=(400, 3)).astype("float32")
        >>> correction = Correction.fit(old, old, np.sin(old))
        >>> bool(np.square(correction(old, old).vectors - np.sin(old)).mean() < 0.02)
        True
        """
        if head is not None and means is not None and head.shape != means.shape:
            raise ShapeError(
                f"The classifier is {head.shape} and the means of the classes {means.shape}: "
                "give one mean for each class."
            )
        units = (_unit(old), _unit(h))
        lengths = np.linalg.norm(new, axis=1)
        steady = bool(np.abs(lengths - 1).max() < 1e-2)
        kernel = fit_residuals(_joined(old, h, units), new - h, seed)
        length = None if steady else float(lengths.mean(dtype=np.float64))
        moved = Penalty.of(
            new, share=penalty, head=head, error=kernel.facts["held_out"]["error"], unit=steady
        )
        return cls(kernel, units, length, moved, head, means)

    def __call__(self, old: Matrix, h: Matrix) -> Aligned:
        """The corrected vectors and their predicted squared error."""
        left = self.kernel(_joined(old, h, self.units))
        corrected = h + left.vectors
        placed = self._placed(corrected.copy())
        return penalised(self.penalty, placed, left.variance, self.head, seen=corrected)

    def _placed(self, vectors: Matrix) -> Matrix:
        """Of the length that they should have, and nearer to their class."""
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.maximum(lengths, np.finfo(np.float32).tiny, out=lengths)
        if self.length is None:
            return np.asarray(vectors / lengths)
        if self.head is not None and self.means is not None:
            vectors = self._towards_classes(vectors / lengths * np.float32(self.length))
            vectors *= lengths / np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(
            vectors * (np.float32(self.length) / lengths) ** np.float32(TOWARDS_LENGTH)
        )

    def _towards_classes(self, vectors: Matrix) -> Matrix:
        assert self.head is not None  # noqa: S101 - asked by the caller
        assert self.means is not None  # noqa: S101
        logits = vectors @ self.head.T
        sure = np.exp(logits - logits.max(1, keepdims=True))
        sure /= sure.sum(1, keepdims=True)
        weight = np.float32(TOWARDS_CLASS) * sure.max(1, keepdims=True) ** SURENESS
        return np.asarray((1 - weight) * vectors + weight * (sure @ self.means))


class Corrected(Alignment):
    """An `Alignment` made of others: their mean, corrected by the gallery's pairs."""

    def __init__(self, bases: Sequence[Alignment], correction: Correction, facts: dict[str, Any]):
        if not bases:
            raise InputError("There is no alignment to correct: give at least one.")
        first = bases[0]
        super().__init__(
            "corrected", _arrays(bases, correction), first.scaling, correction.kernel.calibration,
            side_dim=max(base.side_dim for base in bases), head=first.head, facts=facts,
        )  # fmt: skip
        self.bases, self.correction = tuple(bases), correction

    def mapped(
        self, x: Matrix, side: Matrix | None, name: str = "old vectors", first_row: int = 0
    ) -> Aligned:
        """Map rows of a larger set: an error names the set and the row within it."""
        h = _mean(self.bases, x, side, name, first_row)
        return self.correction(x, h)

    @property
    def new_dim(self) -> int:
        """Dimensions of the new vectors."""
        return self.bases[0].new_dim

    def to_bytes(self) -> bytes:
        """The artefact as bytes, for a store to keep."""
        parts = [*self.bases, self.correction.kernel]
        document = {
            "method": self.method,
            "parts": [part.document() for part in parts],
            "units": list(self.correction.units),
            "length": self.correction.length,
            KEY: self.correction.penalty and self.correction.penalty.to_json(),
            "facts": self.facts,
        }
        return self._packed(self.arrays, document)

    @property
    def fingerprint(self) -> str:
        """Changes whenever the map changes."""
        made = self.correction
        facts = (made.units, made.length, made.penalty and made.penalty.to_json())
        return fingerprint(self.arrays, repr(facts))

    @classmethod
    def from_parts(cls, arrays: dict[str, Matrix], document: dict[str, Any]) -> Corrected:
        """From what `to_bytes` wrote."""
        parts = []
        for i, part in enumerate(document["parts"]):
            start = f"{i}/"
            inner = {k.removeprefix(start): a for k, a in arrays.items() if k.startswith(start)}
            parts.append(Alignment.from_parts(inner, part))
        units = tuple(float(unit) for unit in document["units"])
        length = None if document["length"] is None else float(document["length"])
        direction = arrays.get(KEY)
        correction = Correction(
            parts[-1],
            (units[0], units[1]),
            length,
            None if direction is None else Penalty(direction, **document[KEY]),
            arrays.get("head"),
            arrays.get("means"),
        )
        return cls(parts[:-1], correction, document["facts"])


forms["corrected"] = Corrected.from_parts


def correct(
    alignment: Alignment | Sequence[Alignment], pairs: Pairs, *, means: Matrix | None = None,
    penalty: float | None = None, seed: int = 0,
) -> Corrected:  # fmt: skip
    """Correct alignments by a gallery's own pairs; several are averaged first.

    `means`: the mean new vector of each class, (classes, d_new), where the alignment has a head.

    >>> from fastfill.features import Features
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(300, 4)).astype("float32")
    >>> elsewhere = Alignment.fit(Pairs(Features(old), Features(2 * old)), method="ridge")
    >>> corrected = correct(elsewhere, Pairs(Features(old), Features(2 * old + 1)))
    >>> bool(np.abs(corrected(old).vectors - (2 * old + 1)).mean() < 0.3)
    True
    """
    bases = [alignment] if isinstance(alignment, Alignment) else list(alignment)
    x, new = pairs.old.vectors, pairs.new.vectors
    flat = [b for base in bases for b in (base.bases if isinstance(base, Corrected) else (base,))]
    h = _mean(flat, x, pairs.side)
    head = flat[0].head
    if penalty is None and not penalised_by_default(flat[0].scaling):
        penalty = 0.0
    classes = None if means is None else as_matrix(means, "means")
    correction = Correction.fit(x, h, new, head=head, means=classes, penalty=penalty, seed=seed)
    facts = {
        **flat[0].facts,
        "corrected": len(pairs),
        "held_out": correction.kernel.facts["held_out"],
    }
    corrected = Corrected(flat, correction, facts)
    held = reference_rows(len(x), seed, min(len(x) // 4, ROWS))
    kept = np.setdiff1d(np.arange(len(x)), held)
    if len(kept) >= MIN_PAIRS:  # as a correction that has not seen them would serve them
        part = Correction.fit(
            x[kept], h[kept], new[kept], head=head, means=classes, penalty=penalty, seed=seed
        )
        corrected.reference = Reference(x[held], new[held], part(x[held], h[held]).vectors)
    return corrected


def _mean(
    bases: Sequence[Alignment], x: Matrix, side: Matrix | None, name: str = "old vectors",
    first_row: int = 0,
) -> Matrix:  # fmt: skip
    return np.asarray(
        sum(base.mapped(x, side if base.side_dim else None, name, first_row).h
            for base in bases) / np.float32(len(bases))
    )  # fmt: skip


def _unit(vectors: Matrix) -> float:
    """Root mean square distance from the mean."""
    centred = vectors - vectors.mean(0, dtype=np.float64)
    return max(float(np.sqrt(np.square(centred).sum(1).mean())), float(np.finfo(np.float32).tiny))


def _joined(old: Matrix, h: Matrix, units: tuple[float, float]) -> Matrix:
    return np.concatenate([old / np.float32(units[0]), h / np.float32(units[1])], axis=1)


def _arrays(bases: Sequence[Alignment], correction: Correction) -> dict[str, Matrix]:
    arrays = {
        f"{i}/{name}": array
        for i, part in enumerate([*bases, correction.kernel])
        for name, array in part.all_arrays().items()
    }
    away = None if correction.penalty is None else correction.penalty.direction
    extra = {"head": correction.head, "means": correction.means, KEY: away}
    return arrays | {name: array for name, array in extra.items() if array is not None}
