"""Document search: the judged sets of $FASTFILL_DATA/text, and their vectors by each encoder."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.scenarios import data_folder
from benchmarks.shared.text_encoders import Encode, Kind, Vectors, load_encoder
from fastfill.features import JudgedSet, Texts, read_judged_set, replacing
from fastfill.metrics import Relevance

SETS = ("cranfield", "cacm", "nfcorpus", "cosqa", "wikiqa")
NOWHERE = 1e-3  # what stands in place of zeros, which have no direction
KEPT_AS = np.float16  # half the size, and as good for searching
BATCH = 512  # texts that are embedded between two reports


@dataclass(frozen=True, eq=False)
class Embedded:
    """A judged set under one encoder."""

    documents: Vectors  # (n, d)
    queries: Vectors  # (q, d)


@cache
def judged_set(name: str) -> JudgedSet:
    """Documents, queries and judgements of one set."""
    return read_judged_set(data_folder() / "text" / name).only_judged()


def relevance_of(judged: JudgedSet) -> Relevance:
    """Which documents are right for which query, by row."""
    return Relevance.from_qrels(judged.judgements, judged.queries.ids, judged.documents.ids)


def read_embedded(folder: Path, name: str, encoder: str) -> Embedded:
    """The vectors of a set; an empty text has some direction, which is far from most queries."""
    path = vector_file(folder, name, encoder)
    if not path.exists():
        sys.exit(f"{path}: no such file. Make it: python -m benchmarks.text_search --embed")
    with np.load(path) as arrays:
        return Embedded(*(_directed(arrays[key]) for key in ("corpus", "queries")))


def _directed(vectors: Vectors) -> Vectors:
    empty = ~vectors.any(axis=1, keepdims=True)
    return np.where(empty, np.float32(NOWHERE), vectors.astype(np.float32))


def vector_file(folder: Path, name: str, encoder: str) -> Path:
    """Where the vectors of a set by an encoder are: arrays `corpus` and `queries`."""
    return folder / f"{name}-{encoder}.npz"


def embed_missing(folder: Path, sets: Iterable[str], encoders: Sequence[str]) -> None:
    """Make the vectors that are not there yet, a file for each set and encoder."""
    folder.mkdir(parents=True, exist_ok=True)
    todo = [(s, e) for s in sets for e in encoders if not vector_file(folder, s, e).exists()]
    for encoder in encoders:
        names = [name for name, chosen in todo if chosen == encoder]
        encode = load_encoder(encoder) if names else None
        for name in names:
            assert encode is not None
            judged, what = judged_set(name), f"{name} by {encoder}"
            corpus = _embed(encode, judged.documents, "document", f"{what}, documents")
            queries = _embed(encode, judged.queries, "query", f"{what}, queries")
            with (
                replacing(vector_file(folder, name, encoder)) as temporary,
                temporary.open("wb") as file,
            ):
                np.savez(file, corpus=corpus, queries=queries)


def _embed(encode: Encode, texts: Texts, kind: Kind, what: str) -> NDArray[np.float16]:
    """In order of length, so that the texts of a batch are alike; reports how far it is."""
    order = np.argsort([len(text) for text in texts.texts], kind="stable")
    parts = []
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        parts.append(encode([texts.texts[row] for row in rows], kind))
        print(f"{what}: {start + len(rows):,}/{len(order):,}", file=sys.stderr)
    return np.concatenate(parts)[np.argsort(order)].astype(KEPT_AS)
