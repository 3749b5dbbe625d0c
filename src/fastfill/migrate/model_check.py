"""Is the encoder still the model of the new rows? A few of them are embedded again.

Its name and settings may be the same and what it makes another: weights were replaced, or code was
changed. Half of the rows are of the first that were embedded, which the map was learned from, the
others of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np

from fastfill.errors import EncoderBusyError, EncoderError, MigrationError, some
from fastfill.gallery import State
from fastfill.migrate.comparing import Comparison, compare, edited, embedded_again, read_drawn
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.sample_rows import SampleRows
from fastfill.migrate.progress import Progress, count

ROWS = 8  # embedded again
LOOK = 2.0  # seconds between two steps while they are
WAY_OUT = (
    "Restore the model that they were embedded by; or, to change the model, give this one another "
    "name (or another 'identity') and run fastfill start with it"
)


def is_same_model(job: Job, state: State) -> bool:
    """Is the encoder at hand the state's model: by its name and settings, or, where the texts in
    its code alone are others, by what it makes of the new rows?"""
    if not job.identity.differences(state):
        return True
    if not job.identity.only_texts_differ(state):
        return False
    found = embed_again(job, state, retry=True)
    if found.wrong or not found.checked:
        return False
    reason = (
        f"The texts in the code of {state.encoder} are others than before, but the {found.checked} "
        "new rows that were embedded again are the same: it is taken for the same model."
    )
    job.callback("noted", {"store": job.store.name, "reason": reason})
    return True


def check_model(job: Job, state: State) -> None:
    """Refuse another model than the state's, by what differs."""
    if not is_same_model(job, state):
        job.identity.check(state, job.store.name)


def check_before_work(job: Job, state: State) -> Iterator[Progress]:
    """Refuse an encoder that makes another vector of half the rows or more; steps while it is
    waited for."""
    with ThreadPoolExecutor(1) as pool:
        check = pool.submit(_check_before_work, job, state)
        try:
            while not wait([check], LOOK).done:
                yield replace(count(job.store, state, about=True), reason=job.waits.reason())
        except BaseException:
            job.stop.set()
            raise
    check.result()


def _check_before_work(job: Job, state: State) -> None:
    if job.encode is None or job.store.columns.input is None:
        return  # refused elsewhere
    try:
        found = embed_again(job, state, retry=True)
    except EncoderBusyError:  # it went on until the work was told to stop
        return
    if found.mostly_wrong:
        raise MigrationError(f"{_found(job, state, found)} {WAY_OUT}.")


def check_before_end(job: Job, state: State) -> None:
    """Refuse to end with rows that the encoder makes other vectors of; say if none was compared."""
    if job.encode is None or job.store.columns.input is None:
        return
    check_model(job, state)
    try:
        found = embed_again(job, state)
    except EncoderError as error:
        found, why = Comparison(), str(error)
    else:
        why = "the encoder could embed none of them"
    if found.wrong:
        raise MigrationError(
            f"{_found(job, state, found)} fastfill verify tells how many there are. {WAY_OUT}; "
            "if the rows are right, complete --no-encoder."
        )
    if not found.checked:
        reason = f"No new row was embedded again to compare it: {why}."
        job.callback("unchecked", {"store": job.store.name, "reason": reason})


def embed_again(job: Job, state: State, *, retry: bool = False) -> Comparison:
    """A few new rows, without those that were edited since."""
    if job.store.describe().new_dim is None:  # a start was killed before it added anything
        return Comparison()
    rng = np.random.default_rng()
    first = SampleRows.of(job.store).queries
    chosen = [first[n] for n in rng.permutation(len(first))[: ROWS // 2]]
    chosen += job.store.sample(ROWS, int(rng.integers(2**31)), new=True)
    if not chosen:
        return Comparison()
    rows = read_drawn(job, list(dict.fromkeys(chosen))[:ROWS], "new")
    rows = rows.take(np.array([model == state.model for model in rows.model], dtype=bool))
    found = compare(rows, embedded_again(job.encoder(state, retry=retry)))
    if not found.wrong:
        return found
    others = edited(job, state, set(found.wrong))
    wrong = tuple(key for key in found.wrong if key not in others)
    return Comparison(found.checked - len(found.wrong) + len(wrong), wrong)


def _found(job: Job, state: State, found: Comparison) -> str:
    return (
        f"{job.store.name}: {len(found.wrong)} of {found.checked} new rows that were embedded "
        f"again are not what {state.encoder} makes of them now ({some(found.wrong)})."
    )
