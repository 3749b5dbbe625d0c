"""What the Python blocks of the docs take for granted: files, galleries, and the reader's names."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastfill as ff

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
# Where a server would be needed, a file of a store that can do the same.
STAND_INS = {"postgresql://localhost/app#": "sqlite://./app.db#"}

ROWS, DIM = 200, 12
WORDS = ["red", "blue", "grey", "green", "boat", "tree", "house", "cat", "dog", "old", "bicycle"]
Names = dict[str, Any]


# --- pages ---------------------------------------------------------------------------------------


def python_blocks(page: Path) -> list[str]:
    """The blocks of a page that are no doctests, each on the lines where it stands."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in BLOCK.finditer(text) if ">>>" not in match[1]]
    return ["\n" * (text.count("\n", 0, match.start(1))) + match[1] for match in found]


def begins_a_migration(page: Path) -> bool:
    """Does it call `start` itself?"""
    return any(".start(" in block for block in python_blocks(page))


def follows_a_migration(page: Path) -> bool:
    """Does it use one that is under way?"""
    uses = any(re.search(r"\b(gallery|migration)\.", block) for block in python_blocks(page))
    return uses and not begins_a_migration(page)


def run_page(page: Path, names: Names) -> None:
    """Run its blocks from top to bottom; skip the test where a package is not installed."""
    for block in python_blocks(page):
        for url, instead in STAND_INS.items():
            block = block.replace(url, instead)
        try:
            exec(compile(block, str(page), "exec"), names)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("fastfill"):
                raise
            pytest.skip(f"{error.name} is not installed")


# --- models and files ----------------------------------------------------------------------------


def embed(texts: Sequence[Any], model: str) -> Any:
    """The sum of the vectors of the words."""

    def of(word: str) -> Any:
        return np.random.default_rng(zlib.crc32(f"{model} {word}".encode())).standard_normal(DIM)

    return np.stack([sum(map(of, str(text).split())) for text in texts]).astype(np.float32)


def encode_old(texts: Sequence[Any]) -> Any:
    """The old model."""
    return embed(texts, "old")


def encode_new(texts: Sequence[Any]) -> Any:
    """The new model."""
    return embed(texts, "new")


def cut(texts: Sequence[str], seed: int) -> list[str]:
    """Each text without one of its words."""
    return [
        " ".join(word for n, word in enumerate(text.split()) if n != seed % 4) for text in texts
    ]


def captions() -> list[str]:
    """Of photos, documents and items of collections: the same texts."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, size=4, replace=False)) for _ in range(ROWS)]


def make_files(folder: Path) -> None:
    """Vectors, labels, a map and queries with clicks."""
    texts = captions()
    for prefix in ("", "gallery-"):
        np.save(folder / f"{prefix}old.npy", encode_old(texts))
        np.save(folder / f"{prefix}new.npy", encode_new(texts))
    pairs = ff.read_pairs(folder / "old.npy", folder / "new.npy")
    alignment = ff.Alignment.fit(pairs, method="ridge")
    alignment.save(folder / "photos.safetensors")
    if find_spec("onnx"):
        from fastfill.align.onnx_export import write_onnx

        write_onnx(alignment, folder / "photos.onnx")
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate(texts[:40])]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "clicks.tsv").write_text("\n".join(f"q{n}\t{n}\t1" for n in range(40)))


# --- galleries -----------------------------------------------------------------------------------


def make_lance(folder: Path) -> None:
    """Photos and documents in LanceDB."""
    import lancedb
    import pyarrow as pa
    from lancedb.index import IvfFlat

    texts = captions()
    flat = pa.FixedSizeListArray.from_arrays(pa.array(encode_old(texts).ravel()), DIM)
    albums = [n % 8 for n in range(ROWS)]
    photos = {"id": range(ROWS), "caption": texts, "album": albums, "vector": flat}
    documents = {"id": range(ROWS), "text": texts, "title": texts, "vector": flat}
    database = lancedb.connect(folder / "data")
    for name, columns in {"photos": photos, "documents": documents}.items():
        table = database.create_table(name, pa.table(columns))
        table.create_index("vector", config=IvfFlat(distance_type="l2", num_partitions=1))


def make_sqlite(folder: Path) -> None:
    """Two collections in one table, as LangChain keeps them in PostgreSQL."""
    rows = [
        (n, text, "wiki" if n % 2 else "other", encode_old([text]).tobytes())
        for n, text in enumerate(captions())
    ]
    connection = sqlite3.connect(folder / "app.db")
    with connection:
        connection.execute(
            "CREATE TABLE langchain_pg_embedding "
            "(id INTEGER PRIMARY KEY, document TEXT, collection_id TEXT, embedding BLOB)"
        )
        connection.executemany("INSERT INTO langchain_pg_embedding VALUES (?, ?, ?, ?)", rows)
    connection.close()


def start_photos() -> ff.Migration:
    """A migration of the photos that is under way; both models serve."""
    gallery = ff.connect("lance://./data#photos.vector", input="caption")
    migration = ff.Migration(gallery, encode_new)
    migration.start(pairs=80, method="ridge", serving="both")
    return migration


def names_of_the_reader() -> Names:
    """What pages use without having made it."""
    texts = captions()
    labels = np.array([WORDS.index(text.split()[0]) for text in texts])
    old, new = ff.Features(encode_old(texts)), ff.Features(encode_new(texts), labels=labels)
    return {
        "ff": ff,
        "encode": encode_new, "encode_new": encode_new, "encode_old": encode_old,
        "text": "red bicycle", "old": old.vectors, "vector": old.vectors[0],
        "pairs": ff.Pairs(old, new), "old_vectors_of_others": old.vectors, "their_labels": labels,
        "old_views": np.stack([old.vectors, old.vectors + 0.01]),
        "new_views": np.stack([new.vectors, new.vectors + 0.01]),
        "photos": texts, "old_model": encode_old, "new_model": encode_new, "cut": cut,
        "collection_id": "wiki",
    }  # fmt: skip
