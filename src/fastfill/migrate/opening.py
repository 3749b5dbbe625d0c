"""Opening a migration: the first state, the same one again, or another model half-way."""

from __future__ import annotations

from dataclasses import replace

from fastfill.align import MIN_PAIRS, Alignment
from fastfill.errors import MigrationError
from fastfill.features import Matrix
from fastfill.gallery import (
    OVER,
    LayoutChoice,
    LayoutOption,
    State,
    change_state,
    latest_migration,
    load_state,
    note_part,
    repeated_ids_of,
    where_text,
)
from fastfill.migrate.as_started import check_as_started
from fastfill.migrate.drawing import draw_to_embed
from fastfill.migrate.encoding import check_tells_apart
from fastfill.migrate.ended import check_not_ended
from fastfill.migrate.job import Job
from fastfill.migrate.layout import choose_layout
from fastfill.migrate.ledger.audit import record
from fastfill.migrate.ledger.quarantine import Failures
from fastfill.migrate.ledger.query_sample import QuerySample
from fastfill.migrate.ledger.sample_rows import SampleRows
from fastfill.migrate.ledger.serving_record import ServingRecord
from fastfill.migrate.ledger.start_request import StartRequest
from fastfill.migrate.model_check import is_same_model
from fastfill.migrate.priorities import rearrange
from fastfill.migrate.quality.quality_forecast import QualityForecast
from fastfill.order import check_live_policy

TRIED = 8  # items on which the dimensions of a model are found out


def open_migration(
    job: Job,
    *,
    alignment: Alignment | None = None,
    policy: str | None = None,
    root: str | None = None,
    queries: Matrix | None = None,
    layout: LayoutOption = "auto",
) -> State:
    """The state of the open migration, which begins here if there is none, in this `layout`.

    `queries` by the new model must have its dimensions, which are found out here.
    """
    state = load_state(job.store)
    chosen = choose_layout(job, layout)
    if state is None or state.phase == "rolled back":
        return _begin(job, alignment, policy, root, queries, chosen)
    if job.follows(state):
        _forget_results(job)
        return _begin(job, alignment, policy, root, queries, chosen)
    check_not_ended(job.store.name, state)
    check_as_started(job, state)
    if state.phase == "rolling back":
        raise MigrationError(f"{job.store.name} is being rolled back. Run: fastfill rollback.")
    if state.swapped:
        raise MigrationError(
            f"{job.store.name} is complete under its own name with {state.encoder}. Before another "
            "start run complete --drop-old, or swap-back."
        )
    if is_same_model(job, state):
        _check_dimensions(queries, state.dim)
        return set_policy(job, job.keep_settings(state), policy, alignment)
    if state.phase in ("completing", "complete"):
        raise MigrationError(
            f"{job.store.name} is {state.phase} with {state.encoder}, and this is another model "
            f"({'; '.join(job.identity.differences(state))}): to move on to it, migrate the column "
            f"'{state.columns.new}' as the old one"
            + (
                " (complete --swap tells how to move it to yours)."
                if state.columns.layout == "side"
                else "."
            )
        )
    return _change_model(job, state, alignment, policy, root, queries)


def default_policy(alignment: Alignment | None) -> str:
    """With a classifier the items that it doubts; otherwise an order that repairs and teaches."""
    return "mixed" if alignment is None or alignment.head is None else "margin"


def set_policy(
    job: Job, state: State, policy: str | None, alignment: Alignment | None = None
) -> State:
    """Another order, where one is wanted: aligned rows get the priorities of it."""
    kept = state.policy if policy is None else policy
    if alignment is None and state.alignment is not None:
        alignment = job.alignment(state)
    check_live_policy(kept, head=alignment is not None and alignment.head is not None)
    if kept == state.policy:
        return state
    changed = change_state(job.store, lambda latest: replace(latest, policy=kept))
    if changed.phase == "started":
        rearrange(job, changed)
    record(job.store, "changed policy", {"policy": kept})
    job.callback("noted", {"reason": f"The order of backfilling is '{kept}' from now on."})
    return changed


def _begin(
    job: Job,
    alignment: Alignment | None,
    policy: str | None,
    root: str | None,
    queries: Matrix | None,
    chosen: LayoutChoice,
) -> State:
    check_alone(job)
    job.store.bind(replace(job.store.columns, layout=chosen.layout))
    occupied = job.store.occupied()
    if occupied:
        raise MigrationError(
            f"{job.store.name}: there is already {', '.join(occupied)}, which no migration has "
            "added. Rename it, or drop it if it is left over."
        )
    check_ids(job)
    dim = alignment.new_dim if alignment is not None else _dimension(job, root)
    _check_dimensions(queries, dim)
    first = State(
        phase="starting",
        columns=job.store.columns,
        distance=job.gallery.distance,
        encoder=job.encoder_name,
        model=job.identity.tag,
        dim=dim,
        policy=policy or default_policy(alignment),
        root=root,
        settings=job.identity.settings,
    )

    def change(state: State | None) -> State:
        over = state is None or state.phase == "rolled back" or state.closed
        return first if state is None or over else state

    note_part(job.store, first.columns.where)
    opened = State.change(job.store, change)
    job.identity.check(opened, job.store.name)  # another start may have opened it meanwhile
    details = {"encoder": job.encoder_name, "model": first.model, "settings": first.settings}
    record(job.store, "opened", {**details, "dim": dim, "layout": str(chosen)})
    return opened


