"""Collections of Chroma as their owner would make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

chromadb = pytest.importorskip("chromadb", reason="chromadb is not installed")


def fill(client: Any, values: Mapping[str, Sequence[Any]], *, space: str = "l2") -> Any:
    """A collection whose records have their texts in the metadata."""
    collection = client.create_collection(
        "photos", configuration={"hnsw": {"space": space}}, embedding_function=None
    )
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    kept = [name for name in values if name not in ("id", "vector", "document")]
    metadata = [{name: row[name] for name in kept if row[name] is not None} for row in rows]
    collection.add(
        ids=list(values["id"]),
        embeddings=list(values["vector"]),
        metadatas=[each or None for each in metadata],
        documents=list(values["document"]) if "document" in values else None,
    )
    return collection


def open_owner(path: Path) -> Any:
    """The owner's client on a folder."""
    from chromadb.config import Settings

    return chromadb.PersistentClient(str(path), settings=Settings(anonymized_telemetry=False))
