"""Taking what was trained away from a machine that gives back little: a few files of limited size.

A parcel is an `.npz` of several models and maps: test features, classifiers, aligned test vectors.
That is all that curves need; the features of the training images stay behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastfill.errors import FileError
from fastfill.features import replacing

PARCEL_BYTES = 15 * 2**20
PARCELS = 4  # in one call

Arrays = dict[str, Any]  # of NumPy arrays


def pack(paths: Iterable[Path], work: Path, out: Path) -> list[Path]:
    """Bundle files of the cache that were not taken away before, in order, as far as room is."""
    ledger = work / "taken.json"
    taken: list[str] = json.loads(ledger.read_text()) if ledger.is_file() else []
    out.mkdir(parents=True, exist_ok=True)
    parcels: list[Path] = []
    for names, arrays in _bundles([p for p in paths if p.is_file() and p.name not in taken]):
        if len(parcels) == PARCELS:
            break
        parcels.append(out / f"parcel-{len(taken):04d}.npz")
        with parcels[-1].open("wb") as file:
            np.savez(file, **arrays)
        taken += names
    with replacing(ledger) as draft:
        draft.write_text(json.dumps(taken))
    return parcels


def _bundles(paths: list[Path]) -> Iterator[tuple[list[str], Arrays]]:
    """As many files at a time as fit into a parcel."""
    names: list[str] = []
    bundle: Arrays = {}
    size = 0
    for path in paths:
        arrays = _slim(path)
        weight = sum(array.nbytes for array in arrays.values())
        if bundle and size + weight > PARCEL_BYTES:
            yield names, bundle
            names, bundle, size = [], {}, 0
        names.append(path.name)
        bundle |= {f"{path.parent.name}/{path.name}/{key}": a for key, a in arrays.items()}
        size += weight
    if bundle:
        yield names, bundle


def _slim(path: Path) -> Arrays:
    """The arrays of a cached file; of the training images only that there are none."""
    with np.load(path, allow_pickle=False) as file:
        arrays: Arrays = {key: file[key] for key in file.files}
    if "train" in arrays:
        arrays["train"] = arrays["train"][:0]
    return arrays


def unpack(parcels: Iterable[Path], work: Path) -> int:
    """Put what parcels hold where the cache expects it; the number of files written."""
    count = 0
    for parcel in parcels:
        files: dict[str, Arrays] = {}
        try:
            with np.load(parcel, allow_pickle=False) as content:
                for key in content.files:
                    folder, name, array = key.split("/")
                    files.setdefault(f"{folder}/{name}", {})[array] = content[key]
        except (OSError, ValueError) as error:
            raise FileError(f"{parcel}: is no parcel of the laboratory ({error}).") from error
        for place, arrays in files.items():
            path = work / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as draft, draft.open("wb") as file:
                np.savez(file, **arrays)
            count += 1
    return count
