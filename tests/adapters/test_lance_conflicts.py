"""LanceDB with other writers at work: housekeeping gives way, and nothing raw reaches people."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.errors import StoreError
from fastfill.gallery import Gallery
from fastfill.migrate import Migration

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ROOT = Path(__file__).parents[2]
DIM = 8
CONFLICT = (
    "lance error: Retryable commit conflict for version 8: preempted by concurrent transaction"
)
TABLE = """
import sys, threading, time
import numpy as np
from fastfill.wiring import open_store
from fastfill.adapters.lance import connection
from fastfill.gallery import Columns
import lancedb, os, pyarrow as pa

path, ended, conflicts = sys.argv[1], threading.Event(), []
rows = {"id": [str(n) for n in range(4_000)], "text": [f"text {n}" for n in range(4_000)],
        "vector": pa.array(np.ones((4_000, 8)).tolist(), pa.list_(pa.float32(), 8))}
lancedb.connect(path).create_table("photos", pa.table(rows))
store = open_store(f"lance://{path}#photos.vector")
store.bind(Columns("id", "text", "vector"))
is_conflict = connection.is_conflict
connection.is_conflict = lambda error: is_conflict(error) and not conflicts.append(error)
connection.TIDY_TRIES = 1

def write():
    table = lancedb.connect(path).open_table("photos")
    for n in range(100_000):
        if ended.is_set():
            return
        table.checkout_latest()
        table.update(where=f"id = '{n % 4_000}'", values={"text": f"edited {n}"})

thread = threading.Thread(target=write)
thread.start()
deadline = time.monotonic() + 120
while not conflicts and time.monotonic() < deadline:
    store.optimize()
ended.set()
thread.join()
print(len(conflicts), os.environ.get("LANCEDB_LOG"))
"""


def test_compaction_gives_way_to_a_writer_without_a_word(tmp_path: Path) -> None:
    """It ends as if nothing had happened, prints nothing, and leaves the environment as it was."""
    environment = {k: v for k, v in os.environ.items() if k != "LANCEDB_LOG"}
    done = subprocess.run(
        [sys.executable, "-c", TABLE, str(tmp_path)],
        env={**environment, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stderr == ""
    conflicts, log = done.stdout.split()
    assert int(conflicts) > 0
    assert log == "None"


def test_what_the_user_wants_to_see_of_the_client_is_shown() -> None:
    """A level that is set in the environment stays, for the client and afterwards."""
    code = "import os, fastfill.adapters.lance; print(os.environ['LANCEDB_LOG'])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LANCEDB_LOG": "error"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "error"


# --- a migration among writers -------------------------------------------------------------------


def encode(texts: Any) -> Any:
    """A new model: a vector that tells the text."""
    numbers = np.array([float(str(text).split()[1]) for text in texts])
    return np.sin(numbers[:, None] * np.arange(1, DIM + 1) / 10 + 1).astype(np.float32)


def row(number: int, key: str) -> Any:
    """An item as its owner writes it."""
    vector = pa.array([np.cos(np.arange(DIM) * number).tolist()], pa.list_(pa.float32(), DIM))
    return pa.table({"id": [key], "text": [f"text {number}"], "vector": vector})


class Owner(threading.Thread):
    """Inserts, updates and deletes one item after another, and knows what it has written."""

    def __init__(self, path: Path, texts: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._table = lancedb.connect(path).open_table("photos")
        self.texts = dict(texts)

    def run(self) -> None:
        """Write some hundred times."""
        rng = random.Random(0)
        for number in range(1_000, 1_200):
            time.sleep(0.02)
            self._table.checkout_latest()
            key = rng.choice(list(self.texts))
            if number % 5 == 0:
                self._table.delete(f"id = '{key}'")
                del self.texts[key]
            elif number % 5 == 1:
                self._table.add(row(number, f"new {number}"))
                self.texts[f"new {number}"] = f"text {number}"
            else:
                self._table.update(where=f"id = '{key}'", values={"text": f"text {number}"})
                self.texts[key] = f"text {number}"


@contextmanager
def housekeeping(store: Any) -> Iterator[list[int]]:
    """Compact all the time, as several workers may; how often it was done, or left."""
    ended, rounds, errors = threading.Event(), [0], []

    def tidy() -> None:
        try:
            while not ended.is_set():
                store.optimize()
                rounds[0] += 1
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=tidy, daemon=True)
    thread.start()
    yield rounds
    ended.set()
    thread.join()
    assert not errors


def test_a_backfill_ends_among_writers_and_compactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers, an owner who writes, compaction all the time: every row ends as it should."""
    from fastfill.adapters.lance import connection
    from fastfill.wiring import open_store

    monkeypatch.setattr(connection, "TIDY_WAIT", 0.01)
    texts = {str(n): f"text {n}" for n in range(400)}
    rows = pa.concat_tables([row(n, str(n)) for n in range(400)])
    lancedb.connect(tmp_path).create_table("photos", rows)
    store = open_store(f"lance://{tmp_path}#photos.vector")
    migration = Migration(Gallery(store, input="text", distance="l2"), encode, encoder_name="e")
    migration.start(pairs=50, method="ridge")
    owner = Owner(tmp_path, texts)
    owner.start()
    with housekeeping(store) as rounds:
        for _ in migration.backfill(workers=2, batch=20, throttle=False, refit=None):
            time.sleep(0.01)
    owner.join()
    assert [*migration.backfill(throttle=False, refit=None)][-1].fraction == 1.0
    assert rounds[0] > 0
    (found,) = store.scan(None, batch=10_000, new=True)
    assert dict(zip(found.ids, found.inputs, strict=True)) == owner.texts
    assert set(found.generation) == {"new"}
    np.testing.assert_allclose(found.new, encode(found.inputs), rtol=1e-5)


# --- what is said when it does not work ----------------------------------------------------------


@pytest.fixture
def connected(tmp_path: Path) -> Any:
    """A connection to a folder."""
    from fastfill.adapters.lance.connection import LanceConnection
    from fastfill.gallery.base import StoreContext

    return LanceConnection(str(tmp_path), StoreContext("lance://here#photos.vector", "vector"))


def test_a_commit_that_never_gets_through_is_given_up_in_a_sentence(
    connected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the client says stays inside; the way out is told."""
    from fastfill.adapters.lance import connection

    monkeypatch.setattr(connection, "CONFLICTS_FOR", 0.1)
    tries = []

    def commit() -> None:
        tries.append(1)
        raise RuntimeError(CONFLICT)

    with pytest.raises(StoreError) as error:
        connected.commit(commit)
    assert len(tries) > 1
    assert "less busy" in str(error.value)
    assert "preempted" not in str(error.value)


def test_housekeeping_is_left_after_a_few_conflicts(
    connected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells of its waits, raises nothing for a conflict, and passes other errors on."""
    from fastfill.adapters.lance import connection

    told: list[str] = []
    connected._context.notify = lambda reason, seconds: told.append(reason)
    monkeypatch.setattr(connection, "TIDY_WAIT", 0.01)
    monkeypatch.setattr(connection, "TOLD", 0.0)

    def fail(words: str) -> None:
        raise RuntimeError(words)

    assert connected.tidy(lambda: fail(CONFLICT)) is False
    assert len(told) == connection.TIDY_TRIES - 1
    assert connected.tidy(lambda: None) is True
    with pytest.raises(StoreError, match=r"here#photos\.vector: the disk is full$"):
        connected.tidy(lambda: fail("lance error: the disk is full, /build/lance/io.rs:1:2"))
