"""Pairs: a random sample of the gallery embedded by the new model, and the map learned from it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Alignment
from fastfill.errors import EncoderBusyError, MigrationError
from fastfill.features import Array, Features, Pairs
from fastfill.gallery import Documents, Id, Marks, State, change_state
from fastfill.migrate.job import Job, alignment_tag, documents_of
from fastfill.migrate.notes import PANEL, change_note, record
from fastfill.migrate.patience import Patience
from fastfill.migrate.settle import alignable

BATCH = 1_024
MOST_PAIRS = 200_000  # kept in memory when a map is learned
MOST_QUERIES = 1_000  # random rows that quality is measured with


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
        good = rows.take(encoded.good)
        have += job.store.write(good, encoded.vectors[encoded.good], marks)
        note_queries(job.store, good.ids.tolist())
        progress(have, wanted)
    return have


def note_queries(documents: Documents, ids: Sequence[Id]) -> None:
    """Remember rows that are new by chance and by no policy: quality is measured with them."""

    def change(note: dict[str, Any]) -> dict[str, Any]:
        known = note.get("queries", [])
        return {**note, "queries": list(dict.fromkeys([*known, *ids]))[:MOST_QUERIES]}

    change_note(documents, PANEL, change)


def read_pairs(job: Job, state: State, most: int = MOST_PAIRS, seed: int = 0) -> Pairs:
    """Every row that has both vectors; a random sample where there are more than `most`."""
    rng = np.random.default_rng(seed)
    parts: list[tuple[Array, ...]] = []  # (lot, id, old, new) of the rows of a step
    for rows in job.store.scan("new", batch=8_192, new=True):
        mine = np.array([model == state.model for model in rows.model], dtype=bool)
        part = rows.take(alignable(rows, state) & mine)
        if part.new is not None and len(part):
            parts.append((rng.random(len(part)), part.ids.astype(str), part.old, part.new))
        if sum(len(part[0]) for part in parts) > 2 * most:
            parts = [_lowest(parts, most)]
    count = sum(len(part[0]) for part in parts)
    if count < 2:
        raise MigrationError(
            f"{job.store.name}: {count} rows have both an old and a new vector, too few to learn "
            "from. Run: fastfill pairs URL -n 2000."
        )
    _, ids, old, new = _lowest(parts, most)
    return Pairs(
        Features(old, ids=ids, name="old vectors of the gallery"),
        Features(new, ids=ids, name="new vectors of the gallery"),
    )


def _lowest(parts: list[tuple[Array, ...]], most: int) -> tuple[Array, ...]:
    """The rows of the lowest lots: at any moment a random sample of those seen so far."""
    whole = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    index = np.sort(np.argsort(whole[0], kind="stable")[:most])
    return tuple(column[index] for column in whole)


def learn(job: Job, state: State, *, method: str = "auto", **options: Any) -> State:
    """Learn the map from the gallery's pairs and make it the migration's."""
    pairs = read_pairs(job, state)
    alignment = Alignment.fit(pairs, method=method, distance=state.distance, **options)
    rows = job.store.counts().get(("new", state.model), 0)
    return adopt_alignment(
        job, state, alignment, learned=rows, learning=how(alignment, method, options), pairs=pairs
    )


def how(alignment: Alignment, method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a refit must know: the method asked for and found, on how many pairs, and options."""
    plain = {name: value for name, value in options.items() if not callable(value)}
    pairs = alignment.facts["pairs"]
    return {"method": method, "chosen": alignment.method, "pairs": pairs, "options": plain}


def adopt_alignment(
    job: Job,
    state: State,
    alignment: Alignment,
    *,
    learned: int = 0,
    learning: dict[str, Any] | None = None,
    pairs: Pairs | None = None,
    refit: bool = False,
) -> State:
    """Keep the alignment in the store; rows that another one has aligned are work again.

    If the migration has another alignment or model by now, this one comes too late and is dropped.
    """
    check_alignment(job, state, alignment)
    tag = alignment_tag(alignment)
    keep_alignment(job, tag, alignment, pairs)

    def change(latest: State | None) -> State:
        if latest is None or not same_work(latest, state):
            return latest or state
        if latest.alignment == tag:
            return replace(latest, learned=max(learned, latest.learned))
        serving = latest.alignments if latest.phase == "started" else ()
        return replace(
            latest,
            alignment=tag,
            earlier=tuple(each for each in serving if each != tag),
            learned=learned,
            learning=learning or {},
            refits=latest.refits + refit,
        )

    changed = change_state(job.store, change)
    if tag not in changed.alignments:
        job.store.remove(documents_of(tag))
    elif changed.alignment != state.alignment and not refit:
        record(job.store, "aligned", alignment=alignment.fingerprint, method=alignment.method)
    return changed


def same_work(latest: State, state: State) -> bool:
    """Is the migration still at the model, phase and alignment of `state`?"""
    return (latest.model, latest.phase, latest.alignment) == (
        state.model,
        state.phase,
        state.alignment,
    )


def keep_alignment(job: Job, tag: str, alignment: Alignment, pairs: Pairs | None) -> None:
    """Save the bytes, and of which pairs it was learned, before any state names them."""
    known = b"" if pairs is None else np.sort(id_hashes(pairs.old.ids)).tobytes()
    for name, value in zip(documents_of(tag), (alignment.to_bytes(), known), strict=True):
        if job.store.load(name) is None:
            job.store.save(name, value, 0)


def check_alignment(job: Job, state: State, alignment: Alignment) -> None:
    """Refuse an alignment that does not fit the gallery."""
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


def id_hashes(ids: Iterable[object]) -> NDArray[np.uint64]:
    """64 bits of each id: enough to tell which pairs a map has seen.

    >>> id_hashes(["a", "b"]) == id_hashes(["a", "c"])
    array([ True, False])
    """
    digests = [hashlib.blake2b(str(key).encode(), digest_size=8).digest() for key in ids]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)
