"""What the laboratory calls a data set: before decoding (`Listing`) and after (`ImageSet`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import LabelError
from fastfill.features import Ints

Pixels = NDArray[np.uint8]  # (n, height, width, channels)


@dataclass(frozen=True, eq=False)
class Split:
    """One split before decoding: a label per image, and a function that decodes a run of them."""

    labels: Ints  # (n,)
    read: Callable[[int, int], Pixels]  # (first, last + 1) → images
    stamp: str  # changes when the files behind do

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Listing:
    """A data set as found on disk: its classes and its two splits, nothing decoded yet."""

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    shape: tuple[int, int, int]  # height, width, channels of each decoded image
    groups: Ints | None = None  # (classes,): the super-class or gender of each class

    def __post_init__(self) -> None:
        for split in (self.train, self.test):
            if len(split.labels) and int(split.labels.max()) >= len(self.classes):
                raise LabelError(
                    f"{self.name}: label {int(split.labels.max())} in a set of "
                    f"{len(self.classes)} classes. Check the class list beside the images."
                )

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the files, the labels, the classes and the size of the images."""
        parts = [self.name, *self.classes, str(self.shape), self.train.stamp, self.test.stamp]
        return digest([*parts, self.train.labels.tobytes(), self.test.labels.tobytes()])


@dataclass(frozen=True, eq=False)
class Images:
    """Decoded images with their labels; the pixels are usually memory-mapped."""

    pixels: Pixels  # (N, h, w, c)
    labels: Ints  # (n,)
    rows: Ints | None = None  # (n,) which of the pixels; None: all of them, n = N

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, keep: NDArray[np.bool_]) -> Images:
        """The images for which `keep` (n,) is true; no pixel is copied."""
        rows = np.flatnonzero(keep)
        return Images(
            self.pixels, self.labels[rows], rows if self.rows is None else self.rows[rows]
        )


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A decoded data set."""

    name: str
    classes: tuple[str, ...]
    train: Images
    test: Images
    fingerprint: str
    groups: Ints | None = field(default=None)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        height, width, channels = self.train.pixels.shape[1:]
        return height, width, channels


def digest(parts: Iterable[str | bytes]) -> str:
    """16 hexadecimal digits that stand for these parts, their order and their borders.

    >>> digest(["ab", "c"]) != digest(["a", "bc"])
    True
    """
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()[:16]
