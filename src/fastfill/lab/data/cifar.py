"""CIFAR-100 in its three forms: `cifar-100-python`, `cifar-100-binary`, sheets of tiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastfill.errors import FileError, MissingExtraError
from fastfill.features import Ints
from fastfill.lab.data.image_sets import Listing, Pixels, Split
from fastfill.lab.data.pickled_tables import read_tables, table

SIDE = 32
_RECORD = 2 + 3 * SIDE * SIDE  # coarse label, fine label, then three planes


def cifar100(root: Path) -> Listing | None:
    """CIFAR-100 from whichever of its forms is in the folder; None if none is."""
    python, binary = root / "cifar-100-python", root / "cifar-100-binary"
    if (root / "train").is_file() and (root / "meta").is_file():
        python = root
    if (root / "train.bin").is_file():
        binary = root
    if (binary / "train.bin").is_file():
        return _binary(binary)
    if (python / "train").is_file():
        return _python(python)
    if (root / "labels.npz").is_file() and (root / "c100_000.jpg").is_file():
        return _sheets(root)
    return None


def _listing(names: list[str], fine: tuple[Ints, Ints], coarse: tuple[Ints, Ints],
             splits: tuple[Split, Split]) -> Listing:  # fmt: skip
    groups = np.zeros(len(names), np.int64)
    for labels, supers in zip(fine, coarse, strict=True):
        groups[labels] = supers
    return Listing("cifar100", tuple(names), *splits, shape=(SIDE, SIDE, 3), groups=groups)


def _python(folder: Path) -> Listing:
    meta = read_tables(folder / "meta")
    names = [str(n) for n in table(meta, "fine_label_names", folder / "meta")]
    fine, coarse, splits = [], [], []
    for split in ("train", "test"):
        path = folder / split
        tables = read_tables(path)
        data = np.asarray(table(tables, "data", path), np.uint8)
        fine.append(np.asarray(table(tables, "fine_labels", path), np.int64))
        coarse.append(np.asarray(table(tables, "coarse_labels", path), np.int64))
        images = _planes(data)
        splits.append(Split(fine[-1], slices(images), _stamp([path])))
    return _listing(names, (fine[0], fine[1]), (coarse[0], coarse[1]), (splits[0], splits[1]))


def _binary(folder: Path) -> Listing:
    names = (folder / "fine_label_names.txt").read_text().split()
    fine, coarse, splits = [], [], []
    for split in ("train", "test"):
        path = folder / f"{split}.bin"
        raw = np.fromfile(path, np.uint8)
        if len(raw) % _RECORD:
            raise FileError(
                f"{path}: {len(raw):,} bytes are not whole records of {_RECORD}; the file is "
                "truncated. Unpack the archive again."
            )
        records = raw.reshape(-1, _RECORD)
        coarse.append(records[:, 0].astype(np.int64))
        fine.append(records[:, 1].astype(np.int64))
        splits.append(Split(fine[-1], slices(_planes(records[:, 2:])), _stamp([path])))
    return _listing(names, (fine[0], fine[1]), (coarse[0], coarse[1]), (splits[0], splits[1]))


def _sheets(folder: Path) -> Listing:
    """JPEG sheets of 64×64 tiles, train then test, read when the images are."""
    with np.load(folder / "labels.npz", allow_pickle=False) as file:
        fine = (file["y_train"].astype(np.int64), file["y_test"].astype(np.int64))
        coarse = (file["coarse_train"].astype(np.int64), file["coarse_test"].astype(np.int64))
        names = [str(n) for n in file["fine_names"]]
    sheets = sorted(folder.glob("c100_*.jpg"))
    count = len(fine[0])

    def train(first: int, last: int) -> Pixels:
        return _tiles(sheets, first, last)

    def test(first: int, last: int) -> Pixels:
        return _tiles(sheets, count + first, count + last)

    stamp = _stamp(sheets)
    return _listing(
        names, fine, coarse, (Split(fine[0], train, stamp), Split(fine[1], test, stamp))
    )


def _tiles(sheets: list[Path], first: int, last: int, per_side: int = 64) -> Pixels:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "lab", "Decoding images") from error
    per_sheet = per_side * per_side
    blocks = []
    for number in range(first // per_sheet, -(-last // per_sheet)):
        with Image.open(sheets[number]) as image:
            sheet = np.asarray(image.convert("RGB"))
        tiles = sheet.reshape(per_side, SIDE, per_side, SIDE, 3).swapaxes(1, 2)
        start = number * per_sheet
        blocks.append(
            tiles.reshape(-1, SIDE, SIDE, 3)[max(first - start, 0) : max(last - start, 0)]
        )
    return np.concatenate(blocks)


def _planes(rows: Pixels) -> Pixels:
    """(n, 3·32·32) planes → (n, 32, 32, 3)."""
    return rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)


def slices(images: Pixels) -> Callable[[int, int], Pixels]:
    """Images that are in memory already, as a function that decodes a run of them."""
    return lambda first, last: images[first:last]


def _stamp(paths: list[Path]) -> str:
    return ",".join(f"{path.name}:{path.stat().st_size}" for path in paths)
