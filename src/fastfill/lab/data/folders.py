"""Image files in folders: ImageNet-1k, Tiny-ImageNet, Places-365, VGGFace2, any class folders."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fastfill.errors import FileError, MissingExtraError, some
from fastfill.lab.data.image_sets import Listing, Pixels, Split, digest

_IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})


def class_folders(root: Path, pixels: int, name: str | None = None) -> Listing | None:
    """`train/CLASS/*.jpg` and `val/` or `test/` likewise; None if there are no such folders."""
    train = root / "train"
    test = next((root / s for s in ("val", "test") if _folders(root / s)), None)
    if not _folders(train) or test is None:
        return None
    classes = sorted({*_folders(train), *_folders(test)})
    splits = [_split(_in_folders(folder, classes), pixels) for folder in (train, test)]
    return Listing(name or root.name, tuple(classes), splits[0], splits[1], (pixels, pixels, 3))


def imagenet(root: Path, pixels: int) -> Listing | None:
    """ILSVRC 2012: `train/WNID/`, and `val/WNID/` or a flat `val/` with `LOC_val_solution.csv`."""
    base = root / "ILSVRC" / "Data" / "CLS-LOC"
    base = base if base.is_dir() else root
    if not _folders(base / "train"):
        return None
    if _folders(base / "val"):
        return class_folders(base, pixels, "imagenet")
    solution = _need(root / "LOC_val_solution.csv", "the labels of the flat folder 'val'")
    classes = _folders(base / "train")
    number = {wnid: i for i, wnid in enumerate(classes)}
    with solution.open(newline="") as file:
        rows = [(row[0], row[1].split()[0]) for row in list(csv.reader(file))[1:]]
    test = [(base / "val" / f"{image}.JPEG", number[wnid]) for image, wnid in sorted(rows)]
    train = _split(_in_folders(base / "train", classes), pixels)
    return Listing("imagenet", tuple(classes), train, _split(test, pixels), (pixels, pixels, 3))


def tiny_imagenet(root: Path, pixels: int) -> Listing | None:
    """Tiny-ImageNet: `wnids.txt`, `train/WNID/images/`, `val/images/` with its annotations."""
    base = root / "tiny-imagenet-200" if (root / "tiny-imagenet-200").is_dir() else root
    notes = base / "val" / "val_annotations.txt"
    if not notes.is_file():
        return None
    classes = (base / "wnids.txt").read_text().split()
    number = {wnid: i for i, wnid in enumerate(classes)}
    train = [(f, number[c]) for c in classes for f in _files(base / "train" / c / "images")]
    lines = [line.split("\t") for line in notes.read_text().splitlines() if line]
    test = [(base / "val" / "images" / line[0], number[line[1]]) for line in lines]
    splits = _split(train, pixels), _split(test, pixels)
    return Listing("tiny-imagenet", tuple(classes), *splits, shape=(pixels, pixels, 3))


def places365(root: Path, pixels: int) -> Listing | None:
    """Places-365: class folders, or the published lists with `data_256/` and `val_256/`."""
    listing = class_folders(root, pixels, "places365")
    lists = [root / "places365_train_standard.txt", root / "places365_val.txt"]
    if listing is not None or not all(file.is_file() for file in lists):
        return listing
    names = _need(root / "categories_places365.txt", "the names of the classes")
    classes = [line.split()[0] for line in names.read_text().splitlines() if line]
    splits = []
    for file, folder in zip(lists, ("data_256", "val_256"), strict=True):
        rows = [line.split() for line in file.read_text().splitlines() if line]
        paths = [(root / folder / path.lstrip("/"), int(label)) for path, label in rows]
        splits.append(_split(paths, pixels))
    return Listing("places365", tuple(classes), splits[0], splits[1], (pixels, pixels, 3))


def vggface2(root: Path, pixels: int) -> Listing | None:
    """VGGFace2: `train/ID/`, `test/ID/`; groups are genders, from `identity_meta.csv`.

    Group 1 is female, 0 male, −1 unknown.
    """
    listing = class_folders(root, pixels, "vggface2")
    if listing is None:
        return None
    meta = _need(root / "identity_meta.csv", "the gender of each identity")
    gender: dict[str, int] = {}
    with meta.open(newline="", encoding="utf-8", errors="replace") as file:
        for row in csv.reader(file, skipinitialspace=True):
            gender[row[0].strip()] = {"f": 1, "m": 0}.get(row[-1].strip().lower(), -1)
    groups = np.array([gender.get(c, -1) for c in listing.classes], np.int64)
    return Listing("vggface2", listing.classes, listing.train, listing.test, listing.shape, groups)


def _need(path: Path, what: str) -> Path:
    if not path.is_file():
        raise FileError(f"{path}: missing; it gives {what}. Put the published file there.")
    return path


def _folders(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in _IMAGES)


def _in_folders(folder: Path, classes: Iterable[str]) -> list[tuple[Path, int]]:
    """(file, class number); classes that one split has not are simply empty there."""
    return [
        (file, number)
        for number, name in enumerate(classes)
        if (folder / name).is_dir()
        for file in _files(folder / name)
    ]


def _split(files: list[tuple[Path, int]], pixels: int) -> Split:
    if not files:
        raise FileError("No images were found in the class folders; check the folder's name.")
    paths = [path for path, _ in files]
    labels = np.array([label for _, label in files], np.int64)

    def read(first: int, last: int) -> Pixels:
        return np.stack([decode(path, pixels) for path in paths[first:last]])

    return Split(labels, read, digest(f"{path.parent.name}/{path.name}" for path in paths))


def decode(path: Path, pixels: int) -> Pixels:
    """One image: short side resized to `pixels`, the centre cut out, (pixels, pixels, 3)."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError("pillow", "lab", "Decoding images") from error
    try:
        with Image.open(path) as file:
            file.draft("RGB", (pixels, pixels))  # JPEG: decode at the nearest larger scale
            image = file.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise FileError(
            f"{path}: cannot be decoded ({some([error])}). Replace or delete it."
        ) from error
    width, height = image.size
    scale = pixels / min(width, height)
    size = max(pixels, round(width * scale)), max(pixels, round(height * scale))
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (size[0] - pixels) // 2, (size[1] - pixels) // 2
    return np.asarray(image.crop((left, top, left + pixels, top + pixels)), np.uint8)