def check_alone(job: Job) -> None:
    """Refuse to begin while other rows of the same column are being migrated."""
    where, state = latest_migration(job.store)
    if state is None or state.phase in OVER or where == job.store.columns.where:
        return
    rows = f"the rows where {where_text(where)}" if where else "all its rows"
    raise MigrationError(
        f"{job.store.name}: a migration of {rows} is {state.phase}. Complete it or roll it back "
        "before another part begins."
    )


def check_ids(job: Job) -> None:
    """Refuse ids that do not tell rows apart, where the store itself does not see to that."""
    if repeated := repeated_ids_of(job.store):
        raise MigrationError(
            f"{job.store.name}: column '{job.store.columns.id}' does not tell rows apart: "
            f"{repeated}. Name one with --id that does, or give each row an id of its own."
        )


def _dimension(job: Job, root: str | None) -> int:
    check_not_empty(job)
    if (few := job.store.describe().rows) < MIN_PAIRS:
        raise MigrationError(
            f"{job.store.name} has {few} rows, too few to learn a map from, which takes "
            f"{MIN_PAIRS}: embed them all by the new model, or give a map (--alignment)."
        )
    encoder = job.encoder(root=root)
    rows = job.store.read(draw_to_embed(job, TRIED, 0))
    encoded = encoder(rows.ids.tolist(), rows.inputs.tolist())
    if not encoded.good.any():
        why = next(iter(encoded.errors.values()), "no row has both an old vector and an input")
        raise MigrationError(
            f"{job.store.name}: the encoder could embed none of {TRIED} items: {why}."
        )
    check_tells_apart(job.encoder_name, rows.inputs.tolist(), encoded)
    return encoder.dim or 0


def check_not_empty(job: Job) -> None:
    """Refuse a gallery, or a part of one, without rows."""
    if job.store.describe().rows == 0:
        part = where_text(job.store.columns.where)
        rows = f"rows where {part}" if part else "rows"
        raise MigrationError(f"{job.store.name} has no {rows}: there is nothing to migrate.")


def _check_dimensions(queries: Matrix | None, dim: int) -> None:
    """Refuse queries of another model before anything is written."""
    if queries is not None and queries.shape[1] != dim:
        raise MigrationError(
            f"The new queries have {queries.shape[1]} dimensions, but the new model has {dim}: "
            "embed them by the model that --encoder names."
        )


def _change_model(
    job: Job,
    state: State,
    alignment: Alignment | None,
    policy: str | None,
    root: str | None,
    queries: Matrix | None,
) -> State:
    """Rows of the model given up are not settled any more: the start aligns them again."""
    root = root or state.root
    dim = alignment.new_dim if alignment is not None else _dimension(job, root)
    _check_dimensions(queries, dim)
    _forget_results(job)
    changed = change_state(
        job.store,
        lambda latest: replace(
            latest,
            phase="starting",
            encoder=job.encoder_name,
            model=job.identity.tag,
            settings=job.identity.settings,
            dim=dim,
            policy=policy or default_policy(alignment),
            alignment=None,
            stale=(),
            learning=None,
            learned_rows=0,
            root=root,
            fusion=None,
            abandoned=(*state.abandoned, state.model),
        ),
    )
    details = {
        "before": state.encoder,
        "after": job.encoder_name,
        "model": changed.model,
        "reason": f"the model is another one now: {'; '.join(job.identity.differences(state))}",
    }
    record(job.store, "changed model", {**details, "settings": changed.settings})
    job.callback("model", {"store": job.store.name, **details})
    return changed


def _forget_results(job: Job) -> None:
    """What was measured on vectors of a model that is given up, or was before this one."""
    of_that_model = (
        Failures, SampleRows, QualityForecast, QuerySample, ServingRecord, StartRequest,
    )  # fmt: skip
    job.store.remove([document.NAME for document in of_that_model])


def expand(job: Job, state: State) -> None:
    """Add the columns; those of a model of other dimensions, given up half-way, go first."""
    if job.store.describe().new_dim not in (None, state.dim):
        job.store.contract()
    job.store.expand(state.dim)
