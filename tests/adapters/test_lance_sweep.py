"""Sweeps of LanceDB by fragment find what a look at every row finds, and read what is new alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.gallery import Columns, Marks, Settled

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
pytest.importorskip("lance", reason="pylance is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from fastfill.adapters.lance import LanceStore  # noqa: E402
from fastfill.adapters.lance import fragment_sweep as module  # noqa: E402

DIM, ROWS = 3, 12
MAPS = ("map", "other map")


class World:
    """A table in the middle of a migration, its owner's handle and FastFill's store."""

    def __init__(self, path: Path, *, indexed: bool = False) -> None:
        self.numbers = iter(range(10_000))
        self.table = lancedb.connect(path).create_table("photos", self.rows(range(ROWS)))
        if indexed:  # then Lance rewrites columns in place
            self.table.create_index("id", config=lancedb.index.BTree())
        self.path = path
        self.store = LanceStore(str(path), "photos", "vector")
        self.store.bind(Columns("id", "text", "vector"))
        self.store.expand(DIM)
        assert self.store.save("state", b"-", 0)  # documents may be written
        self.settled = Settled("map", "model")

    def rows(self, ids: Any) -> Any:
        """Rows of the owner's, each time with other content."""
        ids = list(ids)
        vectors = [[float(next(self.numbers))] * DIM for _ in ids]
        return pa.table(
            {
                "id": [str(n) for n in ids],
                "text": [f"text {next(self.numbers)}" for _ in ids],
                "vector": pa.array(vectors, pa.list_(pa.float32(), DIM)),
            }
        )

    def full(self) -> set[str]:
        """The slow obvious version: every row is looked at."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module.FragmentSweeps, "begin", lambda s, _: module.Sweep(s._context))
            return self.sweep()

    def sweep(self) -> set[str]:
        """The ids that a sweep finds, each once."""
        blocks = self.store.unsettled(self.settled, batch=5, changed=True)
        ids = [str(key) for rows in blocks for key in rows.ids]
        assert len(ids) == len(set(ids))
        return set(ids)

    def settle(self, ids: set[str], generation: Any = "aligned") -> None:
        """What FastFill writes after a sweep."""
        tag = self.settled.models[generation]
        rows = self.store.read(sorted(ids))
        vectors = np.ones((len(rows), DIM), dtype=np.float32)
        assert self.store.write(rows, vectors, Marks(generation, tag)) == len(rows)

    def do(self, verb: str, which: int, many: int) -> None:
        """Something that happens to the table."""
        self.table.checkout_latest()
        have = sorted(self.table.search().select(["id"]).limit(10_000).to_arrow()["id"].to_pylist())
        some = [*dict.fromkeys(have[(which + 5 * n) % len(have)] for n in range(many))]
        if verb == "insert":
            new = self.rows(next(self.numbers) + 1_000 for _ in range(many))
            for name in self.table.schema.names:
                if name not in new.column_names:
                    new = new.append_column(
                        name, pa.nulls(len(new), self.table.schema.field(name).type)
                    )
            self.table.add(new)
        elif verb in ("text", "vector"):
            change = self.rows(some).select(["id", verb])
            self.table.merge_insert("id").when_matched_update_all().execute(change)
        elif verb == "update":
            self.table.update(where=f"id = '{some[0]}'", values={"text": f"u{next(self.numbers)}"})
        elif verb == "delete" and len(have) > 4:
            self.table.delete(f"id = '{some[0]}'")
        elif verb == "compact":
            self.table.optimize()
        elif verb == "settle":
            self.settle(set(sorted(self.full())[:many]))
        elif verb == "new":
            self.settle(set(some), "new")
        elif verb == "refit":
            self.settled = Settled(MAPS[which % 2], "model")
        elif verb == "again":  # the marks are dropped, and made again
            self.store.contract()
            self.store.expand(DIM)


VERBS = ["insert", "text", "vector", "update", "delete", "compact", "settle", "new", "refit"]
happenings = st.lists(
    st.tuples(st.sampled_from([*VERBS, "again", "sweep"]), st.integers(0, 20), st.integers(1, 6)),
    max_size=12,
)


@contextmanager
def world(indexed: bool = False) -> Iterator[World]:
    """In a folder of its own."""
    with TemporaryDirectory(prefix="sweep-", ignore_cleanup_errors=True) as folder:
        yield World(Path(folder), indexed=indexed)


@settings(max_examples=25, deadline=None)
@given(happenings=happenings, indexed=st.booleans())
def test_a_sweep_by_fragment_finds_what_a_full_one_finds(
    happenings: list[tuple[str, int, int]], indexed: bool
) -> None:
    """Whatever others and FastFill have written, compacted or deleted between sweeps."""
    with world(indexed) as here:
        here.settle(here.sweep())
        for verb, which, many in happenings:
            if verb == "sweep":
                assert here.sweep() == here.full()
            else:
                here.do(verb, which, many)
        assert here.sweep() == here.full()
        assert here.sweep() == here.full()


def read_by(here: World) -> int:
    """Rows of the fragments that the next sweep reads."""
    sweep = here.store._reads._sweeps.begin(here.settled)  # type: ignore[attr-defined]
    assert isinstance(sweep, module.FragmentSweep)
    return sum(fragment.count_rows() for fragment in sweep.fragments)


def test_nothing_is_read_where_nothing_was_written() -> None:
    """What one sweep has seen, of any process, the next leaves out; then it reads what is new."""
    with world() as here:
        assert read_by(here) == ROWS
        here.settle(here.sweep())
        assert here.sweep() == set()
        assert read_by(here) == 0
        again = LanceStore(str(here.path), "photos", "vector")
        again.bind(Columns("id", "text", "vector"))
        here.store = again
        assert read_by(here) == 0
        here.do("delete", 5, 1)
        assert read_by(here) == 0
        here.do("update", 3, 1)
        here.do("insert", 0, 2)
        assert read_by(here) == 3
        assert len(here.sweep()) == 3
        assert read_by(here) == 3  # nobody has settled them
        here.do("refit", 1, 1)
        assert read_by(here) == ROWS + 2 - 1  # other marks are right now


def test_without_the_package_of_fragments_every_row_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sweep needs nothing but LanceDB's client."""
    import sys

    with world() as here:
        monkeypatch.setitem(sys.modules, "lance", None)
        assert len(here.sweep()) == ROWS
        here.settle(here.sweep())
        here.do("update", 3, 1)
        assert len(here.sweep()) == 1
        assert here.store.names("clean") == []
