"""The units in which maps are learned.

Each space is divided by one number, the root mean square of its entries: distances keep their
meaning, and neither the learning rate nor the balance of the losses depends on the model's units.
In these units the l2 term of a map that knows nothing is about 1. Under cosine the length of a
vector means nothing, so old vectors are brought to unit length first; and where the new model's
vectors are of unit length, so are the aligned ones.

Under l2 aligned vectors may be *matched*: brought to the mean length of the pairs' new vectors. A
map that minimises the squared error answers doubt with a short vector, which under l2 is near to
every query: doubtful items crowd into all rankings. Whether matching helps is measured in the fit.
Under an inner product the length is a part of the score, and stays as the map predicts it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from fastfill.errors import InputError
from fastfill.features import Distance, Matrix, Pairs, check_distance, normalised

UNIT_TOLERANCE = 1e-2  # float16 storage moves a norm by up to a few thousandths


@dataclass(frozen=True)
class Scaling:
    """From the models' units to the units of learning, and back."""

    old: float
    new: float
    side: float  # 1.0 without side-information
    distance: Distance
    unit: bool  # the new model's vectors have unit length
    length: float | None = None  # of all aligned vectors; None: as they come

    def __post_init__(self) -> None:
        check_distance(self.distance)
        if self.length is not None and not 0 < self.length < np.inf:
            raise InputError(f"The length of aligned vectors must be positive, got {self.length}.")

    @classmethod
    def of(cls, pairs: Pairs, distance: Distance) -> Scaling:
        """Measure the pairs; a space of zeros has no scale and is refused."""
        for side in (pairs.old, pairs.new):
            if (side.vectors == side.vectors[0]).all():
                raise InputError(
                    f"{side.name}: all vectors are the same, nothing can be learned. "
                    "Give vectors of different items."
                )
        old = _directed(pairs.old.vectors, distance, pairs.old.name)
        norms = np.linalg.norm(pairs.new.vectors, axis=1)
        if distance == "cosine":
            normalised(pairs.new.vectors, pairs.new.name)  # refuses zero vectors
        return cls(
            _rms(old, pairs.old.name),
            _rms(pairs.new.vectors, pairs.new.name),
            1.0 if pairs.side is None else _rms(pairs.side, "side-information"),
            distance,
            bool(np.abs(norms - 1).max() < UNIT_TOLERANCE),
        )

    @property
    def short_is_near(self) -> bool:
        """Are short vectors near to every query, so that doubtful items crowd into all rankings?

        Under l2 they are. An inner product with a short vector is small, as it should be where
        little is known; and cosine does not look at lengths.
        """
        return self.distance == "l2" and not self.unit

    def matched(self, new: Matrix) -> Scaling:
        """The same, with aligned vectors of the mean length of these new ones.

        >>> from fastfill.features import Features
        >>> pairs = Pairs(Features([[1.0], [2.0]]), Features([[3.0, 4.0], [0.0, 1.0]]))
        >>> Scaling.of(pairs, "l2").matched(pairs.new.vectors).length
        3.0
        """
        return replace(self, length=float(np.linalg.norm(new, axis=1).mean(dtype=np.float64)))

    def inputs(
        self, old: Matrix, side: Matrix | None, name: str = "old vectors", first_row: int = 0
    ) -> Matrix:
        """Scaled old features, followed by the scaled side-information: (n, d_old + d_side)."""
        x = _directed(old, self.distance, name, first_row) / np.float32(self.old)
        return x if side is None else np.concatenate([x, side / np.float32(self.side)], axis=1)

    def targets(self, new: Matrix) -> Matrix:
        """Scaled new features."""
        return np.asarray(new / np.float32(self.new))

    def outputs(self, h: Matrix) -> Matrix:
        """Learned vectors in the new model's units and of the length they should have, in place."""
        length = 1.0 if self.unit else self.length
        if length is None:
            h *= np.float32(self.new)
            return h
        norms = np.linalg.norm(h, axis=1, keepdims=True) / np.float32(length)
        np.divide(h, norms, out=h, where=norms > 0)
        return h

    def to_json(self) -> dict[str, object]:
        """As plain values; what is not matched reads as it did before there was a length."""
        values = asdict(self)
        return (
            values if self.length is not None else {k: values[k] for k in values if k != "length"}
        )


def _directed(vectors: Matrix, distance: Distance, name: str, first_row: int = 0) -> Matrix:
    return normalised(vectors, name, first_row) if distance == "cosine" else vectors


def _rms(vectors: Matrix, name: str) -> float:
    value = float(np.sqrt(np.square(vectors, dtype=np.float64).mean()))
    if not np.isfinite(value) or value < 1e-18:
        raise InputError(
            f"{name}: all vectors are zero (or nearly), nothing can be learned. "
            "Give vectors of different items."
        )
    return value
