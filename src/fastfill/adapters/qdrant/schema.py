"""The vectors and collections: what there is, what a migration adds and takes away."""

from __future__ import annotations

from typing import Any

from qdrant_client import models

from fastfill.adapters.qdrant.context import PLAIN, QdrantContext
from fastfill.adapters.qdrant.documents import QdrantDocuments
from fastfill.adapters.qdrant.layout import QdrantLayout
from fastfill.adapters.qdrant.points import UNNAMED, all_of, is_empty
from fastfill.errors import StoreError, some
from fastfill.gallery import MARKS, Columns, Description


class QdrantSchema:
    """A named vector beside the old one, or a second collection where there can be none."""

    def __init__(self, context: QdrantContext, documents: QdrantDocuments) -> None:
        self._context, self._documents = context, documents

    # --- names ---------------------------------------------------------------------------------

    @property
    def added(self) -> tuple[str, ...]:
        """The vector, the alias where it is in a second collection, the ledger, the documents."""
        ledger = self._context.ledger
        alias = () if self._adds_name() else (ledger.alias,)
        return (self._context.columns.new, *alias, ledger.name, self._documents.name)

    def occupied(self) -> tuple[str, ...]:
        """Those of the `added` names that exist already."""
        context, taken = self._context, self._context.connection.names()
        taken.discard(self._documents.name)
        if self._documents.foreign():
            taken.add(self._documents.name)
        if context.look().new_dim is not None:
            taken.add(context.columns.new)
        return tuple(name for name in self.added if name in taken)

    def _adds_name(self) -> bool:
        """Is the added vector another named one of the owner's points?"""
        context = self._context
        named = context.old != UNNAMED and context.connection.names_vectors
        return named or context.columns.new in context.owner.vectors()

    def bind(self, columns: Columns) -> None:
        """Say where the input is; points are known by their ids."""
        context = self._context
        context.look_behind_alias()
        owner = context.owner
        if columns.id != "id":
            raise StoreError(
                f"{context.name}: Qdrant's points are known by their ids, not by '{columns.id}'. "
                "Leave --id out."
            )
        filled = all_of(but=[is_empty(columns.input or "")])
        if columns.input is not None and not owner.any(filled) and owner.any():
            raise StoreError(
                f"{context.name}: no point has '{columns.input}' in its payload, only "
                f"{some(owner.keys()) or 'nothing'}."
            )
        context.use_columns(columns, {"id", columns.input or ""})
        context.forget_layout()

    # --- what there is -------------------------------------------------------------------------

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        context, layout = self._context, self._context.look()
        vectors = context.owner.vectors()
        return Description(
            count=context.owner.count,
            old_dim=layout.old_dim or layout.new_dim or 0,
            new_dim=layout.new_dim,
            distance=context.owner.distance(context.old) if context.old in vectors else None,
            columns=self._columns(layout, vectors),
            batch=layout.batch,
            parallel=not context.connection.local,
        )

    def _columns(self, layout: QdrantLayout, vectors: dict[str, Any]) -> tuple[str, ...]:
        context, columns = self._context, self._context.columns
        names = ["id", *context.owner.keys()]
        names += [name or PLAIN for name in vectors if name != context.old]
        names += [columns.old] if layout.old_dim else []
        names += [columns.new] if layout.new_dim else []
        names += [columns.mark(name) for name in MARKS] if layout.marked() else []
        return tuple(dict.fromkeys(names))

    # --- expand and contract -------------------------------------------------------------------

    def expand(self, dim: int) -> None:
        """Add a named vector, or a second collection where there can be none; and the ledger."""
        context, layout = self._context, self._context.look()
        context.require_dim(dim, layout.new_dim)
        old = context.owner.vectors().get(context.old)
        if old is None:
            raise StoreError(f"{context.name}: the old vectors have been dropped.")
        if self._adds_name():
            # The ledger first: an added vector without one would be taken for someone else's.
            layout.ledger.create(context.owner.info(), {})
            config = models.DenseVectorConfig(size=dim, distance=old.distance)
            context.owner.ask(
                "create_vector_name",
                vector_name=context.columns.new,
                vector_name_config=models.DenseVectorNameConfig(dense=config),
            )
        else:
            params = models.VectorParams(
                size=dim,
                distance=old.distance,
                hnsw_config=old.hnsw_config,
                quantization_config=old.quantization_config,
                on_disk=old.on_disk,
            )
            layout.ledger.create(context.owner.info(), {context.columns.new: params})
        context.forget_layout()

    def contract(self) -> None:
        """Drop the added vector and the ledger."""
        context, layout = self._context, self._context.look()
        if layout.beside:
            context.owner.ask("delete_vector_name", vector_name=context.columns.new)
        layout.ledger.drop()
        context.forget_layout()

    def drop_old(self) -> None:
        """Drop the old vectors and the marks."""
        context, layout = self._context, self._context.look()
        if layout.swapped:
            self._drop_before(layout)
        elif layout.beside:
            context.owner.ask("delete_vector_name", vector_name=context.old)
            layout.ledger.drop()
        else:  # a vector without a name, or on an older server, leaves its place behind
            if layout.old_dim:
                context.owner.ask(
                    "delete_vectors", vectors=[context.old], points=all_of(), wait=True
                )
            layout.ledger.unmark()
        context.forget_layout()

    def _drop_before(self, layout: QdrantLayout) -> None:
        """Delete the collection that the alias stood for before the swap."""
        if layout.old_home is not None:
            name = layout.old_home.name
            aliases = self._context.connection.ask("get_aliases").aliases
            others = [each.alias_name for each in aliases if each.collection_name == name]
            if others:
                raise StoreError(
                    f"{self._context.name}: the alias '{others[0]}' still stands for '{name}', "
                    "which holds the old vectors. Let it stand for another collection first."
                )
            layout.old_home.ask("delete_collection")
        layout.ledger.drop()
