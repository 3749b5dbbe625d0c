"""The layout of a migration: as told, as its store advises, or as it was started."""

from __future__ import annotations

from dataclasses import replace

from fastfill.errors import MigrationError
from fastfill.gallery import HasLayouts, LayoutChoice, LayoutOption, NotesWrites, load_state
from fastfill.migrate.job import Job


def choose_layout(job: Job, wanted: LayoutOption) -> LayoutChoice:
    """An open migration stays as it is; changes nothing."""
    state, store = load_state(job.store), job.store
    if state is not None and state.phase != "rolled back" and not state.closed:
        layout = state.columns.layout
        if wanted not in ("auto", layout):
            raise MigrationError(
                f"{store.name} was started in the layout '{layout}'. To change to '{wanted}', "
                "run fastfill rollback, then start again."
            )
        return LayoutChoice(layout, "as started", only=not isinstance(store, HasLayouts))
    if not isinstance(store, HasLayouts):
        if wanted == "side":
            raise MigrationError(
                f"{store.name}: only PostgreSQL can keep the added vectors beside the owner's "
                "table. Leave --layout out."
            )
        return LayoutChoice("columns", "the only one of this store", only=True)
    advised = store.choose_layout()  # asked in any case: it refuses what cannot be migrated
    return advised if wanted == "auto" else LayoutChoice(wanted, "as told")


def check_noting(job: Job, wanted: LayoutOption) -> None:
    """Refuse a trigger that cannot be made; changes nothing."""
    store = job.store
    if not isinstance(store, NotesWrites):
        raise MigrationError(
            f"{store.name}: only PostgreSQL notes by a trigger what others write. "
            "Leave --allow-trigger out."
        )
    store.bind(replace(store.columns, layout=choose_layout(job, wanted).layout))
    store.check_noting()


def note_writes(job: Job) -> None:
    """Have others' writes noted from now on, where a sweep could not tell them without."""
    if isinstance(job.store, NotesWrites):
        job.store.note_writes()


def stop_noting(job: Job) -> None:
    """Others' writes are of no interest any more."""
    if isinstance(job.store, NotesWrites):
        job.store.stop_noting()
