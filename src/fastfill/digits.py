"""A model upgrade small enough for a demo: scikit-learn's handwritten digits, two tiny encoders.

The old encoder has seen five of the ten digits, the new one all ten. They are trained in NumPy, so
that the demo needs no torch.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfill.errors import MissingExtraError
from fastfill.features import Array, Ints, Matrix

OLD_CLASSES, EPOCHS, SMOOTHING = 5, 120, 0.1
HIDDEN, RATE, DECAY = 64, 1e-2, 1e-2


@dataclass(frozen=True, eq=False)
class DigitEncoder:
    """Two dense layers with ReLU; features are not negative, the classifier has no bias."""

    weights: tuple[Matrix, ...]  # (d_in, d_out) of each layer
    biases: tuple[Matrix, ...]  # (d_out,)
    head: Matrix  # (classes, d)

    def __call__(self, images: Matrix) -> Matrix:
        """(n, 64) pixels between 0 and 1 → (n, d) features."""
        x = images
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = np.maximum(x @ weight + bias, 0)
        return x


@dataclass(frozen=True, eq=False)
class Upgrade:
    """Images to learn from, images that make the gallery, and the two encoders."""

    train: Matrix  # (n, 64)
    train_labels: Ints
    gallery: Matrix  # (m, 64)
    labels: Ints
    old: DigitEncoder
    new: DigitEncoder


def make_upgrade(seed: int = 0) -> Upgrade:
    """Half of the 1,797 digits train both encoders, the other half is the gallery."""
    images, labels = _load()
    order = np.random.default_rng(seed).permutation(len(images))
    train, held = np.array_split(order, 2)
    seen = train[labels[train] < OLD_CLASSES]
    return Upgrade(
        images[train],
        labels[train],
        images[held],
        labels[held],
        old=train_encoder(images[seen], labels[seen], width=16, seed=seed),
        new=train_encoder(images[train], labels[train], width=32, seed=seed + 1),
    )


def train_encoder(images: Matrix, labels: Array, width: int, seed: int) -> DigitEncoder:
    """A classifier with label smoothing; its last hidden layer is the embedding.

    >>> x = np.float32([[0, 1], [1, 0]] * 8)
    >>> encoder = train_encoder(x, np.array([0, 1] * 8), width=4, seed=0)
    >>> (encoder(x) @ encoder.head.T).argmax(1)[:4]
    array([0, 1, 0, 1])
    """
    rng = np.random.default_rng(seed)
    classes = int(labels.max()) + 1
    sizes = [images.shape[1], HIDDEN, width]
    shapes = [*itertools.pairwise(sizes), (width, classes)]
    weights = [_uniform(rng, shape, shape[0]) for shape in shapes]
    biases = [_uniform(rng, (out,), into) for into, out in shapes[:-1]]
    targets = (1 - SMOOTHING) * np.eye(classes)[labels] + SMOOTHING / classes
    optimiser = _AdamW([*weights, *biases])
    for _ in range(EPOCHS):
        optimiser.step(_gradients(images, targets, weights, biases))
    *hidden, head = weights
    return DigitEncoder(tuple(hidden), tuple(biases), np.ascontiguousarray(head.T))


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], inputs: int) -> Matrix:
    """Numbers for a layer to begin with."""
    return rng.uniform(-(inputs**-0.5), inputs**-0.5, shape).astype(np.float32)


def _gradients(
    x: Matrix, targets: Array, weights: Sequence[Matrix], biases: Sequence[Matrix]
) -> list[Matrix]:
    """Of the mean cross-entropy, for all weights and then all biases."""
    outputs = [x]
    for weight, bias in zip(weights, biases, strict=False):
        outputs.append(np.maximum(outputs[-1] @ weight + bias, 0))
    logits = outputs[-1] @ weights[-1]
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    error = ((chances - targets) / len(x)).astype(np.float32)  # (n, classes)
    of_weights: list[Matrix] = [outputs[-1].T @ error]
    of_biases: list[Matrix] = []
    for layer in reversed(range(len(biases))):
        error = (error @ weights[layer + 1].T) * (outputs[layer + 1] > 0)
        of_weights.insert(0, outputs[layer].T @ error)
        of_biases.insert(0, error.sum(0))
    return [*of_weights, *of_biases]


class _AdamW:
    """Adam with decoupled weight decay (arXiv:1711.05101), on arrays that it changes in place."""

    def __init__(self, parameters: Sequence[Matrix]) -> None:
        self._parameters = parameters
        self._means = [np.zeros_like(p) for p in parameters]
        self._squares = [np.zeros_like(p) for p in parameters]
        self._steps = 0

    def step(self, gradients: Sequence[Matrix]) -> None:
        """One step down along the gradients."""
        self._steps += 1
        mean_unit, square_unit = 1 - 0.9**self._steps, 1 - 0.999**self._steps
        moments = zip(self._parameters, gradients, self._means, self._squares, strict=True)
        for parameter, gradient, mean, square in moments:
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            parameter *= 1 - RATE * DECAY
            parameter -= RATE * (mean / mean_unit) / (np.sqrt(square / square_unit) + 1e-8)


def _load() -> tuple[Matrix, Ints]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError("scikit-learn", "demo", "The demo") from None
    images, labels = load_digits(return_X_y=True)
    return np.asarray(images / 16, dtype=np.float32), np.asarray(labels, dtype=np.int64)


@functools.cache
def _upgrade() -> Upgrade:
    return make_upgrade()


def encode(items: Sequence[bytes]) -> Matrix:
    """The new encoder as a migration calls it: images as bytes, one per pixel, → (n, d)."""
    pixels = np.frombuffer(b"".join(items), dtype=np.uint8).reshape(len(items), -1)
    return _upgrade().new(np.asarray(pixels / 16, dtype=np.float32))


def as_bytes(images: Matrix) -> list[bytes]:
    """Images as a gallery stores them: one byte per pixel, 0 to 16.

    >>> [list(image) for image in as_bytes(np.float32([[0.0, 0.5, 1.0]]))]
    [[0, 8, 16]]
    """
    return [row.tobytes() for row in np.round(images * 16).astype(np.uint8)]
