"""A migration of a large table in PostgreSQL counts its rows once, however often it learns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastfill.adapters.postgres.reads import PostgresReads
from fastfill.align import Alignment
from fastfill.features import Features, Matrix, Pairs
from fastfill.gallery import Layout, change_state
from fastfill.migrate import Migration
from fastfill.migrate.learning import forget_unused

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

ROWS, DIM = 600, 6
MIX = np.random.default_rng(5).standard_normal((DIM, DIM)).astype(np.float32)
QUICK: dict[str, Any] = {"throttle": False, "batch": 20, "refit": 0.1}


@pytest.fixture(autouse=True)
def _as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows get the indexes of a large table that is worked on for long."""
    monkeypatch.setattr("fastfill.adapters.postgres.indexes.LARGE", 0)
    monkeypatch.setattr("fastfill.adapters.postgres.indexes.AT_WORK", 0.0)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each look at every row to count them."""
    looks, counts = [], PostgresReads.counts

    def noted(reads: PostgresReads) -> Any:
        looks.append(1)
        return counts(reads)

    monkeypatch.setattr(PostgresReads, "counts", noted)
    return looks


def old_vectors(numbers: Any) -> Matrix:
    """What the old model made of these items."""
    return np.stack([np.random.default_rng(n).standard_normal(DIM) for n in numbers]).astype(
        np.float32
    )


def encode(texts: Any) -> Matrix:
    """The new model: near a linear map of the old one, but not on it."""
    mapped = old_vectors(int(text.split()[1]) for text in texts) @ MIX
    return np.asarray(mapped + 0.3 * np.sin(3 * mapped), dtype=np.float32)


def begun(uri: str, layout: Layout) -> Migration:
    """A migration with a map so bad that refits are better for certain."""
    from fastfill.wiring import connect

    with psycopg.connect(uri, autocommit=True) as owner:
        owner.execute(f"CREATE TABLE items (id int PRIMARY KEY, text text, v vector({DIM}))")
        with owner.cursor() as cursor:
            rows = [(n, f"text {n}", str(old_vectors([n])[0].tolist())) for n in range(ROWS)]
            cursor.executemany("INSERT INTO items VALUES (%s, %s, %s::vector)", rows)
    others = range(10_000, 10_040)
    new = encode([f"text {n}" for n in others])
    new += 20 * np.random.default_rng(0).standard_normal(new.shape).astype(np.float32)
    bad = Pairs(Features(old_vectors(others)), Features(new))
    gallery = connect(f"{uri}#items.v", id="id", input="text", distance="l2")
    migration = Migration(gallery, encode, encoder_name="test:encode")
    bad_map = Alignment.fit(bad, method="ridge", distance="l2")
    migration.start(alignment=bad_map, policy="random", layout=layout)
    return migration


@pytest.mark.parametrize("layout", ["columns", "side"])
def test_rows_are_counted_once_in_a_run(postgres: str, counted: list[int], layout: Layout) -> None:
    """At its end, when all is new; neither refits nor what serves best are worth a count."""
    migration = begun(postgres, layout)
    counted.clear()
    [*migration.backfill(rows=300, **QUICK)]
    assert not counted
    last = [*migration.backfill(**QUICK)][-1]
    assert (last.new, last.about) == (ROWS, False)
    assert len(counted) == 1
    events = Counter(event["event"] for event in migration.history())
    assert events["refitted"] >= 2
    assert events["refitted"] + events["refit thrown away"] >= 5
    store = migration._job.store
    assert len(store.names("alignment/")) == 1
    store.close()


@pytest.mark.parametrize("layout", ["columns", "side"])
def test_a_map_goes_with_its_last_row(postgres: str, counted: list[int], layout: Layout) -> None:
    """One that a single row still has is kept, and no row is counted to know it."""
    migration = begun(postgres, layout)
    job = migration._job
    present = job.state.alignment
    job.store.save("alignment/before", b"of the map before", 0)
    change_state(job.store, lambda latest: replace(latest, stale=("before",)))
    table = "items" if layout == "columns" else "items_ff_v"
    change = f"UPDATE {table} SET ff_v_model = %s WHERE id = 7"
    with psycopg.connect(postgres, autocommit=True) as owner:
        assert owner.execute(change, ["before"]).rowcount == 1
        counted.clear()
        assert forget_unused(job).stale == ("before",)
        assert len(job.store.names("alignment/")) == 2
        owner.execute(change, [present])
    assert forget_unused(job).stale == ()
    assert job.store.names("alignment/") == [f"alignment/{present}"]
    assert not counted
    job.store.close()
