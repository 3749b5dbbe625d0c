"""A small gallery in files, for commands that evaluate."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_gallery(folder: Path) -> Path:
    """Old, new and aligned vectors, labels, groups, head, counts, queries."""
    rng = np.random.default_rng(3)
    labels = np.arange(60) % 4
    new = rng.normal(size=(60, 6)) + 2 * np.eye(6)[labels]
    old = new @ rng.normal(size=(6, 5)) + rng.normal(size=(60, 5))
    error = rng.normal(size=new.shape) * rng.gamma(1.0, size=(60, 1))
    np.save(folder / "new.npy", new.astype(np.float32))
    np.save(folder / "old.npy", old.astype(np.float32))
    np.save(folder / "H.npy", (new + error).astype(np.float32))
    np.save(folder / "V.npy", (error**2).sum(axis=1).astype(np.float32))
    np.save(folder / "labels.npy", labels)
    np.save(folder / "groups.npy", np.where(labels == 0, "few", "many"))
    np.save(folder / "head.npy", np.eye(6, dtype=np.float32)[:4])
    np.save(folder / "shown.npy", rng.integers(0, 9, 60))
    np.savez(folder / "query.npz", new=new[:9], old=old[:9], labels=labels[:9])
    return folder
