"""Queries under both models: embedded once, kept in the store, so that measuring embeds nothing.

Without queries of the application, some are made from the items' own texts: the first sentence or
line of those that say more than that, such as titles of documents.
"""

from __future__ import annotations

import re

import numpy as np

from fastfill.errors import EncoderError, MigrationError
from fastfill.features import Matrix
from fastfill.gallery import State
from fastfill.gallery.queries import query_encoder
from fastfill.migrate.encoding import Encode, Encoder
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.query_sample import QuerySample
from fastfill.migrate.serving.query_set import MOST, QuerySet

LEAST_MADE = 50  # items that begin with a sentence of their own, for queries to be made of them
LONGEST = 300  # characters of a sentence that may stand for a query
_END = re.compile(r"(?<=[.!?])\s|\n")  # where a first sentence, or a title, ends


def check_queries(job: Job, queries: QuerySet, encode_old: Encode | None) -> None:
    """Refuse queries that cannot be used, before anything is embedded or written."""
    if queries.texts is not None and encode_old is None:
        raise MigrationError(
            "Queries as texts are embedded by both models: name the old one with --old-encoder, "
            "or give the vectors of both as an .npz with the arrays 'old' and 'new'."
        )
    if queries.old is not None and queries.old.shape[1] != (dim := job.store.describe().old_dim):
        raise MigrationError(
            f"The old queries have {queries.old.shape[1]} dimensions, but the gallery has {dim}: "
            "embed them by the model of the gallery's old vectors."
        )


def keep_queries(
    job: Job, state: State, queries: QuerySet | None, encode_old: Encode | None
) -> QuerySample | None:
    """Embed the queries where they are texts and keep them; what was kept before, where none are
    given; None where there are none."""
    if queries is None and (kept := QuerySample.load(job.store)) is not None:
        return kept
    made = queries is None
    if queries is None and encode_old is not None:
        queries = _made_from_items(job)
    if queries is None:
        return None
    sample = _embedded(job, state, queries.sample(), encode_old, made)
    return QuerySample.change(job.store, lambda _: sample)


def _embedded(
    job: Job, state: State, queries: QuerySet, encode_old: Encode | None, made: bool
) -> QuerySample:
    if queries.old is not None and queries.new is not None:
        return QuerySample(queries.old, queries.new, queries.ids, queries.judgements, made)
    texts, dim = list(queries.texts or ()), job.store.describe().old_dim
    if encode_old is None:
        raise MigrationError("Queries as texts are embedded by both models: name the old one.")
    by_old = Encoder(query_encoder(encode_old), distance=state.distance, dim=dim, root=None)
    old = _embed(by_old, texts, "old")
    new = _embed(job.encoder(state, root=None, queries=True), texts, "new")
    good = np.flatnonzero(np.isfinite(old[:, 0]) & np.isfinite(new[:, 0]))
    if not len(good):
        raise MigrationError("None of the queries could be embedded by both models.")
    ids = [queries.ids[row] for row in good.tolist()]
    return QuerySample(old[good], new[good], ids, queries.judgements, made)


def _embed(encoder: Encoder, texts: list[str], side: str) -> Matrix:
    """(q, d) vectors, NaN where a query cannot be embedded."""
    try:
        encoded = encoder([f"query {number}" for number in range(1, len(texts) + 1)], texts)
    except EncoderError as error:  # which of the two models, and on what
        raise EncoderError(f"The {side} model on queries: {error}") from error
    if not encoded.good.any():
        raise MigrationError(
            f"The {side} model failed on every query: {next(iter(encoded.errors.values()))}"
        )
    return encoded.vectors


def _made_from_items(job: Job) -> QuerySet | None:
    """Sentences with which items begin; None where items are no texts, or too short."""
    rows = job.store.read(job.store.sample(MOST, seed=7))
    sentences = [first_sentence(value) for value in rows.inputs]
    texts = [text for text in sentences if text is not None]
    if len(texts) < LEAST_MADE or 2 * len(texts) < len(sentences):
        return None
    return QuerySet([f"made {number}" for number in range(1, len(texts) + 1)], texts=texts)


def first_sentence(value: object) -> str | None:
    """What an item begins with, if it is a text that says more than that.

    >>> first_sentence("A red lamp. It stands on one leg.")
    'A red lamp.'
    >>> first_sentence("where is my order") is None
    True
    """
    if not isinstance(value, str):
        return None
    sentence = _END.split(value.strip(), maxsplit=1)[0].strip()
    short = 0 < len(sentence) <= LONGEST and 2 * len(sentence) <= len(value.strip())
    return sentence if short else None
