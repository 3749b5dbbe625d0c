"""Opening a migration: the first state, the same one again, or another model half-way."""

from __future__ import annotations

from dataclasses import replace

from fastfill.align import Alignment
from fastfill.errors import MigrationError
from fastfill.gallery import State, change_state, load_state
from fastfill.migrate.job import Job, model_tag
from fastfill.migrate.notes import FAILURES, FORECAST, PANEL, record


def open_migration(
    job: Job,
    *,
    alignment: Alignment | None = None,
    policy: str | None = None,
    root: str | None = None,
) -> State:
    """The state of the open migration, which begins here if there is none."""
    state = load_state(job.store)
    tag = model_tag(job.encoder_name)
    if state is None or state.phase == "rolled back":
        return _begin(job, tag, alignment, policy or default_policy(alignment), root)
    if state.phase == "rolling back":
        raise MigrationError(f"{job.store.name} is being rolled back. Run: fastfill rollback.")
    if state.model == tag:
        return state
    if state.phase in ("completing", "complete"):
        raise MigrationError(
            f"{job.store.name} is {state.phase} with {state.encoder}. To move on to another model, "
            f"migrate the column '{state.columns.new}' as the old one."
        )
    return _change_model(job, state, tag, alignment, root)


def default_policy(alignment: Alignment | None) -> str:
    """With a classifier the items that it doubts; otherwise an order that repairs and teaches."""
    return "mixed" if alignment is None or alignment.head is None else "margin"


def _begin(job: Job, tag: str, alignment: Alignment | None, policy: str, root: str | None) -> State:
    _refuse_collision(job)
    dim = alignment.new_dim if alignment is not None else _dimension(job, root)
    first = State(
        phase="starting",
        columns=job.store.columns,
        distance=job.gallery.distance,
        encoder=job.encoder_name,
        model=tag,
        dim=dim,
        policy=policy,
        root=root,
    )

    def change(state: State | None) -> State:
        return first if state is None or state.phase == "rolled back" else state

    opened = change_state(job.store, change)
    record(job.store, "opened", encoder=job.encoder_name, model=tag, dim=dim)
    return opened


def _refuse_collision(job: Job) -> None:
    """Before anything is embedded or written: what a migration adds must not be there."""
    taken = job.store.occupied()
    if taken:
        raise MigrationError(
            f"{job.store.name}: there is already {', '.join(taken)}, which no migration has added. "
            "Rename it, or drop it if it is left over."
        )


def _dimension(job: Job, root: str | None) -> int:
    encoder = job.encoder()
    encoder.root = root
    rows = job.store.read(job.store.sample(8, seed=0))
    encoded = encoder(rows.ids.tolist(), rows.inputs.tolist())
    if not encoded.good.any():
        why = next(iter(encoded.errors.values()), "no row has both an old vector and an input")
        raise MigrationError(f"{job.store.name}: the encoder could embed none of 8 items: {why}.")
    return encoder.dim or 0


def _change_model(
    job: Job, state: State, tag: str, alignment: Alignment | None, root: str | None
) -> State:
    """Rows of the model given up are not settled any more: the start aligns them again."""
    dim = alignment.new_dim if alignment is not None else _dimension(job, root or state.root)

    def change(latest: State | None) -> State:
        base = latest if latest is not None else state
        return replace(
            base,
            phase="starting",
            encoder=job.encoder_name,
            model=tag,
            dim=dim,
            alignment=None,
            earlier=(),
            learning={},
            learned=0,
            root=root or state.root,
            abandoned=(*state.abandoned, state.model),
        )

    job.store.remove([FAILURES, PANEL, FORECAST])
    changed = change_state(job.store, change)
    record(job.store, "changed model", before=state.encoder, after=job.encoder_name, model=tag)
    return changed


def expand(job: Job, state: State) -> None:
    """Add the columns; those of a model of other dimensions, given up half-way, go first."""
    if job.store.describe().new_dim not in (None, state.dim):
        job.store.contract()
    job.store.expand(state.dim)
