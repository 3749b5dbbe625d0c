"""Galleries in the middle of a migration, written directly: half of the rows new, half aligned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfill.align import Fusion
from fastfill.align.reference import Reference
from fastfill.features import Distance, Matrix
from fastfill.gallery import Columns, State, Store, save_fusion
from fastfill.wiring import open_store

OLD_DIM, NEW_DIM, LATENT = 256, 384, 32
BLOCK = 20_000
PAIRS = 300
COLUMNS = Columns(id="id", input="text", old="vector")
MODELS = {"aligned": "map", "new": "model"}


@dataclass(frozen=True, eq=False)
class Items:
    """Some items: what they are about, seen by an old model, an aligned one and a new one."""

    old: Matrix  # (n, d_old)
    aligned: Matrix  # (n, d_new)
    new: Matrix  # (n, d_new)


def make_items(first: int, count: int) -> Items:
    """Items from `first` on, the same in every process: points near a plane of 32 dimensions."""
    maps = np.random.default_rng(1)
    to_old, to_new = (maps.standard_normal((LATENT, dim)) / 6 for dim in (OLD_DIM, NEW_DIM))
    rng = np.random.default_rng([7, first])
    latent = rng.standard_normal((count, LATENT))

    def seen(by: Any, noise: float) -> Matrix:
        blurred = latent + noise * rng.standard_normal(latent.shape)
        far = 0.1 * rng.standard_normal((count, by.shape[1]))
        return np.asarray(blurred @ by + far, dtype=np.float32)

    return Items(seen(to_old, 0.5), seen(to_new, 0.6), seen(to_new, 0.2))


def blocks(rows: int) -> Iterator[tuple[int, Items]]:
    """All items of a gallery in parts, with the number of the first."""
    for first in range(0, rows, BLOCK):
        yield first, make_items(first, min(BLOCK, rows - first))


def generations(first: int, count: int) -> list[str]:
    """Every second item is new."""
    return ["new" if n % 2 else "aligned" for n in range(first, first + count)]


def added(items: Items, first: int) -> Matrix:
    """The added vectors: new for the new items, aligned for the others."""
    is_new = np.arange(first, first + len(items.old)) % 2 == 1
    return np.where(is_new[:, None], items.new, items.aligned)


def begin(store: Store, distance: Distance = "l2") -> None:
    """Write what readers look at: the state, and a fusion learned from some pairs."""
    items = make_items(0, PAIRS)
    reference = Reference(items.old, items.new, items.aligned)
    tag = save_fusion(store, Fusion.learn(reference, distance=distance))
    state = State(
        "started",
        COLUMNS,
        distance,
        "m:f",
        "model",
        NEW_DIM,
        "map",
        serving="both",
        fusion=tag,
    )
    State.change(store, lambda _: state)


def fill_lance(place: str, rows: int) -> Store:
    """A LanceDB table of `rows` items, half done."""
    import lancedb
    import pyarrow as pa

    kinds = {
        "id": pa.string(),
        "text": pa.string(),
        "vector": pa.list_(pa.float32(), OLD_DIM),
    }
    table: Any = lancedb.connect(place).create_table("items", schema=pa.schema(list(kinds.items())))
    store = open_store(f"lance://{place}#items.vector")
    store.bind(COLUMNS)
    store.expand(NEW_DIM)
    table.checkout_latest()
    for first, items in blocks(rows):
        marks = generations(first, len(items.old))
        values: dict[str, Any] = {
            "id": [f"item-{n}" for n in range(first, first + len(marks))],
            "text": [f"text of item {n}" for n in range(first, first + len(marks))],
            "vector": pa.FixedSizeListArray.from_arrays(items.old.ravel(), OLD_DIM),
            COLUMNS.new: pa.FixedSizeListArray.from_arrays(added(items, first).ravel(), NEW_DIM),
            COLUMNS.mark("generation"): marks,
            COLUMNS.mark("model"): [MODELS[mark] for mark in marks],
        }
        fields = [
            pa.array(values[f.name], f.type) if f.name in values else pa.nulls(len(marks), f.type)
            for f in table.schema
        ]
        table.add(pa.Table.from_arrays(fields, schema=table.schema))
    begin(store)
    store.optimize()
    return store


def fill_postgres(place: str, rows: int) -> Store:
    """A PostgreSQL table of `rows` items, half done."""
    import psycopg

    from fastfill.adapters.postgres.binary import vector_bytes

    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("ALTER SYSTEM SET maintenance_work_mem = '2GB'")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(
            f"CREATE TABLE items (id text PRIMARY KEY, text text, vector vector({OLD_DIM}))"
        )
        store = open_store(f"{place}#items.vector")
        store.bind(COLUMNS)
        store.expand(NEW_DIM)
        names = ["id", "text", "vector", COLUMNS.new]
        names += [COLUMNS.mark("generation"), COLUMNS.mark("model")]
        for first, items in blocks(rows):
            marks = generations(first, len(items.old))
            columns = zip(
                vector_bytes(items.old), vector_bytes(added(items, first)), marks, strict=True
            )
            query = f"COPY items ({', '.join(names)}) FROM STDIN (FORMAT BINARY)"
            with connection.cursor().copy(query) as copy:
                copy.set_types(["text", "text", "bytea", "bytea", "text", "text"])
                for n, (old, new, mark) in enumerate(columns, first):
                    copy.write_row((f"item-{n}", f"text {n}", old, new, mark, MODELS[mark]))
        connection.execute("ANALYZE items")
    begin(store)
    return store
