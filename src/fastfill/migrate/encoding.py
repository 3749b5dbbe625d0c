"""Calling the encoder: whatever it does, nothing bad comes out of here.

A row of NaN is how an encoder says that this one item failed. A batch that fails as a whole is
tried again in two halves, so that one bad item costs a few calls and not its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import EncoderBusyError, EncoderError, InputError, some
from fastfill.features import Distance, Matrix, rough_tokens
from fastfill.gallery import Id
from fastfill.migrate.backoff import Backoff

AT_ONCE = 256  # items of one call
TOLD_APART = 1e-3  # of a vector's length: what two items' vectors must differ by
HOPELESS = 20  # calls that fail one after the other before the encoder itself is in doubt
Item = str | bytes
Parts = list[tuple[list[int], Matrix]]  # positions, and a row of numbers or of NaN for each
Encode = Callable[[Sequence[Any]], ArrayLike]


@dataclass(frozen=True, eq=False)
class Encoded:
    """What came out: vectors of the items that are good, errors of the others."""

    vectors: Matrix  # (n, d); rows that are not good are NaN
    good: NDArray[np.bool_]  # (n,)
    errors: dict[Id, str]
    tokens: float = 0.0  # as the encoder has counted them, else by the items' length


class Encoder:
    """An encoder with its answers checked.

    >>> encoder = Encoder(lambda texts: [[len(t), 1.0] for t in texts], distance="l2")
    >>> encoder([1, 2], ["a", "bcd"]).vectors
    array([[1., 1.],
           [3., 1.]], dtype=float32)
    """

    def __init__(
        self,
        encode: Encode,
        *,
        distance: Distance,
        dim: int | None = None,
        root: str | None = None,
        backoff: Backoff | None = None,
        proven: Callable[[], Any] = lambda: None,
    ) -> None:
        """Without a `backoff` a busy encoder ends the batch. `proven()` is an item that the
        encoder has embedded before, or None."""
        self._encode = encode
        self._distance = distance
        self._root = root
        self._backoff = backoff
        self._proven = proven
        self._failed = 0  # calls since the last good one
        self._misshapen = ""  # the first wrong answer since then, where one was of a wrong shape
        self.dim = dim

    def __call__(self, ids: Sequence[Id], inputs: Sequence[Any]) -> Encoded:
        """Embed items; `EncoderBusyError` is passed on, every other failure is an item's error."""
        errors: dict[Id, str] = {}
        counted = self._tokens_used()
        parts: Parts = []
        ready: list[int] = []
        items: list[Any] = []
        for position, (key, value) in enumerate(zip(ids, inputs, strict=True)):
            try:
                items.append(as_item(value, self._root))
                ready.append(position)
            except InputError as error:
                errors[key] = str(error)
        for start in range(0, len(ready), AT_ONCE):
            where = ready[start : start + AT_ONCE]
            chunk = items[start : start + AT_ONCE]
            parts += self._embed_or_halve([ids[i] for i in where], where, chunk, errors)
        vectors = _assembled(parts, (len(ids), self.dim or 1))
        tokens = (self._tokens_used() - counted) or sum(map(rough_tokens, items))
        return Encoded(vectors, np.asarray(~np.isnan(vectors[:, 0])), errors, tokens)

    def guess_tokens(self, inputs: Sequence[Any]) -> list[float]:
        """Of each item by its length, before it is embedded; 0 for one that cannot be."""
        guessed = []
        for value in inputs:
            try:
                guessed.append(rough_tokens(as_item(value, self._root)))
            except InputError:
                guessed.append(0.0)
        return guessed

    def _tokens_used(self) -> float:
        """Those that the encoder has counted for this thread so far; 0 where it does not count."""
        return float(getattr(self._encode, "tokens_used", 0))

    def _embed_or_halve(
        self, ids: list[Id], where: list[int], items: list[Any], errors: dict[Id, str]
    ) -> Parts:
        try:
            matrix = self._call(ids, items)
        except _FailedCallError as failed:
            error = failed.reason
            self._failed += 1
            if self._failed >= HOPELESS and not self._alive():
                raise EncoderError(
                    f"The encoder failed {HOPELESS} times in a row, last with "
                    f"{type(error).__name__}: {error}. Mend it and run the command again."
                ) from error
            if len(ids) == 1:
                errors[ids[0]] = f"{type(error).__name__}: {error}"
                return []
            half = len(ids) // 2
            first = self._embed_or_halve(ids[:half], where[:half], items[:half], errors)
            return first + self._embed_or_halve(ids[half:], where[half:], items[half:], errors)
        self._failed, self._misshapen = 0, ""
        bad = ~np.isfinite(matrix).all(axis=1)
        if self._distance == "cosine":
            bad |= ~matrix.any(axis=1)
        for position in np.flatnonzero(bad):
            errors[ids[position]] = "the encoder returned NaN, infinite or zero numbers"
        matrix[bad] = np.nan
        return [(where, matrix)]

    def _alive(self) -> bool:
        """Is it the items after all? An item that could be embedded before tells."""
        item = self._proven()
        if item is None:
            return False
        try:
            self._call([], [as_item(item, self._root)])
        except Exception:
            return False
        self._failed = 0
        return True

    def _call(self, ids: list[Id], items: list[Any]) -> Matrix:
        """One call, made again when it was refused for now: the batch's other answers are kept."""
        while True:
            try:
                matrix = self._answer(ids, items)
            except EncoderBusyError as busy:
                if self._backoff is None or not self._backoff.wait(busy):
                    raise
                continue
            except SystemExit as error:
                raise EncoderError(
                    f"The encoder ended the program, with exit code {error.code}, instead of "
                    "answering. Mend it and run the command again."
                ) from error
            except Exception as error:
                raise _FailedCallError(error) from error
            if self._backoff is not None:
                self._backoff.reset()
            return matrix

    def _answer(self, ids: list[Id], items: list[Any]) -> Matrix:
        # A copy of a view, such as a broadcast one, would keep the order of its strides.
        answer = self._encode(items)
        rows = list(answer) if isinstance(answer, Iterator) else answer  # such as a generator's
        matrix = np.array(rows, dtype=np.float32, order="C")
        if matrix.ndim != 2 or len(matrix) != len(items):
            # Halves of a batch are asked for again: what the whole one got says most.
            self._misshapen = self._misshapen or (
                f"the encoder returned shape {matrix.shape} for {len(items)} items ({some(ids)})"
            )
            raise EncoderError(self._misshapen)
        if self.dim is None:
            self.dim = int(matrix.shape[1])
        if matrix.shape[1] != self.dim:
            raise EncoderError(
                f"the encoder returned {matrix.shape[1]} dimensions where {self.dim} are expected"
            )
        return matrix


