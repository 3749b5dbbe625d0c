"""Upgrades of what an unchanged LangChain reads and writes on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.wiring import connect

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
langchain = pytest.importorskip("langchain_postgres", reason="langchain-postgres is missing")
sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")

OLD_DIM, NEW_DIM, ROWS = 6, 5, 100
KEPT = "old 0010"  # the first id that a writer touches
LEFT = 60  # of the texts that the writer deletes from
ROUNDS = 6  # in which the writer inserts, changes and deletes while the backfill runs
MIX = np.random.default_rng(3).standard_normal((OLD_DIM, NEW_DIM)).astype(np.float32)


def encode_old(texts: Any) -> Any:
    """The old model: a vector that the number in the text decides."""
    seeds = [int(text.split()[-1]) for text in texts]
    return np.stack([np.random.default_rng(n).standard_normal(OLD_DIM) for n in seeds])


def encode(texts: Any) -> Any:
    """A new model of other dimensions, linear in the old one."""
    return np.asarray(encode_old(texts) @ MIX, dtype=np.float32)


class ModelOfLangchain:
    """An embedding model as LangChain wants it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Items."""
        return [list(map(float, vector)) for vector in self._model(texts)]

    def embed_query(self, text: str) -> list[float]:
        """A query."""
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Items."""
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """A query."""
        return self.embed_query(text)


def first(store: Any, text: str) -> str:
    """What an application shows for a query."""
    return str(store.similarity_search(text, k=1)[0].page_content)


class Writer(threading.Thread):
    """An application that inserts, changes and deletes with its own client, round after round."""

    def __init__(self, store: Any, texts: dict[str, str]) -> None:
        super().__init__()
        self.texts = texts  # of each id, as they are after the last round
        self.rounds, self.newest = 0, ""
        self._store = store
        self._turn, self._ended = threading.Condition(), threading.Event()

    def run(self) -> None:
        """Until told to end."""
        while not self._ended.is_set():
            self._write(self.rounds)
            with self._turn:
                self.rounds += 1
                self._turn.notify_all()
            self._ended.wait(0.05)

    def _write(self, n: int) -> None:
        old = sorted(row for row in self.texts if row.startswith("old") and row >= KEPT)
        changed, gone = old[n % 5], [f"brief {n - 1}", *old[LEFT:][:1]]
        inserted = {f"new {n}": f"wiki {1_000 + n}", f"brief {n}": f"wiki {3_000 + n}"}
        given = {changed: f"wiki {2_000 + n}", **inserted}
        self._store.add_texts([*given.values()], ids=[*given])
        self._store.delete(gone)
        self.texts |= given
        for row in gone:
            self.texts.pop(row, None)
        self.newest = f"wiki {1_000 + n}"

    def one_more_round(self) -> None:
        """Wait until one has begun and ended."""
        with self._turn:
            wanted = self.rounds + 2
            assert self._turn.wait_for(lambda: self.rounds >= wanted or self._ended.is_set(), 60)

    def end(self) -> None:
        """After the present round."""
        self._ended.set()
        self.join()


class Collections:
    """Two collections of one table: `wiki`, which is upgraded, and its neighbour `mail`."""

    def __init__(self, url: str) -> None:
        self._engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        self._owner = psycopg.connect(url, autocommit=True)
        self.wiki, self.mail = (self.open(name, encode_old) for name in ("wiki", "mail"))
        self.texts = {f"old {n:04}": f"wiki {n}" for n in range(ROWS)}
        self.wiki.add_texts([*self.texts.values()], ids=[*self.texts])
        self.mail.add_texts([f"mail {n}" for n in range(ROWS)])
        query = "SELECT uuid FROM langchain_pg_collection WHERE name = 'wiki'"
        self._id = self._owner.execute(query).fetchone()[0]
        self.part = connect(
            f"{url}#langchain_pg_embedding.embedding",
            input="document",
            distance="cosine",
            where={"collection_id": self._id},
        )

    def open(self, name: str, model: Any) -> Any:
        """As an application does."""
        model = ModelOfLangchain(model)
        return langchain.PGVector(model, connection=self._engine, collection_name=name)

    def both_answer(self, wiki: Any) -> None:
        """Each collection finds its own text."""
        assert first(wiki, "wiki 5") == "wiki 5"
        assert first(self.mail, "mail 6") == "mail 6"

    def columns(self) -> list[str]:
        """Those of vectors."""
        query = "SELECT * FROM langchain_pg_embedding LIMIT 0"
        names = [column.name for column in self._owner.execute(query).description]
        return sorted(name for name in names if name.startswith("embedding"))

    def neighbour(self) -> Any:
        """Every value of its rows that is the owner's, and their versions."""
        query = "SELECT ctid, xmin, id, collection_id, embedding, document, cmetadata "
        query += "FROM langchain_pg_embedding WHERE collection_id <> %s ORDER BY id"
        return self._owner.execute(query, [self._id]).fetchall()

    def hold(self, texts: dict[str, str], column: str, model: Callable[[Any], Any]) -> None:
        """Exactly these rows are there, and a column has the model's vector of each text."""
        query = f"SELECT id, document, {column}::text FROM langchain_pg_embedding "
        rows = self._owner.execute(query + "WHERE collection_id = %s", [self._id]).fetchall()
        assert {row: text for row, text, _ in rows} == texts
        found = np.array([np.fromstring(vector[1:-1], sep=",") for _, _, vector in rows])
        np.testing.assert_allclose(found, model([text for _, text, _ in rows]), atol=1e-5)

    def close(self) -> None:
        """Leave the server alone."""
        self.part.store.close()
        self._owner.close()
        self._engine.dispose()


