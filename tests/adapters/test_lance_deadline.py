"""Calls of LanceDB's client that never come back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.errors import StoreError

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ROWS = 40


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table of forty rows, whose calls have half a second."""
    from fastfill.adapters.lance import context as module

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(ROWS * 2, np.float32)), 2)
    table = pa.table({"id": range(ROWS), "vector": vectors})
    lancedb.connect(tmp_path).create_table("items", table)
    monkeypatch.setattr(module, "READ", 0.5)
    return module.LanceContext(str(tmp_path), "items", "vector")


def lose(context: Any, monkeypatch: pytest.MonkeyPatch, calls: int) -> list[int]:
    """Let so many queries never be answered; the list grows with every query."""
    table, asked = type(context.table._table), list[int]()
    answered = table._execute_query

    async def execute(self: Any, *given: Any, **named: Any) -> Any:
        asked.append(1)
        if len(asked) <= calls:
            await asyncio.Event().wait()
        return await answered(self, *given, **named)

    monkeypatch.setattr(table, "_execute_query", execute)
    return asked


def test_a_lost_query_is_asked_again(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan whose first query is never answered asks once more, and gives every row once."""
    asked = lose(context, monkeypatch, calls=1)
    found = [key for block in context.scan(None, ["id"], 7) for key in block["id"].to_pylist()]
    assert sorted(found) == list(range(ROWS))
    assert len(asked) == 2


def test_a_store_that_is_silent_is_said(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the second query is lost too, the error is one sentence with the way out."""
    lose(context, monkeypatch, calls=2)
    with pytest.raises(StoreError, match=r"has not answered for 0 s.*run the command again"):
        list(context.scan(None, ["id"], 7))


def test_a_lost_commit_is_said(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that never comes back ends with the same sentence, and is not done twice."""
    from lancedb.background_loop import LOOP

    from fastfill.adapters.lance import connection

    monkeypatch.setattr(connection, "COMMIT", 0.2)
    tried = []

    def write() -> None:
        tried.append(1)
        LOOP.run(asyncio.Event().wait())

    with pytest.raises(StoreError, match="has not answered"):
        context.connection.commit(write)
    assert len(tried) == 1


def test_calls_without_a_limit_wait(context: Any) -> None:
    """Outside of such a block calls have all the time that they need, as an index build does."""
    from lancedb.background_loop import LOOP

    assert LOOP.run(asyncio.sleep(0.7, "done")) == "done"


def test_the_shorter_limit_counts() -> None:
    """A block within another has no longer than that one, and a shorter one its own."""
    from fastfill.adapters.lance import deadline

    with deadline.answered_within(2.0):
        with deadline.answered_within(600.0):
            assert deadline._limit.get() == 2.0
        with deadline.answered_within(1.0):
            assert deadline._limit.get() == 1.0
        assert deadline._limit.get() == 2.0
    assert deadline._limit.get() is None