class _FailedCallError(Exception):
    """The encoder has failed on what it was given, for whatever reason but being busy."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


def check_tells_apart(encoder_name: str, inputs: Sequence[Any], encoded: Encoded) -> None:
    """Refuse an encoder that gives items of different inputs one and the same vector.

    >>> constant = Encoder(lambda texts: [[1.0, 2.0] for _ in texts], distance="l2")
    >>> check_tells_apart("m:f", ["a", "a"], constant([1, 2], ["a", "a"]))
    """
    good = np.flatnonzero(encoded.good)
    different = {str(inputs[n]) for n in good.tolist()}
    if len(different) < 2:
        return
    vectors = encoded.vectors[good].astype(np.float64)
    apart = np.linalg.norm(vectors - vectors[0], axis=1).max()
    if apart <= TOLD_APART * np.linalg.norm(vectors, axis=1).max():
        raise EncoderError(
            f"{encoder_name} gives {len(different)} different items the same vector, or nearly so, "
            "so that no search could tell them apart: mend it, and run the command again. Nothing "
            "has been written by it."
        )


def _assembled(parts: Parts, shape: tuple[int, int]) -> Matrix:
    """The rows at their positions, NaN where there is none."""
    if parts and sum(len(where) for where, _ in parts) == shape[0]:  # in order, none left out
        return np.concatenate([matrix for _, matrix in parts])
    vectors = np.full(shape, np.nan, dtype=np.float32)
    for where, matrix in parts:
        vectors[where] = matrix
    return vectors


def as_item(value: Any, root: str | None) -> Item:
    """What the encoder is given: text or bytes as they are, or a path or URL under `root`.

    >>> as_item("a.jpg", "https://example.org/photos/")
    'https://example.org/photos/a.jpg'
    """
    if value is None:
        raise InputError("the item has no input")
    if root is None:
        return value if isinstance(value, bytes) else str(value)
    if root.startswith(("http://", "https://")):
        return f"{root.rstrip('/')}/{str(value).lstrip('/')}"
    base = Path(root).resolve()
    path = (base / str(value)).resolve()
    if not path.is_relative_to(base):
        raise InputError(f"the input {value!r} is outside {root}")
    return str(path)
