"""Which way of serving finds what was judged right, by searches of the store as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fastfill.align import Fusion
from fastfill.errors import MigrationError, some
from fastfill.evaluate import Evidence, judged_evidence, ways_to_judge
from fastfill.features import Judgements, Matrix
from fastfill.gallery import Gallery, Hits, Id
from fastfill.gallery.queries import Vector
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.query_sample import QuerySample
from fastfill.migrate.serving.query_set import QuerySet

ANSWERS = 10
Tick = Callable[[int, int], None]  # queries done, queries in all
LEAST_JUDGED = 20  # queries with a right answer in the gallery, for judgements to decide


def searched_evidence(
    job: Job, sample: QuerySample, fusion: Fusion, tick: Tick = lambda *_: None
) -> tuple[Evidence, float | None] | None:
    """nDCG@10 of each way, and how much of the old score both models should keep.

    None where too few queries are judged.
    """
    rows = _judged_rows(job, sample)
    if len(rows) < LEAST_JUDGED:
        return None
    reader, ways = Gallery(job.store), ways_to_judge(fusion.keeps)
    values = np.empty((len(rows), len(ways)))
    for number, row in enumerate(rows):
        grades = sample.judgements[sample.ids[row]]
        answers = _answers(reader, fusion, sample.old[row], sample.new[row])
        values[number] = [ndcg(hits.ids.tolist(), grades) for hits in answers]
        tick(number + 1, len(rows))
        if job.stop.is_set():
            return None
    return judged_evidence(f"ndcg@{ANSWERS}", dict(zip(ways, values.T, strict=True)))


def _answers(reader: Gallery, fusion: Fusion, old: Vector, new: Vector) -> list[Hits]:
    """What one query finds in each of `ways_to_judge`."""
    one_model = (reader.search(old=old, new=new, k=ANSWERS, serving=s) for s in ("old", "aligned"))
    fusions = [fusion.keeping(keep) for keep in fusion.keeps]
    return [*one_model, *reader.search_fused(fusions, old=old, new=new, k=ANSWERS)]


def check_judgements(job: Job, queries: QuerySet) -> None:
    """Refuse judgements of items that are not in the gallery at all; say it of too few."""
    judged = {item for grades in queries.judgements.values() for item in grades}
    if not judged:
        return
    there = _existing(job, judged, queries.old)
    if not there:
        raise MigrationError(
            f"{job.store.name}: none of the judged items ({some(sorted(judged))}) is in the "
            "gallery. Judgements name items by their ids."
        )
    right = right_items(queries.judgements)
    enough = sum(bool(right.get(query, set()) & there) for query in queries.ids)
    if enough < LEAST_JUDGED:
        missing = len(judged) - len(there)
        why = f" ({missing:,} of {len(judged):,} judged items are not in the gallery)"
        if not any(right.values()):
            why = " (no item has a grade above 0)"
        reason = (
            f"judgements ignored: {enough:,} {'query has' if enough == 1 else 'queries have'} a "
            f"right answer in the gallery, {LEAST_JUDGED} are needed"
        )
        details = {"reason": reason + (why if missing or not any(right.values()) else "")}
        job.callback("judgements", {"store": job.store.name, **details})


def right_items(judgements: Judgements) -> dict[str, set[str]]:
    """Of each query, those with a grade above 0.

    >>> right_items({"q1": {"a": 1.0, "b": 0.0}})
    {'q1': {'a'}}
    """
    return {
        query: {item for item, grade in grades.items() if grade > 0}
        for query, grades in judgements.items()
    }


def _judged_rows(job: Job, sample: QuerySample) -> list[int]:
    """Queries that have a right answer in the gallery."""
    right = right_items(sample.judgements)
    there = _existing(job, set().union(*right.values()), sample.old)
    return [row for row, query in enumerate(sample.ids) if right.get(query, set()) & there]


def _existing(job: Job, items: set[str], queries: Matrix | None) -> set[str]:
    """Those of the ids that are in the gallery; a judgement's ids are texts, whatever a store's.

    Only rows that are not new yet are sampled. Where there are none, a query finds an id.
    """
    some_ids = job.store.sample(1, seed=0)
    if not some_ids and queries is not None:
        some_ids = Gallery(job.store).search(old=queries[0], k=1, serving="old").ids.tolist()
    if some_ids and isinstance(some_ids[0], int):
        wanted: list[Id] = [int(item) for item in items if item.lstrip("-").isdigit()]
    else:
        wanted = list(items)
    rows = job.store.read(sorted(wanted, key=str), old=False) if wanted else None
    return set() if rows is None else {str(key) for key in rows.ids}


def ndcg(found: Sequence[Id], grades: Mapping[str, float], k: int = ANSWERS) -> float:
    """nDCG@k of one list of answers, with the grade itself as the gain.

    >>> ndcg(["b", "a"], {"a": 1.0})
    0.6309297535714575
    """
    gains = [max(grades.get(str(key), 0.0), 0.0) for key in found[:k]]
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:k]
    discounts = 1 / np.log2(np.arange(k) + 2)
    ideal = float(np.dot(best, discounts[: len(best)]))
    return float(np.dot(gains, discounts[: len(gains)])) / ideal if ideal else 0.0
