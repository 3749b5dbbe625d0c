"""An encoder of the sentence-transformers library: `sentence-transformers:NAME_OR_PATH`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike

from fastfill.errors import EncoderError, MissingExtraError

PREFIX = "sentence-transformers:"


def open_encoder(spec: str) -> Callable[[Sequence[Any]], ArrayLike]:
    """The model, loaded now so that a wrong name is known before any work begins."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError(
            "sentence-transformers", "sentence-transformers", f"The encoder {spec!r}"
        ) from error
    name = spec.removeprefix(PREFIX)
    try:
        model = SentenceTransformer(name)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EncoderError(f"Encoder {spec!r} cannot be loaded: {reason}") from error

    def encode(items: Sequence[Any]) -> ArrayLike:
        vectors: ArrayLike = model.encode(
            list(items), batch_size=64, show_progress_bar=False, convert_to_numpy=True
        )
        return vectors

    return encode
