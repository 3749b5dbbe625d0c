"""A Chroma collection before a migration: its vectors, its index, and the disk under a folder."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from fastfill.adapters.chroma.context import ChromaContext
from fastfill.gallery import Inspection, VectorIndex


def inspect_collection(context: ChromaContext, sample: int, seed: int) -> Inspection:
    """Look at the vectors and draw random records; changes nothing.

    Chroma holds all vectors of a collection to one length and indexes them by itself. A server
    tells neither the space that is left nor what a key may do.
    """
    owner, dim = context.layout.owner, context.layout.old_dim
    every = owner.ids()
    ids = random.Random(seed).sample(every, min(sample, len(every)))
    connection = context.connection
    folder = connection.folder
    with connection.errors():
        version = connection.client.get_version()
    return Inspection(
        kind=f"{dim} dimensions, {owner.distance}" if dim else "",
        ids=ids,
        dims={dim: len(ids)} if dim else {},
        indexes=(VectorIndex(owner.name, owner.index_kind, owner.distance),),
        free_bytes=None if folder is None else shutil.disk_usage(folder).free,
        missing_permissions=() if folder is None else _missing_permissions(folder),
        software=(f"Chroma {version}",),
    )


def _missing_permissions(folder: Path) -> tuple[str, ...]:
    may = os.access(folder, os.W_OK | os.X_OK)
    return () if may else (f"write to the folder {folder}",)
