"""Pairs: a random sample of the gallery embedded by the new model, and every row new since."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fastfill.errors import EncoderBusyError, MigrationError
from fastfill.features import Array, Features, Pairs
from fastfill.gallery import Id, Marks, Rows, State
from fastfill.migrate.drawing import draw_to_embed
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.sample_rows import LEAST_QUERIES, MOST_QUERIES, SampleRows
from fastfill.migrate.priorities import alignable

BATCH = 1_024
MOST_PAIRS = 200_000  # kept in memory when a map is learned
MANY, SPARE = 4, 1.2  # times what is wanted: then rows are drawn; and so many, some cannot be used
PAGE = 8_192
QUERY_SHARE = 0.03  # of the rows, embedded to measure quality on where the map is of elsewhere

Tick = Callable[[int, int], None]  # rows done, rows in all


def embed_pairs(job: Job, state: State, wanted: int, tick: Tick = lambda *_: None) -> int:
    """Embed random rows until `wanted` rows are new; returns how many are new."""
    encoder = job.encoder(state, retry=True)
    have = job.store.counts().get(("new", state.model), 0)
    quarantined = job.quarantine.items()
    sample = draw_to_embed(job, wanted + len(quarantined), have, state.model)
    sample = [key for key in sample if key not in quarantined]
    while have < wanted and sample and not job.stop.is_set():
        ids = sample[: min(BATCH, wanted - have)]
        sample = sample[len(ids) :]
        rows = job.store.read(ids)
        try:
            encoded = encoder(rows.ids.tolist(), rows.inputs.tolist())
        except EncoderBusyError:  # it went on until the work was told to stop
            break
        job.quarantine.add(encoded.errors)
        good = rows.take(encoded.good)
        have += job.store.write(good, encoded.vectors[encoded.good], Marks("new", state.model))
        SampleRows.add_queries(job.store, good.ids.tolist())
        tick(have, wanted)
    return have


def read_pairs(job: Job, state: State, most: int = MOST_PAIRS, seed: int = 0) -> Pairs:
    """Every row that has both vectors; a random sample where there are more than `most`."""
    rng = np.random.default_rng(seed)
    parts: list[tuple[Array, ...]] = []  # (lot, id, old, new) of the rows of a step
    for rows in _new_rows(job, state, most, seed):
        marks = zip(rows.generation, rows.model, strict=True)
        mine = np.array([each == ("new", state.model) for each in marks], dtype=bool)
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
    _, ids, old, new = _once(_lowest(parts, most))
    return Pairs(
        Features(old, ids=ids, name="old vectors of the gallery"),
        Features(new, ids=ids, name="new vectors of the gallery"),
        drawn=_drawn(job, ids),
    )


def _new_rows(job: Job, state: State, most: int, seed: int) -> Iterator[Rows]:
    """All rows that are new; where these are many times `most`, a random choice of them."""
    counts = job.store.estimate() or job.store.counts()
    if counts.get(("new", state.model), 0) <= MANY * most:
        yield from job.store.scan("new", batch=PAGE, new=True)
        return
    ids = job.store.sample(round(SPARE * most), seed, new=True)
    for first in range(0, len(ids), PAGE):
        yield job.store.read(ids[first : first + PAGE], new=True)


def _drawn(job: Job, ids: Array) -> Array | None:
    """Which of the rows are new by chance, and so stand for the gallery; None: nobody noted it."""
    by_chance = [str(key) for key in SampleRows.of(job.store).queries]
    return np.isin(ids, by_chance) if by_chance else None


def _lowest(parts: list[tuple[Array, ...]], most: int) -> tuple[Array, ...]:
    """The rows of the lowest lots: at any moment a random sample of those seen so far."""
    whole = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    index = np.sort(np.argsort(whole[0], kind="stable")[:most])
    return tuple(column[index] for column in whole)


def _once(columns: tuple[Array, ...]) -> tuple[Array, ...]:
    """One row of each id: what an application inserts later may have the id of another row."""
    first = np.sort(np.unique(columns[1], return_index=True)[1])
    return columns if len(first) == len(columns[1]) else tuple(c[first] for c in columns)


def embed_sample(job: Job, state: State) -> None:
    """See that quality can be measured: a few random rows are new, and are known to be random.

    They are, where the map was learned from the gallery's pairs. Where it came from a file, random
    rows are embedded here, and others drawn from those that are new already.
    """
    counts = job.store.estimate() or job.store.counts()
    new, total = counts.get(("new", state.model), 0), sum(counts.values())
    wanted = min(max(LEAST_QUERIES, round(QUERY_SHARE * total)), MOST_QUERIES, total)
    there = job.store.read(list(SampleRows.of(job.store).queries))
    if sum(model == state.model for model in there.model) >= min(LEAST_QUERIES, wanted):
        return
    job.store.remove([SampleRows.NAME])
    chosen = random_new_rows(job, state, round(wanted * new / max(total, 1)), set())
    SampleRows.add_queries(job.store, chosen)
    embed_pairs(job, state, new + round(wanted * (total - new) / max(total, 1)))


def random_new_rows(job: Job, state: State, most: int, without: set[Id]) -> list[Id]:
    """Random rows that are new."""
    ids = [
        key
        for rows in job.store.scan("new", batch=8_192, new=False)
        for key, model in zip(rows.ids.tolist(), rows.model, strict=True)
        if model == state.model and key not in without
    ]
    order = np.random.default_rng(len(ids)).permutation(len(ids))[: max(most, 0)]
    return [ids[position] for position in order]
