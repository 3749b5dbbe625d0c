"""URL → store, name → encoder: the only door to the adapters."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from fastfill.errors import InputError
from fastfill.gallery import Gallery, Store
from fastfill.gallery.queries import Encode

QDRANT = ("qdrant", "qdrant+https", "qdrant+local")
CHROMA = ("chroma", "chroma+http", "chroma+https")
REDIS = ("redis", "rediss")
SCHEMES = ("lance", "postgresql", "postgres", "sqlite", *QDRANT, *CHROMA, *REDIS)
TARGETS = {  # what a URL names after its #, where that is no column of a table
    **dict.fromkeys(QDRANT, "COLLECTION[.VECTOR]"),
    **dict.fromkeys(CHROMA, "COLLECTION"),
    **dict.fromkeys(REDIS, "INDEX.FIELD"),
}
ENCODERS = {  # how a name begins: the module of `fastfill.adapters.encoders`
    "sentence-transformers:": "sentence_transformers",
    "http://": "http",
    "https://": "http",
}


def is_url(text: str) -> bool:
    """Does this name a store, rather than a file?

    >>> is_url("lance://./data#photos.vector"), is_url("old.npy")
    (True, False)
    """
    return text.partition("://")[0] in SCHEMES and "://" in text


def open_store(url: str) -> Store:
    """The store at `lance://PATH#TABLE.COLUMN`, `postgresql://…#[SCHEMA.]TABLE.COLUMN`,
    `qdrant://HOST:PORT#COLLECTION[.VECTOR]`, `qdrant+local://PATH#COLLECTION[.VECTOR]`,
    `chroma://PATH#COLLECTION`, `chroma+http://HOST:PORT#COLLECTION`,
    `redis://HOST:PORT[/DB]#INDEX.FIELD` or `sqlite://PATH#TABLE.COLUMN`."""
    scheme, separator, rest = url.partition("://")
    place, hash_sign, target = rest.rpartition("#")
    if not separator or scheme not in SCHEMES:
        raise InputError(
            f"{url!r} is not the URL of a store: use lance://PATH#TABLE.COLUMN, "
            "postgresql://HOST/DATABASE#TABLE.COLUMN, qdrant://HOST:PORT#COLLECTION[.VECTOR], "
            "chroma://PATH#COLLECTION or another one that the reference of stores lists."
        )
    wanted = TARGETS.get(scheme, "TABLE.COLUMN")
    if not hash_sign or not target:
        raise InputError(f"{url!r} does not name what to migrate: add #{wanted} at its end.")
    parts = target.split(".")
    if scheme in CHROMA:
        return _chroma(scheme, place, target)
    if scheme in REDIS:
        return _redis(scheme, place, *_named(target.rpartition(".")[::2], url, wanted, 2))
    if scheme in QDRANT:
        return _qdrant(scheme, place, _named(parts, url, wanted, 1, 2))
    if scheme == "lance":
        from fastfill.adapters.lance import LanceStore

        table, column = _named(parts, url, wanted, 2)
        return LanceStore(place, table, column)
    if scheme == "sqlite":
        from fastfill.adapters.sqlite import SqliteStore

        return SqliteStore(place, *_named(parts, url, wanted, 2))
    from fastfill.adapters.postgres import PostgresStore

    *schema, table, column = _named(parts, url, wanted, 2, 3)
    return PostgresStore(f"postgresql://{place}", table, column, schema[0] if schema else None)


def _named(parts: Sequence[str], url: str, wanted: str, *lengths: int) -> list[str]:
    if len(parts) not in lengths or not all(parts):
        raise InputError(f"{url!r}: after the # comes {wanted}.")
    return list(parts)


def _qdrant(scheme: str, place: str, target: list[str]) -> Store:
    from fastfill.adapters.qdrant import QdrantStore, open_folder, open_server

    if scheme == "qdrant+local":
        connection = open_folder(place)
    else:
        connection = open_server(place, https=scheme == "qdrant+https")
    return QdrantStore(connection, *target)


def _chroma(scheme: str, place: str, collection: str) -> Store:
    from fastfill.adapters.chroma import ChromaStore, open_folder, open_server

    if scheme == "chroma":
        connection = open_folder(place)
    else:
        connection = open_server(place, https=scheme == "chroma+https")
    return ChromaStore(connection, collection)


def _redis(scheme: str, place: str, index: str, field: str) -> Store:
    from fastfill.adapters.redis import RedisStore, open_server

    return RedisStore(open_server(place, tls=scheme == "rediss"), index, field)


def connect(
    url: str,
    *,
    id: str | None = None,
    input: str | None = None,
    distance: str | None = None,
    where: Mapping[str, Any] | None = None,
    query_old: Encode | None = None,
    query_new: Encode | None = None,
) -> Gallery:
    """The gallery at a URL; the columns are asked for once, then the store knows them.

    `where` limits it to the rows with these values in these columns: `{"tenant": 7}`.
    With `query_old` and `query_new`, how each model embeds queries, it is searched by items.
    """
    return Gallery(
        open_store(url),
        id=id,
        input=input,
        distance=distance,
        where=where,
        query_old=query_old,
        query_new=query_new,
    )


def open_encoder(spec: str) -> Encode:
    """The encoder of a name: `module:function`, `sentence-transformers:NAME_OR_PATH?OPTIONS` or
    `http(s)://HOST/v1/embeddings#MODEL?OPTIONS`. It may have `encode_query` for queries."""
    modules = (module for prefix, module in ENCODERS.items() if spec.startswith(prefix))
    module = next(modules, "function")
    if ":" not in spec:
        raise InputError(
            f"{spec!r} is not an encoder: use module:function, sentence-transformers:NAME or the "
            "https:// address of an embeddings service."
        )
    opened = importlib.import_module(f"fastfill.adapters.encoders.{module}").open_encoder(spec)
    encode: Encode = opened
    return encode
