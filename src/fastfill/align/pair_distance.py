"""σ² knows the pairs: how far an estimate lies from the nearest new vector that was learned from.

A new model puts the items that it knows into dense clusters. A map puts an item that it is in doubt
of between them, and there it errs: the distance of h from the nearest new vector of a sample of the
pairs ranks true errors better than most scores of the maps themselves. It is looked for in the
main directions of the new vectors, among at most 1,000 of them: that is nearly as good as among all
of them in all directions, and costs a fraction of it (see docs/research/method-trials.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import ShapeError
from fastfill.features import Array, Ints, Matrix
from fastfill.metrics import kendall_tau

SAMPLE = 1_000  # pairs whose new vectors are kept
DIRECTIONS = 64  # in which distances are measured, at most
BLOCK = 512  # rows whose distances are in memory together
WORTH_IT = 0.01  # of Kendall's τ on held-out pairs, for which every row is looked at once more
HALVES = 4  # times that the held-out pairs are halved to measure that
TINY = 1e-6  # of the mean squared length: a nearer vector is the same
KEYS = ("mean", "directions", "sample", "rows")  # of the arrays in an artefact
PREFIX = "pair_distance."

Scores = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PairDistance:
    """A sample of the pairs' new vectors, and how much their distance says beside a map's score.

    >>> new = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
    >>> near = PairDistance.of(new, seed=0)
    >>> far = near.log_squares(new[:5] + 9) - near.log_squares(new[:5] + 1)
    >>> bool((far > 0).all())
    True
    """

    mean: Matrix  # (d_new,)
    directions: Matrix  # (d_new, r), orthonormal columns
    sample: Array  # (m, r), float16: the new vectors of pairs in these directions
    rows: Ints  # (m,): which of the pairs they are
    floor: float  # the smallest squared distance that is told from 0
    weights: tuple[float, float] = (1.0, 0.0)  # of the map's score and of the log-distance

    def __post_init__(self) -> None:
        dims, kept = self.directions.shape
        if self.mean.shape != (dims,) or self.sample.shape != (len(self.rows), kept):
            raise ShapeError(
                f"The sample of pairs does not fit its directions: {self.sample.shape} vectors, "
                f"{self.directions.shape} directions."
            )

    @classmethod
    def of(cls, new: Matrix, seed: int) -> PairDistance:
        """A sample of these pairs, in the directions along which they differ most."""
        rows = np.sort(np.random.default_rng([seed, 11]).permutation(len(new))[:SAMPLE])
        mean = new[rows].mean(0, dtype=np.float64)
        centred = (new[rows] - mean).astype(np.float32)
        vectors = np.linalg.svd(centred, full_matrices=False)[2]
        directions = np.ascontiguousarray(vectors[:DIRECTIONS].T, dtype=np.float32)
        floor = TINY * max(float(np.square(centred).sum(1).mean()), 1e-30)
        part = cls(mean.astype(np.float32), directions, np.empty((0, directions.shape[1])),
                   rows[:0], floor)  # fmt: skip
        return part.of_pairs(new, rows)

    def of_pairs(self, new: Matrix, rows: ArrayLike) -> PairDistance:
        """The same with the sample from these rows of the pairs alone.

        >>> new = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
        >>> PairDistance.of(new, seed=0).of_pairs(new, range(40)).sample.shape
        (40, 3)
        """
        kept = np.asarray(rows, dtype=np.int64)
        if len(kept) > SAMPLE:
            kept = kept[np.linspace(0, len(kept) - 1, SAMPLE).astype(np.int64)]
        sample = self._projected(new[kept]).astype(np.float16)
        return replace(self, sample=sample, rows=kept)

    def _projected(self, vectors: Matrix) -> Matrix:
        return np.asarray((vectors - self.mean) @ self.directions)

    def log_squares(self, h: Matrix, pairs: Ints | None = None) -> NDArray[np.float32]:
        """Logarithm of the squared distance to the nearest of the sample, (n,).

        `pairs`: which pair each row is; its own new vector is not looked at.
        """
        among = self.sample.astype(np.float32)
        # ‖a − b‖² = ‖a‖² − 2(a·b − ‖b‖²/2): one product with a constant column finds the nearest
        table = np.vstack([among.T, -np.einsum("ij,ij->i", among, among) / 2])  # (r + 1, m)
        own = None if pairs is None else self._own(pairs)
        nearest = np.empty(len(h), dtype=np.float32)
        inputs = np.ones((min(BLOCK, len(h)), len(table)), dtype=np.float32)
        for start in range(0, len(h), BLOCK):
            projected = self._projected(h[start : start + BLOCK])
            block = inputs[: len(projected)]
            block[:, :-1] = projected
            closeness = block @ table  # (block, m)
            if own is not None:
                place = own[start : start + BLOCK]
                sampled = np.flatnonzero(place >= 0)
                closeness[sampled, place[sampled]] = -np.inf
            squares = np.einsum("ij,ij->i", projected, projected)
            nearest[start : start + BLOCK] = squares - 2 * closeness.max(1)
        return np.log(np.maximum(nearest, np.float32(self.floor)))

    def _own(self, pairs: Ints) -> Ints:
        """The place of each pair in the sample; −1: it is not there."""
        place = np.full(int(max(pairs.max(), self.rows.max())) + 1, -1)
        place[self.rows] = np.arange(len(self.rows))
        return np.asarray(place[pairs])

    def scores(
        self, score: NDArray[Any], h: Matrix, pairs: Ints | None = None
    ) -> NDArray[np.float32]:
        """The map's own score and the distance in one, (n,)."""
        own, distance = (np.float32(weight) for weight in self.weights)
        return np.asarray(own * score.astype(np.float32) + distance * self.log_squares(h, pairs))

    def weighed(
        self, score: Scores, h: Matrix, pairs: Ints, error: Scores, seed: int
    ) -> PairDistance | None:
        """With weights from held-out pairs; None where the distance does not help there.

        Neither weight is negative: a higher score and a larger distance never mean less error.
        """
        columns = np.stack([score, self.log_squares(h, pairs).astype(np.float64)], axis=1)
        logs = np.log(error + 1e-12 * max(float(error.mean()), 1e-30))
        if _gain(columns, logs, seed) < WORTH_IT:
            return None
        weights = _monotone_weights(columns, logs)
        return replace(self, weights=(float(weights[0]), float(weights[1])))

    def arrays(self) -> dict[str, Array]:
        """By their names in an artefact."""
        return {PREFIX + key: getattr(self, key) for key in KEYS}

    def to_json(self) -> dict[str, Any]:
        """Everything but the arrays."""
        return {"floor": self.floor, "weights": list(self.weights)}

    @classmethod
    def from_parts(cls, arrays: dict[str, Any], document: dict[str, Any]) -> PairDistance | None:
        """What `arrays` returned is taken out of those of an artefact; None: it has none."""
        if PREFIX + KEYS[0] not in arrays:
            return None
        mean, directions, sample, rows = (arrays.pop(PREFIX + key) for key in KEYS)
        own, distance = document["weights"]
        weights = (float(own), float(distance))
        return cls(mean, directions, sample, rows, float(document["floor"]), weights)