@pytest.fixture
def shared(postgres: str) -> Iterator[Collections]:
    """The table of a LangChain that knows nothing of what is to come."""
    opened = Collections(postgres)
    yield opened
    opened.close()


def test_a_collection_of_langchain(shared: Collections) -> None:
    """PGVector as it is searches at every step and writes all the time, and so does its neighbour.

    In the end each row has the vector of what was written last, and the neighbour was not written.
    """
    wiki, before = shared.wiki, shared.neighbour()
    shared.both_answer(wiki)
    writer = Writer(wiki, shared.texts)

    def encode_while_others_write(texts: Any) -> Any:
        writer.one_more_round()
        return encode(texts)

    migration = Migration(shared.part, encode_while_others_write)
    writer.start()
    try:
        migration.start(pairs=40, method="ridge", serving="aligned")
        during_start = writer.rounds
        shared.both_answer(wiki)
        for _ in migration.backfill(throttle=False, batch=10):
            shared.both_answer(wiki)
            assert first(wiki, newest := writer.newest) == newest
            if writer.rounds >= during_start + ROUNDS:
                writer.end()
    finally:
        writer.end()
    assert during_start >= 2
    assert writer.rounds >= during_start + ROUNDS
    assert [*migration.backfill(throttle=False)][-1].fraction == 1
    migration.complete()
    shared.both_answer(wiki)  # the old model goes on until the swap
    shared.hold(writer.texts, "embedding", encode_old)
    shared.hold(writer.texts, shared.part.store.columns.new, encode)

    migration.complete(swap=True)
    renewed = shared.open("wiki", encode)  # the model is all that changes
    shared.both_answer(renewed)
    assert first(renewed, writer.newest) == writer.newest
    shared.hold(writer.texts, "embedding", encode)
    migration.swap_back()
    shared.both_answer(wiki)
    shared.hold(writer.texts, "embedding", encode_old)
    migration.complete(swap=True)
    renewed.add_texts(["wiki 200"], ids=["late"])
    assert first(renewed, "wiki 200") == "wiki 200"
    migration.complete(drop_old=True)
    shared.both_answer(renewed)
    shared.hold(writer.texts | {"late": "wiki 200"}, "embedding", encode)
    assert shared.neighbour() == before
    assert shared.columns() == ["embedding"]
    store = shared.part.store
    whole = Gallery(store, input="document", distance="cosine")  # nothing is left of it
    assert whole.store.describe().rows == ROWS + len(writer.texts) + 1


def test_a_table_of_langchain(postgres: str) -> None:
    """PGVectorStore as it is searches and writes before, during and after a cut-over."""
    engine = langchain.PGEngine.from_connection_string(
        postgres.replace("postgresql://", "postgresql+psycopg://")
    )
    engine.init_vectorstore_table("docs", OLD_DIM)

    def open_table(model: Any) -> Any:
        return langchain.PGVectorStore.create_sync(engine, ModelOfLangchain(model), "docs")

    before = open_table(encode_old)
    before.add_texts([f"text {n}" for n in range(ROWS)])
    gallery = connect(
        f"{postgres}#docs.embedding", id="langchain_id", input="content", distance="cosine"
    )
    migration = Migration(gallery, encode)
    migration.start(pairs=20, method="ridge", serving="aligned")
    before.add_texts(["text 100"])
    assert first(before, "text 100") == "text 100"
    assert [*migration.backfill(throttle=False)][-1].new == ROWS + 1
    migration.complete(swap=True)
    after = open_table(encode)
    after.add_texts(["text 200"])
    assert [first(after, f"text {n}") for n in (5, 100, 200)] == ["text 5", "text 100", "text 200"]
    migration.complete(drop_old=True)
    assert first(open_table(encode), "text 200") == "text 200"
    gallery.store.close()
    engine._run_as_sync(engine.close())
