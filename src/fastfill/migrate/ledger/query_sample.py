"""`QuerySample`: the queries, under both models, on which ways to serve are compared."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from fastfill.features import Judgements, Matrix
from fastfill.gallery import JsonDocument


@dataclass(frozen=True, eq=False)
class QuerySample(JsonDocument):
    """Vectors of both models; numbers are kept as base64 of little-endian float32."""

    NAME: ClassVar[str] = "queries"

    old: Matrix  # (q, d_old)
    new: Matrix  # (q, d_new)
    ids: Sequence[str] = ()
    judgements: Judgements = field(default_factory=dict)  # {query id: {item id: grade}}
    made: bool = False  # from the items' own texts, for want of real ones

    def __len__(self) -> int:
        return len(self.old)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "old": _packed(self.old),
            "new": _packed(self.new),
            "ids": list(self.ids),
            "judgements": {query: dict(grades) for query, grades in self.judgements.items()},
            "made": self.made,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """The inverse of `to_json`."""
        old, new = _unpacked(plain["old"]), _unpacked(plain["new"])
        return cls(old, new, plain["ids"], plain["judgements"], plain["made"])


def _packed(vectors: Matrix) -> dict[str, Any]:
    numbers = np.ascontiguousarray(vectors, dtype="<f4").tobytes()
    return {"shape": list(vectors.shape), "float32": base64.b64encode(numbers).decode()}


def _unpacked(plain: Mapping[str, Any]) -> Matrix:
    numbers = np.frombuffer(base64.b64decode(plain["float32"]), dtype="<f4")
    return numbers.reshape(plain["shape"]).astype(np.float32)