def _gain(columns: Scores, logs: Scores, seed: int) -> float:
    """How much more τ both columns have than the first, on halves that they were not weighed on."""
    rng = np.random.default_rng([seed, 12])
    gains = []
    for _ in range(HALVES):
        first, second = np.array_split(rng.permutation(len(logs)), 2)
        for fit, check in ((first, second), (second, first)):
            both = columns[check] @ _monotone_weights(columns[fit], logs[fit])
            gains.append(_tau(both, logs[check]) - _tau(columns[check, 0], logs[check]))
    return float(np.mean(gains))


def _tau(scores: Scores, logs: Scores) -> float:
    return kendall_tau(scores, logs) if scores.std() > 0 and logs.std() > 0 else 0.0


def _monotone_weights(columns: Scores, logs: Scores) -> Scores:
    """Least squares with weights of at least 0: both columns, or the better one alone."""
    centred, target = columns - columns.mean(0), logs - logs.mean()
    both = np.linalg.lstsq(centred, target, rcond=1e-9)[0]
    if (both >= 0).all():
        return np.asarray(both)
    power = np.maximum(np.square(centred).sum(0), 1e-30)
    alone = np.maximum(centred.T @ target / power, 0)
    weights = np.zeros(2)
    better = int(np.argmax(alone * np.sqrt(power)))
    weights[better] = alone[better]
    return weights
