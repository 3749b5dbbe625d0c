"""Relevance judgements from files: TREC's `qid 0 docid gain` and BEIR's tab-separated table."""

from __future__ import annotations

from pathlib import Path

from fastfill.errors import FileError
from fastfill.features import Source


def read_qrels(path: Source) -> dict[str, dict[str, float]]:
    """Read {query id: {item id: gain}}; the format is told by the number of columns.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "qrels.tsv"
    >>> _ = file.write_text("query-id\\tcorpus-id\\tscore\\nq1\\td7\\t2\\n")
    >>> read_qrels(file)
    {'q1': {'d7': 2.0}}
    """
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise FileError(f"{file}: no such file. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{file}: cannot be read as text ({error}).") from None
    qrels: dict[str, dict[str, float]] = {}
    for number, line in enumerate(lines, start=1):
        fields = line.split("\t") if line.count("\t") == 2 else line.split()
        if not fields or (number == 1 and fields[0] == "query-id"):
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


def _judgement(fields: list[str], where: str) -> tuple[str, str, float]:
    """Three columns are BEIR's (query, item, gain), four are TREC's (query, _, item, gain)."""
    if len(fields) == 4:
        fields = [fields[0], *fields[2:]]
    if len(fields) != 3:
        raise FileError(
            f"{where} has {len(fields)} columns. Expected 'qid 0 docid gain' (TREC) or "
            "'query-id, corpus-id, score' with tabs between (BEIR)."
        )
    try:
        return fields[0], fields[1], float(fields[2])
    except ValueError:
        raise FileError(f"{where} has the gain {fields[2]!r}, which is not a number.") from None
