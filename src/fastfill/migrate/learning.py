"""Learning the map from the gallery's pairs, and making an alignment the migration's."""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from fastfill.align import Alignment, FitOptions, fit_alignment
from fastfill.errors import MigrationError
from fastfill.features import Pairs
from fastfill.gallery import KnowsMarks, Learning, State, change_state
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.audit import record
from fastfill.migrate.pairs import read_pairs


def learn(job: Job, state: State, fit: FitOptions, head: ArrayLike | None = None) -> State:
    """Learn the map from the gallery's pairs and make it the migration's."""
    pairs = read_pairs(job, state)
    alignment = fit_alignment(pairs, fit, head=head, distance=state.distance)
    if "not_tried" in alignment.facts:
        job.callback("untried", {"reason": alignment.facts["not_tried"]})
    rows = job.store.counts().get(("new", state.model), 0)
    learning = Learning(fit.method, alignment.method, len(pairs), fit.to_json())
    return adopt(job, state, alignment, learned_rows=rows, learning=learning, pairs=pairs)


def adopt(
    job: Job,
    state: State,
    alignment: Alignment,
    *,
    learned_rows: int = 0,
    learning: Learning | None = None,
    pairs: Pairs | None = None,
    refit: bool = False,
) -> State:
    """Keep the alignment in the store; rows that another one has aligned are work again.

    If the migration has another alignment or model by now, this one comes too late and is dropped.
    """
    check_alignment(job, state, alignment)
    tag = job.alignments.save(alignment, pairs)

    def change(latest: State) -> State:
        if not same_work(latest, state):
            return latest
        if latest.alignment == tag:
            return replace(latest, learned_rows=max(learned_rows, latest.learned_rows))
        serving = latest.alignments if latest.phase == "started" else ()
        return replace(
            latest,
            alignment=tag,
            stale=tuple(each for each in serving if each != tag),
            learned_rows=learned_rows,
            learning=learning,
            refits=latest.refits + refit,
        )

    changed = change_state(job.store, change)
    if tag not in changed.alignments:
        job.alignments.remove([tag])
    elif changed.alignment != state.alignment and not refit:
        details = {"alignment": alignment.fingerprint, "method": alignment.method}
        record(job.store, "aligned", details)
    return changed


def same_work(latest: State, state: State) -> bool:
    """Is the migration still at the model, phase and alignment of `state`?"""
    return (latest.model, latest.phase, latest.alignment) == (
        state.model,
        state.phase,
        state.alignment,
    )


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


def forget_unused(job: Job) -> State:
    """Remove the stale alignments that no row carries any more."""
    if not (state := job.state).stale:
        return state
    store = job.store
    known = store.marks_in_use() if isinstance(store, KnowsMarks) else None
    marks = store.counts() if known is None else known  # an estimate could miss a row
    used = {model for generation, model in marks if generation == "aligned"}
    gone = [tag for tag in state.stale if tag not in used]
    if not gone:
        return state
    changed = change_state(
        job.store,
        lambda latest: replace(latest, stale=tuple(t for t in latest.stale if t not in gone)),
    )
    job.alignments.remove([tag for tag in gone if tag not in changed.alignments])
    return changed
