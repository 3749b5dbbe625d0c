"""A query under the models that a search needs: given as vectors, or embedded from an item."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Serving
from fastfill.errors import EncoderError, InputError, NonFiniteError, ShapeError
from fastfill.gallery.hits import Side

Encode = Callable[[Sequence[Any]], ArrayLike]
Vector = NDArray[np.float32]


def query_encoder(encode: Encode) -> Encode:
    """How a model embeds queries: an encoder may have `encode_query` beside what embeds items.

    >>> query_encoder(len) is len
    True
    """
    for_queries: Encode = getattr(encode, "encode_query", encode)
    return for_queries


SIDES_OF: dict[Serving, tuple[Side, ...]] = {
    "old": ("old",),
    "aligned": ("new",),
    "both": ("old", "new"),
}


@dataclass(frozen=True, eq=False)
class Query:
    """What an application asks with: an item or a vector, or a vector for each model.

    >>> Query([1.0, 2.0]).vectors("aligned", {"new": 2})
    {'new': array([1., 2.], dtype=float32)}
    >>> Query(old=[1.0], new=[1.0, 2.0]).vectors("old", {"old": 1, "new": 2})
    {'old': array([1.], dtype=float32)}
    """

    given: object = None  # an item, or the vector for the one model that is needed
    old: ArrayLike | None = None
    new: ArrayLike | None = None
    encode_old: Encode | None = None
    encode_new: Encode | None = None

    def __post_init__(self) -> None:
        if self.for_one_model and (self.old is not None or self.new is not None):
            raise InputError("Give one vector, or old= and new=, not all of them.")

    @property
    def for_one_model(self) -> bool:
        """Is it one vector, of the model that its caller believed to serve?"""
        return self.given is not None and not _is_item(self.given)

    def vectors(self, serving: Serving, dims: dict[Side, int]) -> dict[Side, Vector]:
        """The query under each model that is needed, and no other; dimensions of 0: not known."""
        return {side: self._vector(side, serving, dims[side]) for side in SIDES_OF[serving]}

    def _vector(self, side: Side, serving: Serving, dim: int) -> Vector:
        value, encode = {
            "old": (self.old, self.encode_old),
            "new": (self.new, self.encode_new),
        }[side]
        if value is not None:
            return _checked(value, dim, f"{side}=")
        if _is_item(self.given):
            return _embedded(self.given, encode, side, dim)
        if self.given is not None and len(SIDES_OF[serving]) == 1:
            return _checked(self.given, dim, "The query")
        raise InputError(_needed(side, serving))


def _is_item(query: object) -> bool:
    return isinstance(query, str | bytes | os.PathLike)


def _embedded(item: object, encode: Encode | None, side: Side, dim: int) -> Vector:
    if encode is None:
        raise InputError(
            f"To search by an item, say how the {side} model embeds it: Gallery(…, "
            f"query_{side}=function), or give {side}=, its vector."
        )
    answer = query_encoder(encode)([item])
    try:
        matrix = np.asarray(answer, dtype=np.float32)
    except (TypeError, ValueError):
        raise EncoderError(
            f"query_{side} returned a {type(answer).__name__} that is no array of numbers."
        ) from None
    if matrix.shape != (1, dim or matrix.shape[-1]) or not np.isfinite(matrix).all():
        raise EncoderError(
            f"query_{side} returned an array of shape {matrix.shape} for one query, where "
            f"(1, {dim or 'd'}) finite numbers are expected."
        )
    return np.asarray(matrix[0])


def _checked(value: Any, dim: int, name: str) -> Vector:
    vector = np.asarray(value, dtype=np.float32)
    if vector.ndim != 1 or len(vector) != (dim or len(vector)):
        raise ShapeError(
            f"{name} has the shape {vector.shape}, where one vector of {dim or 'some'} numbers is "
            "expected."
        )
    if not np.isfinite(vector).all():
        raise NonFiniteError(f"{name} has numbers that are NaN or infinite.")
    return vector


def _needed(side: Side, serving: Serving) -> str:
    if serving == "both":
        return (
            f"The gallery is served by both models, and the query under the {side} one is missing: "
            "give old= and new=, its vectors, or an item to a Gallery(…, query_old=function, "
            "query_new=function)."
        )
    return f"The gallery is served by the {side} model: give {side}=, the query's vector under it."
