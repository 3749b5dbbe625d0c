"""A migration that has ended: the old vectors are gone, and the marks with them."""

from __future__ import annotations

from fastfill.errors import MigrationError
from fastfill.gallery import State


def check_not_ended(store_name: str, state: State) -> None:
    """Refuse to go on with it, with what can be done instead.

    >>> from fastfill.gallery import Columns
    >>> columns = Columns("id", "text", "vector")
    >>> check_not_ended("photos", State("started", columns, "l2", "tiny", "1f", 8))
    """
    if not state.ended:
        return
    way_out = (
        "run fastfill plan and start with another --encoder"
        if state.swapped
        else f"migrate the column '{state.columns.new}' as the old one, named at the URL's end"
    )
    raise MigrationError(
        f"{store_name}: the migration to {state.encoder} is complete and its old vectors have been "
        f"dropped, so that nothing is left to do. To upgrade to another model, {way_out}."
    )
