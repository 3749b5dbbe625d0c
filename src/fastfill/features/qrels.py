"""Relevance judgements from files: TREC's `qid 0 docid gain` and BEIR's tab-separated table."""

from __future__ import annotations

import math
import re
from pathlib import Path

from fastfill.errors import FileError
from fastfill.features.sources import Source
from fastfill.features.text_lines import read_lines

_HEADERS = ("queryid", "qid", "query", "topic", "topicid")  # the first column, its letters


def read_qrels(path: Source) -> dict[str, dict[str, float]]:
    """Read {query id: {item id: gain}}; the format is told by the number of columns.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "qrels.tsv"
    >>> _ = file.write_text("query-id\\tcorpus-id\\tscore\\nq1\\td7\\t2\\n")
    >>> read_qrels(file)
    {'q1': {'d7': 2.0}}
    """
    file = Path(path)
    qrels: dict[str, dict[str, float]] = {}
    for number, line in read_lines(file):
        fields = _fields(line.rstrip())
        if number == 1 and _is_header(fields):
            continue
        query, item, gain = _judgement(fields, f"{file}: line {number}")
        if item in qrels.setdefault(query, {}):
            raise FileError(
                f"{file}: line {number} judges item {item} for query {query} a second time. "
                "Keep one judgement of each."
            )
        qrels[query][item] = gain
    if not qrels:
        raise FileError(f"{file}: holds no judgements. Expected lines 'qid 0 docid gain'.")
    return qrels


def _fields(line: str) -> list[str]:
    """Between tabs ids may hold spaces; lines of another shape are split wherever there is one."""
    return line.split("\t") if line.count("\t") in (2, 3) else line.split()


def _is_header(fields: list[str]) -> bool:
    """`Query-ID`, `q_id`, `topic` …: the letters alone tell."""
    name = re.sub("[^a-z0-9]", "", fields[0].lower())
    return name in _HEADERS and _number(fields[-1]) is None


def _judgement(fields: list[str], where: str) -> tuple[str, str, float]:
    """Three columns are BEIR's (query, item, gain), four are TREC's (query, _, item, gain)."""
    if len(fields) == 4:
        fields = [fields[0], *fields[2:]]
    if len(fields) != 3:
        raise FileError(
            f"{where} has {len(fields)} columns. Expected 'qid 0 docid gain' (TREC) or "
            "'query-id, corpus-id, score' with tabs between (BEIR)."
        )
    gain = _number(fields[2])
    if gain is None:
        raise FileError(f"{where} has the gain {fields[2]!r}, which is not a number.")
    return fields[0], fields[1], gain


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
