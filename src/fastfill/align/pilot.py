"""What a sample of the gallery says about the error of a map that was learned elsewhere.

An uncertainty that was trained on the map's own training set is over-confident on a gallery: the
new model has memorised that set. The true errors of a small random pilot are regressed on all that
is known of an item without embedding it, above all on how far from the training pairs it lies;
nothing in it needs labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastfill.align.calibration import Calibration
from fastfill.align.heads import log_probabilities
from fastfill.align.linear import fit_ridge
from fastfill.align.values import Aligned
from fastfill.errors import InputError, ShapeError, some
from fastfill.features import Matrix, Pairs, as_matrix, check_rows

MIN_PILOT = 50
TINY = 1e-12
AMONG = 50_000  # training pairs among which neighbours are looked for, at most
SAMPLE = 2_000  # items of the gallery, where no pairs are given
PLACES = (0, 9, 49)  # of the nearest
BLOCK = 1_024  # items whose distances to all pairs are in memory together

Scores = NDArray[np.float64]


def pilot_errors(
    aligned: Aligned,
    old: Matrix,
    rows: NDArray[np.int64],
    new: Matrix,
    *,
    pairs: Pairs | None = None,
    head: Matrix | None = None,
    others: Sequence[Aligned] = (),
) -> Aligned:
    """The same vectors with the error that a pilot leads to expect.

    `rows` are the pilot's rows of the gallery and `new` (pilot, d_new) its new vectors. `pairs`
    are those that the map was learned from: far from them it errs. `head` is the new model's
    classifier. `others` are other maps of the same gallery: where maps disagree, they err.

    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(500, 4)).astype("float32")
    >>> new = old + old[:, :1] * rng.normal(size=old.shape)
    >>> aligned = Aligned(old, np.ones(500))
    >>> better = pilot_errors(aligned, old, np.arange(100), new[:100])
    >>> better.variance.shape
    (500,)
    """
    old, new = as_matrix(old, "old vectors of the gallery"), as_matrix(new, "new vectors")
    _check(aligned, old, rows, new, pairs, others)
    error = np.square(aligned.h[rows] - new, dtype=np.float64).sum(1)
    features = _features(aligned, old, pairs, head, others)
    mean, spread = features[rows].mean(0), features[rows].std(0)
    features = (features - mean) / np.maximum(spread, 1e-9)
    target = np.log(error + TINY)[:, None]
    fitted = fit_ridge(features[rows].astype(np.float32), target.astype(np.float32))
    left_out = target[:, 0] - fitted.residuals[:, 0]  # each predicted without itself
    calibration = Calibration.fit(left_out.astype(np.float64), error)
    variance = calibration(fitted(features.astype(np.float32))[:, 0])
    return Aligned(aligned.vectors, variance, aligned.h)


def _check(
    aligned: Aligned,
    old: Matrix,
    rows: NDArray[np.int64],
    new: Matrix,
    pairs: Pairs | None,
    others: Sequence[Aligned],
) -> None:
    """Refuse what does not belong together."""
    items, dim = aligned.h.shape
    if len(rows) < MIN_PILOT:
        raise ShapeError(
            f"A pilot of {len(rows)} items is too small to learn from: embed at least {MIN_PILOT}."
        )
    check_rows(len(old), items, "old vectors of the gallery")
    check_rows(len(new), len(rows), "new vectors of the pilot")
    wrong = np.flatnonzero((rows < 0) | (rows >= items))
    if len(wrong):
        raise ShapeError(
            f"The pilot has row {rows[wrong[0]]}, and the gallery rows 0 to {items - 1}. "
            "Give the pilot's rows of the gallery."
        )
    values, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        raise InputError(
            f"The pilot has rows {some(values[counts > 1])} more than once: give each item once."
        )
    if new.shape[1] != dim:
        raise ShapeError(
            f"new vectors of the pilot: {new.shape[1]} dimensions, the aligned ones have {dim}. "
            "Embed the pilot by the new model."
        )
    if pairs is not None and (pairs.old.dim, pairs.new.dim) != (old.shape[1], dim):
        raise ShapeError(
            f"pairs: {pairs.old.dim} → {pairs.new.dim} dimensions, but the gallery was aligned "
            f"{old.shape[1]} → {dim}. Give the pairs that the map was learned from."
        )
    for number, other in enumerate(others):
        if other.h.shape != aligned.h.shape:
            raise ShapeError(
                f"others[{number}] is {other.h.shape}, the aligned gallery {aligned.h.shape}. "
                "Give other maps of the same gallery."
            )


def _features(
    aligned: Aligned,
    old: Matrix,
    pairs: Pairs | None,
    head: Matrix | None,
    others: Sequence[Aligned],
) -> Scores:
    """(n, k): what is known of each item."""
    h = aligned.h
    columns = [_log(aligned.variance), _log_square(h), _log_square(old)]
    rng = np.random.default_rng(0)
    if pairs is None:
        rows = rng.permutation(len(h))[:SAMPLE]
        columns += [
            *neighbour_distances(h, h[rows], own=True),
            *neighbour_distances(old, old[rows], own=True),
        ]
    else:
        rows = rng.permutation(len(pairs))[:AMONG]
        for mine, theirs in ((h, pairs.new.vectors[rows]), (old, pairs.old.vectors[rows])):
            columns += neighbour_distances(mine, theirs)
            columns += neighbour_distances(_directions(mine), _directions(theirs))
    columns += [_log_square(h - other.h) for other in others]
    if head is not None:
        columns += _head_uncertainty(h, head)
        columns += [_crossed(h, other.h, head) for other in others]
    return np.stack(columns, axis=1)


def neighbour_distances(vectors: Matrix, among: Matrix, *, own: bool = False) -> list[Scores]:
    """Logarithms of the squared distances to the 1st, 10th and 50th nearest.

    The first may be the item itself (`own`) and is then left out.

    >>> among = np.zeros((50, 2), dtype="float32")
    >>> [round(float(one[0]), 2) for one in neighbour_distances(np.float32([[3, 4]]), among)]
    [3.22, 3.22, 3.22]
    """
    wanted = [min(place + own, len(among) - 1) for place in PLACES]
    squares = np.einsum("ij,ij->i", among, among)
    nearest = np.empty((len(vectors), len(wanted)))
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        distances = block @ among.T  # (block, m), in place from here on
        distances *= -2
        distances += squares
        distances.partition(wanted[-1], axis=1)
        first = np.sort(distances[:, : wanted[-1] + 1], axis=1)[:, wanted]
        own_squares = np.einsum("ij,ij->i", block, block)
        nearest[start : start + BLOCK] = first + own_squares[:, None]
    return list(_log(nearest).T)


def _directions(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, TINY))


def _head_uncertainty(h: Matrix, head: Matrix) -> list[Scores]:
    """Entropy, its logarithm, the largest probability and its lead, as the head sees h."""
    logs = log_probabilities(h, head)
    entropy = -(np.exp(logs) * logs).sum(1)
    top = np.exp(np.partition(logs, -2, axis=1)[:, -2:]) if logs.shape[1] > 1 else np.exp(logs)
    return [entropy, _log(entropy), top[:, -1], top[:, -1] - top[:, 0]]


def _crossed(h: Matrix, other: Matrix, head: Matrix) -> Scores:
    """Cross-entropy of two maps' classes: large where they disagree."""
    p = np.exp(log_probabilities(other, head))
    return np.asarray(-(p * np.maximum(log_probabilities(h, head), -14)).sum(1))


def _log(values: NDArray[np.float32] | Scores) -> Scores:
    return np.log(np.maximum(values.astype(np.float64), 1e-6))


def _log_square(vectors: Matrix) -> Scores:
    return _log(np.square(vectors, dtype=np.float64).sum(1))
