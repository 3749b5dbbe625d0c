"""Judged sets: documents, queries, and which document answers which query, as BEIR lays them out.

    FOLDER/corpus.jsonl      {"_id": "d7", "title": "…", "text": "…"}   a document on each line
    FOLDER/queries.jsonl     {"_id": "q1", "text": "…"}
    FOLDER/qrels/test.tsv    query-id, corpus-id, score                 or FOLDER/qrels.tsv

`id` may stand for `_id`, and a title may be missing; other keys are ignored. Judgements are read by
`read_qrels`, with a header or without, BEIR's or TREC's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastfill.errors import FileError, ShapeError, some
from fastfill.features.qrels import read_qrels
from fastfill.features.sources import Source
from fastfill.features.text_lines import read_lines

SPLIT = "test"  # the judgements of qrels/ that are read unless others are named
Judgements = Mapping[str, Mapping[str, float]]  # {query id: {document id: grade}}


@dataclass(frozen=True)
class Texts:
    """Texts and their ids, in the order of the file.

    >>> Texts(("d1", "d2"), ("A title and a text", "")).empty
    1
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            raise ShapeError(
                f"{len(self.ids):,} ids for {len(self.texts):,} texts. Give one for each."
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def empty(self) -> int:
        """How many texts say nothing; an encoder may turn them into zero vectors."""
        return sum(not text.strip() for text in self.texts)


@dataclass(frozen=True)
class JudgedSet:
    """Documents, queries, and the grade of each judged (query, document).

    Judgements of documents or queries that the set does not hold are counted and left out:
    what is left leads to `fastfill.metrics.Relevance.from_qrels`.
    """

    name: str
    documents: Texts
    queries: Texts
    judgements: Judgements
    split: str = ""  # "" where the folder has judgements of one kind only
    missing_documents: int = 0  # judgements of documents that are not in the corpus
    missing_queries: int = 0  # judgements for queries that are not among the queries

    def __repr__(self) -> str:
        judged = sum(map(len, self.judgements.values()))
        return (
            f"JudgedSet({self.name}: {len(self.documents):,} documents, "
            f"{len(self.queries):,} queries, {judged:,} judgements)"
        )

    @property
    def unjudged(self) -> int:
        """How many queries have no judgement: metrics leave them out and count them."""
        return sum(query not in self.judgements for query in self.queries.ids)

    def only_judged(self) -> JudgedSet:
        """The same set with the judged queries alone: those of other splits need no vectors."""
        kept = [
            (key, text)
            for key, text in zip(self.queries.ids, self.queries.texts, strict=True)
            if key in self.judgements
        ]
        queries = Texts(tuple(key for key, _ in kept), tuple(text for _, text in kept))
        return replace(self, queries=queries)

    def remarks(self) -> list[str]:
        """What is odd about the set, a sentence each; an empty list where nothing is."""
        counts = {
            "empty documents": self.documents.empty,
            "empty queries": self.queries.empty,
            "queries without a judgement, which are not measured": self.unjudged,
            "judgements of documents that are not in the corpus": self.missing_documents,
            "judgements for queries that are not among the queries": self.missing_queries,
        }
        return [f"{self.name} has {what}: {count:,}." for what, count in counts.items() if count]


def read_judged_set(folder: Source, split: str | None = None) -> JudgedSet:
    """Read a folder in BEIR's layout; `split` names the judgements `qrels/SPLIT.tsv`.

    Without a split those of `qrels.tsv` are read, or else of `qrels/test.tsv`.

    >>> import tempfile; folder = Path(tempfile.mkdtemp()) / "tiny"; folder.mkdir()
    >>> _ = (folder / "corpus.jsonl").write_text('{"_id": "d1", "title": "Ice", "text": "cold"}')
    >>> _ = (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "what is cold"}')
    >>> _ = (folder / "qrels.tsv").write_text("q1\\td1\\t1\\nq1\\td9\\t1\\n")
    >>> judged = read_judged_set(folder)
    >>> judged, judged.documents.texts, judged.judgements
    (JudgedSet(tiny: 1 documents, 1 queries, 1 judgements), ('Ice cold',), {'q1': {'d1': 1.0}})
    >>> judged.remarks()
    ['tiny has judgements of documents that are not in the corpus: 1.']
    """
    base = Path(folder)
    if not base.is_dir():
        raise FileError(f"{base}: no such folder. Name one that holds corpus.jsonl.")
    qrels, split = _find_qrels(base, split)
    documents = read_texts(base / "corpus.jsonl", "documents")
    queries = read_texts(base / "queries.jsonl", "queries")
    judged = JudgedSet(base.resolve().name, documents, queries, read_qrels(qrels), split)
    return _without_missing(judged, qrels)


def _find_qrels(folder: Path, split: str | None) -> tuple[Path, str]:
    """The file of judgements, and the split that it holds, "" if it does not say."""
    alone = folder / "qrels.tsv"
    if split is None and alone.exists():
        return alone, ""
    named = folder / "qrels" / f"{split or SPLIT}.tsv"
    if named.exists():
        return named, named.stem
    others = sorted(path.stem for path in named.parent.glob("*.tsv"))
    ways = [f"name one of the splits {some(others)}"] if others else []
    ways += ["name no split to read qrels.tsv"] if alone.exists() else []
    way = " or ".join(ways) or "judgements are expected there or in qrels.tsv"
    raise FileError(f"{named}: no such file; {way}.")


def read_texts(path: Path, what: str) -> Texts:
    """The records of a `.jsonl` file, one line at a time; `what` they are, for errors.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "queries.jsonl"
    >>> _ = file.write_text('{"_id": "q1", "text": "what is cold"}')
    >>> read_texts(file, "queries")
    Texts(ids=('q1',), texts=('what is cold',))
    """
    records: dict[str, str] = {}
    for number, line in read_lines(path):
        where = f"{path}: line {number}"
        key, text = _record(line, where)
        if key in records:
            raise FileError(f"{where} has the id {key!r} a second time. Ids must be unique.")
        records[key] = text
    if not records:
        raise FileError(f"{path}: holds no {what}. Expected a JSON object on each line.")
    return Texts(tuple(records), tuple(records.values()))


def _record(line: str, where: str) -> tuple[str, str]:
    """The id of a line, and its text with the title in front, as BEIR joins them."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise FileError(f"{where} is not JSON ({error}).") from None
    if not isinstance(record, dict):
        raise FileError(f'{where} is not a JSON object such as {{"_id": "d1", "text": "…"}}.')
    title, text = _text(record, "title", where, ""), _text(record, "text", where)
    return _id(record, where), f"{title} {text}".strip()


def _id(record: Mapping[str, Any], where: str) -> str:
    key = record.get("_id", record.get("id"))
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise FileError(f"{where} has no '_id' or 'id' that is a text or a whole number.")
    return str(key)


def _text(record: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = record.get(key, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise FileError(f"{where} has no '{key}' that is a text.")
    return value


def _without_missing(judged: JudgedSet, qrels: Path) -> JudgedSet:
    """Leave out, and count, judgements of what the set does not hold."""
    documents, queries = set(judged.documents.ids), set(judged.queries.ids)
    kept: dict[str, dict[str, float]] = {}
    missing_documents = missing_queries = 0
    for query, grades in judged.judgements.items():
        if query not in queries:
            missing_queries += len(grades)
            continue
        present = {item: grade for item, grade in grades.items() if item in documents}
        missing_documents += len(grades) - len(present)
        kept |= {query: present} if present else {}
    if not kept:
        raise FileError(
            f"{qrels}: judges no document of corpus.jsonl for a query of queries.jsonl. "
            "Check that the ids are the same."
        )
    return replace(
        judged,
        judgements=kept,
        missing_documents=missing_documents,
        missing_queries=missing_queries,
    )
