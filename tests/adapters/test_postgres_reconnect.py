"""PostgreSQL goes away and comes back: connections are opened again, and nothing is done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from postgres_proxy import Cut, Proxy

from fastfill.errors import StoreError
from fastfill.gallery import Columns, Gallery, Marks
from fastfill.migrate import Migration
from fastfill.wiring import open_store

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

DIM, ROWS = 4, 300
COUNT_WRITES = """
CREATE TABLE writes (id int, generation text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO writes VALUES (new.id, new.ff_vector_generation); RETURN new; END $$;
CREATE TRIGGER note AFTER UPDATE OF vector_new ON photos FOR EACH ROW EXECUTE FUNCTION note();
"""


def encode(texts: Any) -> Any:
    """A new model: a vector that tells the text, in no time worth speaking of."""
    time.sleep(0.0005 * len(texts))
    numbers = np.array([float(text.split()[1]) for text in texts])
    return np.sin(numbers[:, None] * np.arange(1, DIM + 1) / 10 + 1).astype(np.float32)


@pytest.fixture
def uri(postgres: str) -> str:
    """A database with a table of 300 photos."""
    with psycopg.connect(postgres, autocommit=True) as owner:
        owner.execute(f"CREATE TABLE photos (id int PRIMARY KEY, text text, vector vector({DIM}))")
        rows = [(n, f"text {n}", str(np.cos(np.arange(DIM) * n).tolist())) for n in range(ROWS)]
        owner.cursor().executemany("INSERT INTO photos VALUES (%s, %s, %s::vector)", rows)
    return postgres


def connect(uri: str) -> Any:
    """The store, and what it tells of its waits."""
    store: Any = open_store(f"{uri}#photos.vector")
    store.told = []
    store.notify = lambda reason, seconds: store.told.append(reason)
    return store


def migrate(store: Any, uri: str, model: Any = encode) -> None:
    """Start and backfill, with every write of a new vector noted by the database itself."""
    migration = Migration(Gallery(store, input="text", distance="l2"), model, encoder_name="e")
    migration.pairs(50)
    with psycopg.connect(uri, autocommit=True, application_name="admin") as owner:
        owner.execute(COUNT_WRITES)
    migration.start(50, method="ridge", index=True)
    for _ in migration.backfill(batch=20, throttle=False, refit=None):
        pass


def check(uri: str) -> None:
    """Every row has the vector of its text; each was aligned once and made new once."""
    with psycopg.connect(uri, autocommit=True) as owner:
        rows = owner.execute("SELECT text, vector_new::real[], ff_vector_generation FROM photos")
        for text, vector, generation in rows.fetchall():
            assert generation == "new"
            np.testing.assert_allclose(vector, encode([text])[0], rtol=1e-5)
        written = owner.execute(
            "SELECT generation, count(*), count(DISTINCT id) FROM writes GROUP BY 1"
        )
        assert sorted(written.fetchall()) == [("aligned", 250, 250), ("new", 250, 250)]


# --- a whole migration ---------------------------------------------------------------------------


@contextmanager
def cutting(uri: str, pause: float) -> Iterator[list[int]]:
    """Again and again the administrator ends all connections to the database but its own."""
    ended, cut = threading.Event(), [0]

    def terminate() -> None:
        with psycopg.connect(uri, autocommit=True, application_name="admin") as admin:
            while not ended.wait(pause):
                cursor = admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                    "datname = current_database() AND application_name <> 'admin'"
                )
                cut[0] += len(cursor.fetchall())

    thread = threading.Thread(target=terminate)
    thread.start()
    yield cut
    ended.set()
    thread.join()


def test_connections_that_the_server_ends_are_opened_again(
    uri: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every few moments all connections are ended: every row is written once all the same."""
    from fastfill.adapters.postgres import connection

    monkeypatch.setattr(connection, "FIRST_WAIT", 0.01)
    store = connect(uri)
    with cutting(uri, 0.15) as cut:
        migrate(store, uri)
    store.close()
    assert cut[0] > 2
    assert any("lost" in reason for reason in store.told)
    assert capfd.readouterr().err == ""
    check(uri)


def test_a_server_that_is_restarted_is_waited_for(uri: str, postgres_process: Any) -> None:
    """The whole server stops for a while during start and during backfill: both wait, and end."""
    store = connect(uri)
    calls, timers = [], []

    def encode_and_restart(texts: Any) -> Any:
        calls.append(len(texts))
        if len(calls) in (2, 6):
            postgres_process.stop()
            timers.append(threading.Timer(0.7, postgres_process.start))
            timers[-1].start()
        return encode(texts)

    migrate(store, uri, encode_and_restart)
    for timer in timers:
        timer.join()
    store.close()
    assert len(timers) == 2
    assert any("cannot be reached" in reason for reason in store.told)
    check(uri)


# --- giving up -----------------------------------------------------------------------------------


@contextmanager
def stopped(server: Any) -> Iterator[None]:
    """While this lasts there is no server."""
    server.stop()
    try:
        yield
    finally:
        server.start()


def test_a_server_that_stays_away_is_given_up(uri: str, postgres_process: Any) -> None:
    """After `reconnect_for` seconds one sentence says so; when it is back the store works on."""
    store = connect(uri)
    store.bind(Columns("id", "text", "vector"))
    store.reconnect_for = 0.5
    with stopped(postgres_process):
        with pytest.raises(
            StoreError, match=r"could not be opened again for 0 s|again for 1 s"
        ) as error:
            store.counts()
        assert "run the command again" in str(error.value)
        assert "\n" not in str(error.value)
        waits = len(store.told)
        with pytest.raises(StoreError):
            store.counts()  # the time is over: it is tried once, and not waited for again
        assert len(store.told) == waits > 0
    assert store.counts() == {(None, None): ROWS}
    store.close()


def test_a_search_gives_up_sooner(
    uri: str, postgres_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for an answer is told after a few seconds, and finds again afterwards."""
    from fastfill.adapters.postgres import context

    monkeypatch.setattr(context, "SEARCH_FOR", 0.2)
    store = connect(uri)
    store.bind(Columns("id", "text", "vector"))
    query = np.cos(np.arange(DIM) * 7)
    assert store.search(query, 1, side="old", distance="l2").ids.tolist() == [7]
    with stopped(postgres_process), pytest.raises(StoreError, match="could not be opened again"):
        store.search(query, 1, side="old", distance="l2")
    assert store.search(query, 1, side="old", distance="l2").ids.tolist() == [7]
    store.close()


def test_an_operation_that_ends_its_connection_each_time_is_given_up(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that the server dies of is not repeated for ever."""
    from fastfill.adapters.postgres import connection

    monkeypatch.setattr(connection, "LOSSES", 3)
    monkeypatch.setattr(connection, "FIRST_WAIT", 0.01)
    store = connect(uri)
    with pytest.raises(StoreError, match="lost 3 times in the middle of the same operation"):
        store._context.work.rows_of("SELECT pg_terminate_backend(pg_backend_pid())")
    store.close()


def test_a_wrong_address_is_not_waited_for() -> None:
    """A server that was never reached is reported at once."""
    with pytest.raises(StoreError, match="PostgreSQL cannot be reached"):
        open_store("postgresql://postgres@127.0.0.1:1/nothing#photos.vector")


def test_a_notice_may_end_the_wait(uri: str, postgres_process: Any) -> None:
    """Whoever is told of a wait can stop it by an exception."""

    class StoppedError(Exception):
        """Enough."""

    def stop(reason: str, seconds: float) -> None:
        raise StoppedError

    store = connect(uri)
    store.bind(Columns("id", "text", "vector"))
    store.notify = stop
    with stopped(postgres_process), pytest.raises(StoppedError):
        store.counts()
    store.close()


# --- the answer to COMMIT is lost ----------------------------------------------------------------


@pytest.fixture
def proxy(uri: str) -> Iterator[Proxy]:
    """A way to the server that can be cut."""
    opened = Proxy(uri)
    yield opened
    opened.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_batch_is_written_once_and_counted_once(uri: str, proxy: Proxy, cut: Cut) -> None:
    """Whether the server has committed or not: the batch is in the table once, and all of it."""
    store = connect(proxy.uri)
    store.bind(Columns("id", "text", "vector"))
    store.expand(DIM)
    with psycopg.connect(uri, autocommit=True) as owner:
        owner.execute(COUNT_WRITES)
    rows = store.read(list(range(40)))
    proxy.cut = cut
    assert store.write(rows, encode(rows.inputs), Marks("new", "model")) == 40
    assert proxy.cuts == 1
    assert store.counts() == {("new", "model"): 40, (None, None): ROWS - 40}
    with psycopg.connect(uri) as owner:
        written = owner.execute("SELECT count(*), count(DISTINCT id) FROM writes").fetchone()
    assert written == (40, 40)
    store.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_document_is_saved_once(proxy: Proxy, cut: Cut) -> None:
    """Its writer is told that it was written, and its version has moved on by one."""
    store = connect(proxy.uri)
    assert store.save("note", b"one", 0)
    proxy.cut = cut
    assert store.save("note", b"two", 1)
    document = store.load("note")
    assert (document.value, document.version) == (b"two", 2)
    proxy.cut = cut
    assert not store.save("note", b"late", 1)
    proxy.cut = ""
    store.remove(["note"])
    assert store.save("note", b"new", 0)
    store.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_an_item_that_was_written_meanwhile_is_not_overwritten(
    uri: str, proxy: Proxy, cut: Cut
) -> None:
    """An upsert that was committed is not done again on top of what others have written since."""
    store = connect(proxy.uri)
    store.bind(Columns("id", "text", "vector"))

    def edit(reason: str, seconds: float) -> None:
        with psycopg.connect(uri, autocommit=True) as owner, suppress(psycopg.Error):
            owner.execute("UPDATE photos SET text = text || ' by another' WHERE id = 3")

    store.notify = edit
    proxy.cut = cut
    store.upsert({"id": [3], "text": ["ours"]})
    (text,) = store.read([3]).inputs
    assert text == ("ours by another" if cut == "after" else "ours")
    store.close()
