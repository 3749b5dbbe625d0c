"""A model upgrade small enough for a demo: scikit-learn's handwritten digits, two tiny encoders.

The old encoder has seen five of the ten digits, the new one all ten.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfill.errors import MissingExtraError
from fastfill.features import Array, Ints, Matrix

OLD_CLASSES, EPOCHS, SMOOTHING = 5, 120, 0.1


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
    """A classifier with label smoothing; its last hidden layer is the embedding."""
    import torch
    from torch import nn

    from fastfill.align.training import one_thread

    torch.manual_seed(seed)
    layers = [nn.Linear(images.shape[1], 64), nn.Linear(64, width)]
    head = nn.Linear(width, int(labels.max()) + 1, bias=False)
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), head)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=1e-2)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    with one_thread():
        for _ in range(EPOCHS):
            loss = nn.functional.cross_entropy(net(x), y, label_smoothing=SMOOTHING)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    def array(tensor: torch.Tensor) -> Matrix:
        return np.ascontiguousarray(tensor.detach().numpy())

    return DigitEncoder(
        tuple(array(layer.weight.T) for layer in layers),
        tuple(array(layer.bias) for layer in layers),
        array(head.weight),
    )


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
