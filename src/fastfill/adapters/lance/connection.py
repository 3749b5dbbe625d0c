"""The way to a LanceDB folder: its tables, commits that are tried again, errors as sentences."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from fastfill.adapters.lance.deadline import COMMIT, answered_within, set_limits
from fastfill.errors import StoreError, some
from fastfill.gallery.base import StoreContext, backoff

LOG = "LANCEDB_LOG"  # the level of what the client prints, which it reads once, at its import


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the client from printing, unless the user has said how much it should."""
    chosen = os.environ.get(LOG)
    if chosen is None:
        os.environ[LOG] = "off"
    try:
        yield
    finally:
        if chosen is None:
            del os.environ[LOG]


with _quiet():
    import lancedb
    from lancedb.background_loop import LOOP

set_limits(LOOP)

T = TypeVar("T")
CONFLICTS_FOR = 60.0  # seconds of commit conflicts with other writers before giving up
FIRST_WAIT, LONGEST_WAIT = 0.02, 1.0  # seconds between two tries of a commit
TOLD = 0.25  # seconds of a wait that is worth a notice
TIDY_TRIES = 3  # of housekeeping that others are in the way of: each leaves files behind
TIDY_WAIT = 0.5  # seconds, and ever longer
CLIENT_ERRORS = (RuntimeError, OSError, ValueError)
CONFLICT = re.compile(
    r"(commit|write|transaction) conflict|concurrent (writer|write|transaction|commit|modif)", re.I
)


class LanceConnection:
    """One LanceDB folder. What the client says is turned into sentences for people."""

    def __init__(self, path: str, context: StoreContext) -> None:
        self._path, self._context = path, context
        if "://" not in path and not Path(path).is_dir():  # LanceDB would make it
            raise StoreError(f"{path} is no folder. Check the path of the URL.")
        # Every read sees the latest version: other processes write too.
        self.db: Any = lancedb.connect(path, read_consistency_interval=timedelta(0))
        self.turn = threading.RLock()  # one commit at a time: two of ours would only conflict

    def table_names(self) -> list[str]:
        """Every table of the folder."""
        names: list[str] = []
        token = None
        while True:
            page = self.db.list_tables(page_token=token)
            names += page.tables
            token = page.page_token
            if not token:
                return names

    def open(self, table: str) -> Any:
        """A table that always shows its latest version."""
        tables = self.table_names()
        if table not in tables:
            raise StoreError(
                f"{self._path} has no table '{table}', only {some(tables) or 'an empty folder'}."
            )
        return self.db.open_table(table)

    def open_pinned(self, table: str) -> Any:
        """A table that stays at its version until it is told to move on."""
        return lancedb.connect(self._path).open_table(table)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the client raises, as one sentence."""
        try:
            yield
        except CLIENT_ERRORS as error:
            raise StoreError(f"{self._context.name}: {sentence(error)}") from error

    def commit(self, operation: Callable[[], T]) -> T:
        """LanceDB retries most conflicts with other writers itself; the rest is retried here."""
        deadline = time.monotonic() + CONFLICTS_FOR
        for seconds in backoff(FIRST_WAIT, LONGEST_WAIT):
            with self.errors():
                try:
                    with answered_within(COMMIT):
                        return operation()
                except CLIENT_ERRORS as error:
                    if not is_conflict(error):
                        raise
                    conflict = error
            if time.monotonic() > deadline:
                break
            self._wait(seconds)
        raise StoreError(
            f"{self._context.name}: other writers were faster for {CONFLICTS_FOR:.0f} s, so this "
            "was not written. Run the command again when the table is less busy."
        ) from conflict

    def tidy(self, operation: Callable[[], object]) -> bool:
        """Do housekeeping, unless other writers are in its way time and again; was it done?

        After a conflict our own writes wait until it is done: they need not be in the way too.
        """
        waits = backoff(TIDY_WAIT, 8 * TIDY_WAIT)
        for attempt in range(TIDY_TRIES):
            if attempt:
                self._wait(next(waits))
            with self.errors(), self.turn if attempt else nullcontext():
                try:
                    operation()
                    return True
                except CLIENT_ERRORS as error:
                    if not is_conflict(error):
                        raise
        return False

    def _wait(self, seconds: float) -> None:
        if seconds >= TOLD:
            self._context.notify("other writers are committing to the LanceDB table", seconds)
        time.sleep(seconds)


def is_conflict(error: Exception) -> bool:
    """Has another writer committed first?

    >>> is_conflict(RuntimeError("Retryable commit conflict for version 8: … Please retry."))
    True
    """
    return CONFLICT.search(str(error)) is not None


def sentence(error: Exception) -> str:
    """What the client says, without the place in its source.

    >>> sentence(RuntimeError("lance error: Not found: a.lance, /build/lance/io.rs:12:34"))
    'Not found: a.lance'
    """
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return re.sub(r",? ?/\S+\.rs:\d+(:\d+)?.*$", "", line).removeprefix("lance error: ")
