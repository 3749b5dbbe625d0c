"""What is relevant: by judgements (`--qrels FILE`), or by a judged set (`--judged FOLDER`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastfill.cli.main import say
from fastfill.errors import IdError, ShapeError, some

if TYPE_CHECKING:
    from fastfill.features import Features, JudgedSet, Judgements
    from fastfill.metrics import Relevance


def file_relevance(
    qrels: str, documents: Features, queries: Features, files: tuple[str, str]
) -> Relevance:
    """Which documents are right for which query; what is odd about the judgements is said.

    `files` are those of the vectors. Without ids they are called by their rows: 0, 1, ….
    """
    from fastfill.metrics import Relevance, read_qrels

    judgements = read_qrels(qrels)
    judged = {item for grades in judgements.values() for item in grades}
    for features, file, names in zip(
        (documents, queries), files, (judged, set(judgements)), strict=True
    ):
        if features.ids_given:
            continue
        _check_rows_from_0(names, len(features), qrels, file)
        say(f"{file} has no ids: {qrels} is taken to name its rows, 0 to {len(features) - 1:,}.")
    kept = _of_this_gallery(judgements, documents, queries, qrels)
    return Relevance.from_qrels(kept, queries.ids, documents.ids)


def _check_rows_from_0(names: set[str], rows: int, qrels: str, file: str) -> None:
    """Refuse ids that are surely not rows: 1, 2, … up to their number, and never 0."""
    if str(rows) in names and "0" not in names:
        raise IdError(
            f"{qrels}: names {rows:,} and never 0, but {file} has no ids, and its rows are called "
            f"0 to {rows - 1:,}. Give the vectors with ids (Parquet, or an array 'ids' in the "
            ".npz), or number from 0."
        )


def _of_this_gallery(
    judgements: Judgements, documents: Features, queries: Features, qrels: str
) -> dict[str, dict[str, float]]:
    """The judgements of queries and documents that are there; how many are not is said."""
    items, asked = (set(map(str, side.ids.tolist())) for side in (documents, queries))
    ours = {query: grades for query, grades in judgements.items() if query in asked}
    if not ours:
        raise IdError(
            f"{qrels}: judges the queries {some(judgements)}, and none of them is among those of "
            f"{queries.name} ({some(queries.ids.tolist())}). Check that the ids are the same."
        )
    kept = {
        query: {item: grade for item, grade in grades.items() if item in items}
        for query, grades in ours.items()
    }
    missing = {item for grades in ours.values() for item in grades} - items
    if missing and not any(kept.values()):
        raise IdError(
            f"{qrels}: judges the items {some(sorted(missing))}, and none of them is among those "
            f"of {documents.name} ({some(documents.ids.tolist())}): are the ids the same?"
        )
    if missing:
        say(
            f"{qrels}: {len(missing):,} judged items are not in the gallery and are left out: "
            f"{some(sorted(missing))}."
        )
    return kept


def folder_relevance(
    folder: str, documents: Features, queries: Features, files: tuple[str, str]
) -> Relevance:
    """Which documents are right for which query; what is odd about the set is said.

    `files` are those of the vectors: where they have no ids, they are in the folder's order.
    """
    from fastfill.features import read_judged_set
    from fastfill.metrics import Relevance

    judged = read_judged_set(folder)
    for remark in judged.remarks():
        say(remark)
    items, asked = (
        features.ids if features.ids_given else np.array(ids(judged, len(features), file))
        for features, file, ids in zip(
            (documents, queries), files, (_document_ids, _query_ids), strict=True
        )
    )
    return Relevance.from_qrels(judged.judgements, asked, items)


def _document_ids(judged: JudgedSet, rows: int, file: str) -> tuple[str, ...]:
    ids = judged.documents.ids
    if rows != len(ids):
        raise ShapeError(
            f"{file}: has {rows:,} vectors, but {judged.name} has {len(ids):,} documents. Embed "
            "all lines of corpus.jsonl, in their order."
        )
    return ids


def _query_ids(judged: JudgedSet, rows: int, file: str) -> tuple[str, ...]:
    """All queries of the set, or the judged ones alone: as many as there are vectors."""
    every, only = judged.queries.ids, judged.only_judged().queries.ids
    if rows not in (len(every), len(only)):
        raise ShapeError(
            f"{file}: has {rows:,} vectors, but {judged.name} has {len(every):,} queries, "
            f"{len(only):,} of them judged. Embed all of them, or the judged ones, in the order "
            "of queries.jsonl."
        )
    return every if rows == len(every) else only
