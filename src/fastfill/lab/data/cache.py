"""Decode a data set once into a memory-mapped cache, so that training never waits for decoding."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from fastfill.lab.data.image_sets import Images, ImageSet, Listing, Split

_BLOCK = 1024  # images decoded by one task


def decoded(listing: Listing, cache: Path) -> ImageSet:
    """The data set as memory-mapped arrays; decoded now if the cache has not got it."""
    home = cache / f"{listing.name}-{listing.shape[0]}px-{listing.fingerprint}"
    if not (home / "set.json").is_file():
        _decode(listing, home)
    train, test = (
        Images(np.load(home / f"{name}.npy", mmap_mode="r", allow_pickle=False), split.labels)
        for name, split in (("train", listing.train), ("test", listing.test))
    )
    return ImageSet(listing.name, listing.classes, train, test, listing.fingerprint, listing.groups)


def _decode(listing: Listing, home: Path) -> None:
    """Write into a folder of its own and rename it at the end: a killed run leaves no half set."""
    draft = home.with_name(f"{home.name}.part-{os.getpid()}")
    draft.mkdir(parents=True, exist_ok=True)
    try:
        for name, split in (("train", listing.train), ("test", listing.test)):
            shape = (len(split), *listing.shape)
            out = np.lib.format.open_memmap(draft / f"{name}.npy", "w+", np.uint8, shape)
            for start, block in _blocks(split):
                out[start : start + len(block)] = block
            out.flush()
        facts = {"name": listing.name, "shape": listing.shape, "classes": listing.classes}
        (draft / "set.json").write_text(json.dumps(facts))
        if not home.is_dir():
            draft.rename(home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _blocks(split: Split) -> Iterator[tuple[int, np.ndarray]]:
    """Decoded blocks in order, as many at a time as there are cores."""
    starts = range(0, len(split), _BLOCK)
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        for wave in range(0, len(starts), workers):  # bounds the memory to one wave of blocks
            now = starts[wave : wave + workers]
            ends = [min(start + _BLOCK, len(split)) for start in now]
            yield from zip(now, pool.map(split.read, now, ends), strict=True)
