"""Pairs: a random sample of the gallery embedded by the new model, and the map learned from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastfill.align import Alignment
from fastfill.errors import EncoderBusyError, MigrationError
from fastfill.features import Features, Pairs
from fastfill.gallery import Marks, State, set_phase
from fastfill.migrate.job import Job, alignment_document, alignment_tag
from fastfill.migrate.notes import record
from fastfill.migrate.patience import Patience

BATCH = 1_024
MOST_PAIRS = 200_000  # kept in memory when a map is learned


def embed_pairs(
    job: Job, state: State, wanted: int, progress: Callable[[int, int], None] = lambda *_: None
) -> int:
    """Embed random rows until `wanted` rows are new; returns how many are new."""
    encoder = job.encoder(state)
    encoder.patience = Patience(job)
    have = job.store.counts().get(("new", state.model), 0)
    aside = job.failures.set_aside()
    sample = [k for k in job.store.sample(wanted + len(aside), seed=have) if k not in aside]
    while have < wanted and sample and not job.stop.is_set():
        ids = sample[: min(BATCH, wanted - have)]
        sample = sample[len(ids) :]
        rows = job.store.read(ids)
        try:
            encoded = encoder(rows.ids.tolist(), rows.inputs.tolist())
        except EncoderBusyError:  # it went on until the work was told to stop
            break
        job.failures.add(encoded.errors)
        marks = Marks("new", state.model)
        have += job.store.write(rows.take(encoded.good), encoded.vectors[encoded.good], marks)
        progress(have, wanted)
    return have


def read_pairs(job: Job, state: State) -> Pairs:
    """Every row that has both vectors, as far as memory allows."""
    old, new, ids = [], [], []
    count = 0
    for rows in job.store.scan("new", batch=8_192, new=True):
        whole = rows.usable & np.array([m == state.model for m in rows.model], dtype=bool)
        if rows.new is None or not whole.any():
            continue
        old.append(rows.old[whole])
        new.append(rows.new[whole])
        ids.append(rows.ids[whole])
        count += int(whole.sum())
        if count >= MOST_PAIRS:
            break
    if count < 2:
        raise MigrationError(
            f"{job.store.name}: {count} rows have both an old and a new vector, too few to learn "
            "from. Run: fastfill pairs URL -n 2000."
        )
    keys = np.concatenate(ids).astype(str)
    return Pairs(
        Features(np.concatenate(old), ids=keys, name="old vectors of the gallery"),
        Features(np.concatenate(new), ids=keys, name="new vectors of the gallery"),
    )


def learn(job: Job, state: State, *, method: str = "auto", **options: Any) -> State:
    """Learn the map from the gallery's pairs and make it the migration's."""
    pairs = read_pairs(job, state)
    alignment = Alignment.fit(pairs, method=method, distance=state.distance, **options)
    return adopt_alignment(job, state, alignment)


def adopt_alignment(job: Job, state: State, alignment: Alignment) -> State:
    """Keep the alignment in the store; rows that another one has aligned are work again."""
    description = job.store.describe()
    if (alignment.old_dim, alignment.new_dim) != (description.old_dim, state.dim):
        raise MigrationError(
            f"The alignment maps {alignment.old_dim} to {alignment.new_dim} dimensions, but the "
            f"gallery has {description.old_dim} and the new model {state.dim}."
        )
    if alignment.side_dim:
        raise MigrationError(
            "The alignment needs side-information, which a store does not hold. Learn it without."
        )
    tag = alignment_tag(alignment)
    if job.store.load(alignment_document(tag)) is None:
        job.store.save(alignment_document(tag), alignment.to_bytes(), 0)
    if state.alignment == tag:
        return state
    record(job.store, "aligned", alignment=alignment.fingerprint, method=alignment.method)
    return set_phase(job.store, state.phase, alignment=tag)
