"""An encoder of the sentence-transformers library: `sentence-transformers:NAME_OR_PATH?OPTIONS`.

Items are embedded as documents and queries as queries, with the prompts that the model's card
gives for them. Options: prompt and query_prompt (in place of the model's own), dim (for models
whose first dimensions can be used alone), device, batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from fastfill.adapters.encoders.options import split_options, whole_number
from fastfill.errors import EncoderError, MissingExtraError

PREFIX = "sentence-transformers:"
OPTIONS = ("prompt", "query_prompt", "dim", "device", "batch")
BATCH = 64
NEEDS_CODE = "trust_remote_code"  # as the library asks for it
Side = Literal["document", "query"]
PROMPT_NAMES: dict[Side, tuple[str, ...]] = {
    "document": ("document", "passage", "corpus"), "query": ("query",),
}  # fmt: skip


class SentenceTransformersEncoder:
    """A loaded model; a call embeds items, `encode_query` queries."""

    def __init__(self, model: Any, spec: str, options: dict[str, str]) -> None:
        self._model = model
        given: dict[Side, str | None] = {
            "document": options.get("prompt"), "query": options.get("query_prompt"),
        }  # fmt: skip
        self._prompts = {
            side: _own_prompt(model, side) if prompt is None else prompt
            for side, prompt in given.items()
        }
        self._dim = options.get("dim")
        self._batch = whole_number(spec, options, "batch") or BATCH
        # The library shortens vectors after the model has normalised them.
        self._normalise = "dim" in options and _normalises(model)

    @property
    def identity(self) -> dict[str, str]:
        """Every setting that changes vectors, whether the name says it or the model."""
        values = {
            "prompt": self._prompts["document"] or "",
            "query_prompt": self._prompts["query"] or "",
            "dim": self._dim,
            "max_length": getattr(self._model, "max_seq_length", None),
            "normalised": _normalises(self._model),
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    def __call__(self, items: Sequence[Any]) -> ArrayLike:
        """Embed items, as documents."""
        return self._encode("document", items)

    def encode_query(self, queries: Sequence[Any]) -> ArrayLike:
        """Embed queries."""
        return self._encode("query", queries)

    def _encode(self, side: Side, items: Sequence[Any]) -> ArrayLike:
        # The library has sides since version 5; a model with a router embeds them differently.
        encode = getattr(self._model, f"encode_{side}", self._model.encode)
        vectors: ArrayLike = encode(
            list(items),
            prompt=self._prompts[side],
            batch_size=self._batch,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=self._normalise,
        )
        return vectors


def _own_prompt(model: Any, side: Side) -> str | None:
    """The text of the model's prompt for a side. The library gives every model an empty one for
    documents, also where the card has it under the name of passage: empty ones are passed over,
    but the library's own sides then take no prompt by default."""
    prompts: dict[str, str] = getattr(model, "prompts", {})
    name = next((name for name in PROMPT_NAMES[side] if prompts.get(name)), None)
    if name is None and not (
        hasattr(model, f"encode_{side}") and {*PROMPT_NAMES[side]} & {*prompts}
    ):
        name = getattr(model, "default_prompt_name", None)
    return None if name is None else prompts.get(name)


def _normalises(model: Any) -> bool:
    """Do the model's own vectors have the length 1?"""
    modules = model if isinstance(model, Iterable) else ()
    return any(type(module).__name__ == "Normalize" for module in modules)


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
    except (OSError, ValueError, RuntimeError, ImportError) as error:  # RuntimeError: the device
        if NEEDS_CODE in str(error):
            raise EncoderError(
                f"Encoder {spec!r} brings code of its own ({NEEDS_CODE}), and loading a model runs "
                "none: if you trust it, load it in a function of yours and give that, for example "
                "my_module:encode."
            ) from error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EncoderError(f"Encoder {spec!r} cannot be loaded: {reason}") from error
    return SentenceTransformersEncoder(model, spec, options)
