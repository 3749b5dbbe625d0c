"""Hashes and indexes of Redis as their owner would make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfill.testing import OLD_DIM


def fill(
    client: Any, values: Mapping[str, Sequence[Any]], *, dim: int = OLD_DIM, metric: str = "L2"
) -> None:
    """Hashes under a prefix, and an index with a vector of them."""
    client.execute_command(
        *("FT.CREATE", "photos", "ON", "HASH", "PREFIX", 1, "photo:"),
        *("SCHEMA", "text", "TEXT", "album", "NUMERIC", "place", "TAG"),
        *("vector", "VECTOR", "HNSW", 6),
        *("TYPE", "FLOAT32", "DIM", dim, "DISTANCE_METRIC", metric),
    )
    for row in zip(*values.values(), strict=True):
        named = dict(zip(values, row, strict=True))
        key, vector = named.pop("id"), named.pop("vector")
        fields = {name: value for name, value in named.items() if value is not None}
        if vector is not None:
            fields["vector"] = np.float32(vector).tobytes()
        client.hset(key, mapping=fields)
