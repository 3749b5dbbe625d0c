"""`python -m benchmarks.shared.crash_worker URL ENDING`: a migration that announces its steps.

Each step is announced on stdout before it begins (`+name`) and after it has ended (`-name`), so
that the harness can kill this process in the middle of one. With FASTFILL_HARNESS_NO_CAS=1 the
compare-and-set is taken out of the adapters, to see that the harness notices.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from benchmarks.shared.crash_model import new_model
from fastfill.errors import MigrationError
from fastfill.gallery import Gallery, Store, load_state
from fastfill.migrate import Migration
from fastfill.migrate.run import map_trial
from fastfill.wiring import open_store

PAIRS, BATCH, LEASE = 25, 20, 1.0  # so few pairs that refits are better for certain
map_trial.LEAST_UNSEEN = 30  # and so few rows
BLOCK, REFIT = 64, 0.1  # rows that the store likes at once: re-aligning takes several writes
SLOW = float(os.environ.get("FASTFILL_HARNESS_SLOW", "0.002"))  # seconds for an item


class Announced:
    """A store whose steps are announced, under the name of the phase where one is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.phase = ""

    def describe(self) -> Any:
        """As it is, but for smaller blocks."""
        return replace(self._store.describe(), batch=BLOCK)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        step = _STEPS.get(name)
        if step is None or not callable(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            here = "re-aligning" if _of_a_refit(name, arguments) else step
            with announced(step if name == "expand" else self.phase or here):
                return value(*arguments, **options)

        return call


def _of_a_refit(name: str, arguments: Any) -> bool:
    """Is this call a map that is kept, or rows of an earlier map that are aligned again?"""
    if name == "save":
        return str(arguments[0]).startswith(("alignment/", "learned-from/", "state"))
    if name != "write" or arguments[2].generation != "aligned":
        return False
    rows, marks = arguments[0], arguments[2]
    pairs = zip(rows.generation, rows.model, strict=True)
    return any(g == "aligned" and m != marks.model for g, m in pairs)


_STEPS = {
    "expand": "adding columns",
    "pick": "claiming",
    "save": "claiming",
    "write": "writing",
    "contract": "rolling back",
    "remove": "completing",
    "optimize": "completing",
}


@contextmanager
def announced(name: str) -> Iterator[None]:
    """Tell the harness where we are."""
    os.write(1, f"+{name}\n".encode())
    yield
    os.write(1, f"-{name}\n".encode())


def take_out_compare_and_set() -> None:
    """What the adapters would be without it."""
    from psycopg.sql import SQL

    from fastfill.adapters.chroma import writes as chroma_writes
    from fastfill.adapters.lance import compare_and_set
    from fastfill.adapters.postgres import side_table, sql
    from fastfill.adapters.qdrant import collection, ledger, writes
    from fastfill.adapters.redis import scripts
    from fastfill.adapters.sqlite import sql as sqlite_sql

    # What was read is trusted for ever, and written wherever the row may lie now.
    trusting: Any = compare_and_set.LanceMerge
    trusting._since = property(lambda _: -1, lambda *_: None)
    trusting._unmoved = lambda _: "true"
    by_key_alone: Any = sql
    by_key_alone.same_row = lambda _, same_key: same_key
    beside: Any = side_table
    beside.same_row, beside.same_content = by_key_alone.same_row, lambda _: SQL("true")
    blindly: Any = ledger.QdrantLedger
    blindly.put = lambda self, points, _: self.give(points)
    unscored: Any = collection.QdrantCollection
    unscored.can_score = lambda _: False
    looking: Any = writes
    looking.unchanged_content = lambda rows, now: [i for i, k in enumerate(rows.ids) if k in now]
    uncompared: Any = scripts
    uncompared.SAME_ROW = "local function same(key) return redis.call('EXISTS', key) == 1 end"
    by_id_alone: Any = sqlite_sql
    by_id_alone.same_row = lambda context, slots: f"{context.id} = {slots['id']}"
    overwriting: Any = chroma_writes
    overwriting.unchanged = lambda _, records, __, rows: [
        i for i, key in enumerate(rows.ids) if key in records
    ]


def live(url: str, ending: str) -> None:
    """From wherever it stands: start, backfill, then `complete`, `rollback` or no more."""
    store = Announced(open_store(url))

    def encode(texts: Any) -> Any:
        with announced(store.phase or "encoding"):
            time.sleep(SLOW * len(texts))
            return new_model(texts)

    gallery = Gallery(store, input="text", distance="l2")
    migration = Migration(gallery, encode, encoder_name="toy")
    phase = getattr(load_state(store), "phase", None)
    if phase in (None, "starting", "started"):
        store.phase = "pairs"
        if phase != "started":
            migration.pairs(PAIRS)
        store.phase = "aligning"
        trigger = os.environ.get("FASTFILL_HARNESS_TRIGGER") == "1"
        migration.start(PAIRS, method="ridge", allow_trigger=trigger)
        store.phase = ""
        rows = 100 if ending == "rollback" else None
        limits: dict[str, Any] = {"batch": BATCH, "lease": LEASE, "rows": rows, "refit": REFIT}
        for _ in migration.backfill(throttle=False, **limits):
            pass
    if ending == "complete" and phase != "complete":
        store.phase = "completing"
        with announced("completing"):
            try:
                migration.complete()
            except MigrationError as refusal:
                # The application has written in the meantime: there is more to backfill.
                if "not new" not in str(refusal):
                    raise
                live(url, ending)
    if ending == "rollback":
        store.phase = "rolling back"
        with announced("rolling back"):
            migration.rollback()


if __name__ == "__main__":
    if os.environ.get("FASTFILL_HARNESS_NO_CAS"):
        take_out_compare_and_set()
    live(sys.argv[1], sys.argv[2])
