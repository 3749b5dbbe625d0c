"""The layout of a migration: as told, as its store advises, or as it was started."""

from __future__ import annotations

from fastfill.errors import MigrationError
from fastfill.gallery import HasLayouts, LayoutChoice, LayoutOption, load_state
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
        return LayoutChoice(layout, "as started")
    if not isinstance(store, HasLayouts):
        if wanted == "side":
            raise MigrationError(
                f"{store.name}: only PostgreSQL can keep the added vectors beside the owner's "
                "table. Leave --layout out."
            )
        return LayoutChoice("columns", "the only one of this store", only=True)
    return store.choose_layout() if wanted == "auto" else LayoutChoice(wanted, "as told")
