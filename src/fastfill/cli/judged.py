"""`--judged FOLDER`: what is relevant by a judged set, for vectors in the order of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastfill.cli.main import console
from fastfill.errors import ShapeError

if TYPE_CHECKING:
    from fastfill.features import Features, JudgedSet
    from fastfill.metrics import Relevance


def folder_relevance(
    folder: str, documents: Features, queries: Features, files: tuple[str, str]
) -> Relevance:
    """Which documents are right for which query; what is odd about the set is said.

    `files` are those of the vectors: Parquet files have ids, others are in the folder's order.
    """
    from fastfill.features import read_judged_set
    from fastfill.metrics import Relevance

    judged = read_judged_set(folder)
    for remark in judged.remarks():
        console.print(remark, markup=False, soft_wrap=True)
    items, asked = (
        features.ids if file.endswith(".parquet") else np.array(ids(judged, len(features), file))
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
