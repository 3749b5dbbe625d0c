"""Which data sets there are, and what to put where for each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastfill.errors import FileError, InputError, MissingExtraError
from fastfill.lab.data import folders
from fastfill.lab.data.cache import decoded
from fastfill.lab.data.cifar import cifar100
from fastfill.lab.data.image_sets import Images, ImageSet, Listing, digest


@dataclass(frozen=True)
class DatasetLayout:
    """How one data set is read, and the sentence for when it is not there."""

    read: Callable[[Path, int], Listing | None]
    pixels: int  # side of the decoded images
    expects: str


def _cifar100(root: Path, pixels: int) -> Listing | None:
    return cifar100(root)


DATASETS: dict[str, DatasetLayout] = {
    "cifar100": DatasetLayout(
        _cifar100, 32, "the unpacked cifar-100-binary or cifar-100-python, or the sheets c100_*.jpg"
    ),
    "imagenet": DatasetLayout(
        folders.imagenet, 224, "ILSVRC 2012 as train/WNID/*.JPEG and val/WNID/*.JPEG, "
        "or a flat val/ with LOC_val_solution.csv"
    ),
    "tiny-imagenet": DatasetLayout(folders.tiny_imagenet, 64, "the unpacked tiny-imagenet-200"),
    "places365": DatasetLayout(
        folders.places365, 224, "train/CLASS/*.jpg and val/CLASS/*.jpg, or data_256/, val_256/ "
        "and the published lists"
    ),
    "vggface2": DatasetLayout(
        folders.vggface2, 112, "train/ID/*.jpg, test/ID/*.jpg and identity_meta.csv"
    ),
    "folder": DatasetLayout(
        folders.class_folders, 64, "train/CLASS/*.jpg and val/CLASS/*.jpg (or test/)"
    ),
}  # fmt: skip


def parse(text: str) -> tuple[str, Path | None]:
    """`NAME` or `NAME=DIR`, as given on the command line.

    >>> parse("cifar100=/data/cifar")[0], parse("digits")
    ('cifar100', ('digits', None))
    """
    name, _, folder = text.partition("=")
    if name != "digits" and name not in DATASETS:
        names = ", ".join(["digits", *DATASETS])
        raise InputError(f"Unknown data set {name!r}: use one of {names}, or folder=DIR.")
    return name, Path(folder) if folder else None


def load(text: str, cache: Path, pixels: int | None = None) -> ImageSet:
    """The data set of that name, from its folder or from `$FASTFILL_DATA/NAME`."""
    name, folder = parse(text)
    if name == "digits":
        return _digits()
    layout = DATASETS[name]
    base = os.environ.get("FASTFILL_DATA")
    root = folder or (Path(base) / name if base else None)
    if root is None:
        raise FileError(
            f"{name}: no folder given. Use {name}=DIR, or set FASTFILL_DATA to a folder with "
            f"'{name}/' in it, holding {layout.expects}."
        )
    listing = layout.read(root, pixels or layout.pixels)
    if listing is None:
        raise FileError(f"{root}: {name} was not found there. Put {layout.expects} into it.")
    return decoded(listing, cache)


def _digits() -> ImageSet:
    """scikit-learn's 1,797 handwritten digits, 8×8; every third is in the test split."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "lab", "The data set 'digits'") from error
    digits = load_digits()
    pixels = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]  # (n, 8, 8, 1)
    labels = digits.target.astype(np.int64)
    test = np.arange(len(labels)) % 3 == 0
    train, held = (Images(pixels[rows], labels[rows]) for rows in (~test, test))
    names = tuple(str(number) for number in range(10))
    fingerprint = digest(["digits", pixels.tobytes(), labels.tobytes()])
    return ImageSet("digits", names, train, held, fingerprint, groups=np.arange(10) % 2)
