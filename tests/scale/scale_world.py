"""A gallery as an Arrow table, for data sets in pieces."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fastfill.features import Matrix
from fastfill.scale.operations import vector_array


def gallery_table(vectors: Matrix, first: int = 0) -> pa.Table:
    """Ids, texts and vectors."""
    ids = np.arange(first, first + len(vectors))
    texts = [f"item {i}" for i in ids]
    return pa.table({"id": ids, "text": texts, "vector": vector_array(vectors)})
