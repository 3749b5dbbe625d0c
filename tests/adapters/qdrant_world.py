"""Collections of Qdrant's local mode as their owner would make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastfill.testing import OLD_DIM

qdrant_client = pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
models = qdrant_client.models


def fill(
    client: Any,
    values: Mapping[str, Sequence[Any]],
    *,
    vector: str = "",
    dim: int = OLD_DIM,
    distance: str = "EUCLID",
) -> None:
    """A collection as its owner would make it: the vector has a name or has none."""
    params = models.VectorParams(size=dim, distance=models.Distance[distance])
    client.create_collection("photos", {vector: params} if vector else params)
    rows = (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))
    points = [
        models.PointStruct(
            id=row["id"],
            vector={} if row["vector"] is None else {vector: row["vector"]},
            payload={key: value for key, value in row.items() if key not in ("id", "vector")},
        )
        for row in rows
    ]
    client.upsert("photos", points)


def create_collection(path: Path, values: Mapping[str, Sequence[Any]], **options: Any) -> None:
    """The same in a folder of local mode."""
    client = qdrant_client.QdrantClient(path=str(path))
    fill(client, values, **options)
    client.close()
