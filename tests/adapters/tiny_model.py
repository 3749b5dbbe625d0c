"""A tiny real model of the sentence-transformers library whose card has prompts."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

WORDS = ["query", "passage", "other", "red", "green", "blue", "bicycle", "house"]
PROMPTS = {"query": "query: ", "passage": "passage: "}


def save_tiny_model(path: Any) -> str:
    """A folder with a model of unit lengths: an average of word vectors."""
    with warnings.catch_warnings():
        # The library and those that it stands on warn of their own future at import.
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Normalize, StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = {"[UNK]": 0, **{word: n for n, word in enumerate(WORDS, start=1)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    weights = np.random.default_rng(3).standard_normal((len(words), 8)).astype(np.float32)
    modules = [StaticEmbedding(tokenizer, embedding_weights=weights), Normalize()]
    SentenceTransformer(modules=modules, device="cpu", prompts=PROMPTS).save(str(path))
    return str(path)


def library_model(folder: str) -> Any:
    """The model as its card says to load it."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, device="cpu")
