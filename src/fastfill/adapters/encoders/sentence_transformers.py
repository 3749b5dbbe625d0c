"""An encoder of the sentence-transformers library: `sentence-transformers:NAME_OR_PATH?OPTIONS`.

Items are embedded as documents and queries as queries, with the prompts that the model's card
gives for them. Options: prompt and query_prompt (in place of the model's own), dim (for models
whose first dimensions can be used alone), device, batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from fastfill.adapters.encoders.options import split_options, whole_number
from fastfill.errors import EncoderError, MissingExtraError

PREFIX = "sentence-transformers:"
OPTIONS = ("prompt", "query_prompt", "dim", "device", "batch")
BATCH = 64
PROMPT_NAMES = {"document": ("document", "passage", "corpus"), "query": ("query",)}


class SentenceTransformersEncoder:
    """A loaded model; a call embeds items, `encode_query` queries."""

    def __init__(self, model: Any, spec: str, options: dict[str, str]) -> None:
        self._model = model
        self._prompts = {"document": options.get("prompt"), "query": options.get("query_prompt")}
        self._batch = whole_number(spec, options, "batch") or BATCH
        # The library shortens vectors after the model has normalised them.
        self._normalise = "dim" in options and _normalises(model)

    def __call__(self, items: Sequence[Any]) -> ArrayLike:
        """Embed items, as documents."""
        return self._encode("document", items)

    def encode_query(self, queries: Sequence[Any]) -> ArrayLike:
        """Embed queries."""
        return self._encode("query", queries)

    def _encode(self, side: Literal["document", "query"], items: Sequence[Any]) -> ArrayLike:
        # The library has sides since version 5; a model with a router embeds them differently.
        encode = getattr(self._model, f"encode_{side}", self._model.encode)
        prompt = self._prompts[side]
        vectors: ArrayLike = encode(
            list(items),
            prompt=prompt,
            prompt_name=_prompt_name(self._model, side) if prompt is None else None,
            batch_size=self._batch,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=self._normalise,
        )
        return vectors


def _prompt_name(model: Any, side: Literal["document", "query"]) -> str | None:
    """The model's prompt for a side. The library gives every model an empty one for documents,
    also where the card has it under the name of passage: empty ones are passed over."""
    prompts: dict[str, str] = getattr(model, "prompts", {})
    return next((name for name in PROMPT_NAMES[side] if prompts.get(name)), None)


def _normalises(model: Any) -> bool:
    """Do the model's own vectors have the length 1?"""
    return any(type(module).__name__ == "Normalize" for module in model)


def open_encoder(spec: str) -> SentenceTransformersEncoder:
    """The model, loaded now so that a wrong name is known before any work begins."""
    name, options = split_options(spec, spec.removeprefix(PREFIX), OPTIONS)
    dim = whole_number(spec, options, "dim")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError(
            "sentence-transformers", "sentence-transformers", f"The encoder {spec!r}"
        ) from error
    try:
        model = SentenceTransformer(name, device=options.get("device"), truncate_dim=dim)
    except (OSError, ValueError, RuntimeError) as error:  # the last: an unknown device
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EncoderError(f"Encoder {spec!r} cannot be loaded: {reason}") from error
    return SentenceTransformersEncoder(model, spec, options)
