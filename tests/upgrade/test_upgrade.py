"""Migrations that FastFill 0.1.0 left half-done go on with this version, and end right.

`make_half_done.py` has made them: 150 of 305 rows are new, a refit has begun to align rows again,
items are quarantined, quality was measured, others have written, the work is paused.
"""

from __future__ import annotations

import re
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "migrate"))
from migration_world import encode, new_vector, serving  # noqa: E402

from fastfill.gallery import Gallery, Store  # noqa: E402
from fastfill.migrate import Migration  # noqa: E402

POISON = re.compile("000[0-9]7 text")


def picky(texts: Any) -> Any:
    """The toy model, which cannot read some items."""
    if any(map(POISON.match, texts)):
        raise ValueError("cannot read")
    return encode(texts)


@pytest.fixture
def lance(tmp_path: Path) -> Store:
    """The LanceDB table."""
    pytest.importorskip("lancedb", reason="LanceDB is not installed")
    from fastfill.adapters.lance import LanceStore

    with zipfile.ZipFile(HERE / "lance.zip") as archive:
        archive.extractall(tmp_path)
    return LanceStore(str(tmp_path), "photos", "vector")


@pytest.fixture
def postgres_store(postgres: str) -> Iterator[Store]:
    """The PostgreSQL table."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    from fastfill.adapters.postgres import PostgresStore

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute((HERE / "postgres.sql").read_text())
    store = PostgresStore(postgres, "photos", "vector")
    yield store
    store.close()


@pytest.fixture(params=["lance", "postgres_store"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each of the two."""
    opened: Store = request.getfixturevalue(request.param)
    return opened


def reopened(store: Store) -> Migration:
    """The migration as its operator opens it again."""
    return Migration(Gallery(store), picky, encoder_name="toy_model:picky")


def test_status_tells_what_the_version_before_left(store: Store) -> None:
    """Counts, the pause, the rate, the quarantine, the forecast and the audit trail are read."""
    migration = reopened(store)
    status = migration.status()
    assert (status.phase, status.paused, status.rate) == ("started", True, 100_000)
    counts = status.progress
    assert (counts.total, counts.new, counts.stale, counts.unmarked) == (305, 150, 134, 5)
    assert status.quarantined
    assert all("cannot read" in error for error in status.quarantined.values())
    assert status.forecast is not None
    assert status.forecast.measured
    assert status.forecast.label == "album"
    assert [event["event"] for event in migration.history()][:3] == ["opened", "aligned", "started"]


def test_the_work_goes_on_and_ends_right(store: Store) -> None:
    """Stale rows are aligned again, others' writes are found, every row ends up new and right."""
    migration = reopened(store)
    migration.resume()
    last = [*migration.backfill(throttle=False, refit=0.1, batch=40, label="album")][-1]
    assert last.quality is not None
    rows = serving(store)
    assert len(rows) == 305
    left = {key for key, (text, _, _) in rows.items() if POISON.match(str(text))}
    assert {str(key) for key in migration.status().quarantined} == {str(key) for key in left}
    for key, (text, generation, vector) in rows.items():
        if key not in left:
            assert generation == "new", key
            np.testing.assert_allclose(vector, new_vector(text), rtol=1e-5, atol=1e-6)
    checked = migration.verify()
    assert not checked.wrong_new
    assert not checked.wrong_aligned
    migration.complete(partial=True)
    assert migration.status().phase == "complete"


def test_it_can_be_rolled_back(store: Store) -> None:
    """Only what its owner has made is left."""
    migration = reopened(store)
    migration.rollback()
    assert set(store.describe().columns) == {"id", "text", "album", "vector"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aligned = migration.start(pairs=60, method="ridge").aligned
    assert aligned == 305 - migration.status().progress.new > 200
