"""The cut-over under the owner's name: an alias is switched to a copy of the collection.

Qdrant cannot rename a vector. So the points are copied into a second collection, whose vector of
the owner's name is the new one, until nothing changes any more, and the alias that the application
asks stands for it from one moment to the next. What was written in between is looked for then.
"""

from __future__ import annotations

from qdrant_client import models

from fastfill.adapters.qdrant.collection import QdrantCollection, behind_alias
from fastfill.adapters.qdrant.context import QdrantContext
from fastfill.adapters.qdrant.copies import create_copy
from fastfill.adapters.qdrant.copying import Copying, compare_with_copy
from fastfill.adapters.qdrant.documents import QdrantDocuments
from fastfill.adapters.qdrant.last_look import LastLook
from fastfill.adapters.qdrant.layout import QdrantLayout
from fastfill.adapters.qdrant.returning import Returning, compare_with_home
from fastfill.adapters.qdrant.swap_record import SwapRecord
from fastfill.errors import StoreError
from fastfill.gallery import Columns, LateWrites, Settled


class QdrantSwaps:
    """Passes over all points until none has changed, the switch, and a last look."""

    def __init__(self, context: QdrantContext, documents: QdrantDocuments) -> None:
        self._context, self._record = context, SwapRecord(documents, context.name)
        self._look: LastLook | None = None  # of the latest switch

    def late_writes(self) -> tuple[LateWrites, ...]:
        """What others wrote during the latest switch, and was left as it is."""
        return () if self._look is None else self._look.late_writes()

    def check_swap(self, columns: Columns) -> None:
        """Refuse a collection that is asked by its own name: no alias can have that."""
        context = self._context
        if behind_alias(context.connection, context.given) is None:
            raise StoreError(
                f"{context.name}: Qdrant can rename neither vectors nor collections, so that only "
                f"an alias can be switched, and '{context.given}' is the collection itself. Let "
                "the application query through an alias and give its URL here, or complete without "
                f"--swap, and let the application query '{columns.new}'."
            )
        copy = context.existing(context.copies.after)
        if copy is not None and self._record.stage is None:
            raise StoreError(
                f"{context.name}: there is already a collection '{copy.name}', which no swap has "
                "made, or a swap back has kept. Rename it or delete it: the copy gets that name."
            )

    # --- there ---------------------------------------------------------------------------------

    def swap(self, columns: Columns, settled: Settled) -> int:
        """Copy, switch, look again; nothing is changed where rows are in the way."""
        context = self._context
        context.look_behind_alias()
        wrong, self._look = 0, None
        if context.switched():  # although nobody heard of it
            copy, layout = context.owner, self._layout(columns, context.copied_from())
            self._look = compare_with_copy(layout, copy, settled)
        else:
            copy = QdrantCollection(context.connection, context.copies.after)
            layout = self._layout(columns, context.owner)
            wrong = self._copy(Copying(layout, copy, settled, self._record.check_mine))
        context.look_behind_alias()
        context.forget_layout()
        return wrong

    def _copy(self, copying: Copying) -> int:
        """Copy until nothing has changed, switch, and look; how many rows are in the way?"""
        self._record.begin()  # first, so that a crash leaves no copy that nobody has made
        if behind_alias(self._context.connection, self._context.given) == copying.copy.name:
            self._record.refuse()
        self._drop(copying.copy)
        create_copy(copying.layout, copying.copy)
        equal = copying.until_equal()
        if not equal:
            self._drop(copying.copy)
            self._record.forget()
        if copying.wrong:
            return len(copying.wrong)
        if not equal:
            raise StoreError(
                f"{self._context.name}: points are being written all the time, so that the copy "
                "does not become equal. Stop the writers, and run complete --swap again."
            )
        copying.note_copied()
        self._record.check_mine()
        self._switch(copying.copy.name)
        self._look = copying.look_again()
        return 0

    # --- and back ------------------------------------------------------------------------------

    def swap_back(self, columns: Columns, dim: int) -> None:
        """Switch the alias back, with what the application has changed in between."""
        context, self._look = self._context, None
        context.look_behind_alias()
        if context.switched():
            copy, home = context.owner, context.copied_from()
            returning = Returning(self._layout(columns, home), copy)
            self._record.begin(returning=True)
            returning.until_equal()
            self._switch(home.name)
            self._look = returning.look_again()
        elif self._record.stage == "returning":  # switched, although nobody heard of it
            copy = QdrantCollection(context.connection, context.copies.after)
            if copy.exists():
                self._look = compare_with_home(self._layout(columns, context.owner), copy)
        context.look_behind_alias()
        context.forget_layout()

    def end_swap(self, columns: Columns, swapped: bool) -> None:
        """After the way back, drop the copy, unless the operator should look at it."""
        context = self._context
        context.look_behind_alias()
        kept = self._look is not None and self._look.differing
        if not swapped and not kept:
            self._drop(QdrantCollection(context.connection, context.copies.after))
        self._record.forget()
        context.forget_layout()

    # --- both ----------------------------------------------------------------------------------

    def _layout(self, columns: Columns, home: QdrantCollection) -> QdrantLayout:
        """Where everything is in the collection of the old vectors."""
        self._context.use_columns(columns, {"id", columns.input or ""})
        self._context.owner = home
        return self._context.look()

    def _drop(self, copy: QdrantCollection) -> None:
        if copy.exists():
            copy.ask("delete_collection")

    def _switch(self, collection: str) -> None:
        """Let the alias stand for another collection, in one operation."""
        alias = self._context.given
        delete = models.DeleteAlias(alias_name=alias)
        create = models.CreateAlias(collection_name=collection, alias_name=alias)
        operations = [
            models.DeleteAliasOperation(delete_alias=delete),
            models.CreateAliasOperation(create_alias=create),
        ]
        self._context.connection.ask(
            "update_collection_aliases", change_aliases_operations=operations
        )
