"""Judgements from files: TREC's lines and BEIR's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastfill.errors import FileError
from fastfill.features import read_qrels


def test_trec_and_beir_files_hold_the_same(tmp_path: Path) -> None:
    """Both formats of judgements are read, told apart by their columns."""
    (tmp_path / "trec.txt").write_text("q1 0 d1 2\nq1 0 d2 0\nq2 0 d1 1\n\n")
    (tmp_path / "beir.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td1\t1"
    )
    expected = {"q1": {"d1": 2.0, "d2": 0.0}, "q2": {"d1": 1.0}}
    assert read_qrels(tmp_path / "trec.txt") == read_qrels(tmp_path / "beir.tsv") == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q1 d1\n", "line 1 has 2 columns"),
        ("q1 0 d1 1\nq1 0 d2 much\n", "line 2 has the gain 'much'"),
        ("q1 0 d1 1\nq1 0 d1 2\n", "line 2 judges item d1 for query q1 a second time"),
        ("q1 0 d1 nan\n", "line 1 has the gain 'nan'"),
        ("qid 0 d1 much\nqid 0 d2 much\n", "line 2 has the gain 'much'"),
        ("\n", "holds no judgements"),
    ],
)
def test_a_bad_line_of_judgements_is_named(tmp_path: Path, text: str, words: str) -> None:
    """The file and the line at fault are in the message."""
    (tmp_path / "q.txt").write_text(text)
    with pytest.raises(FileError, match=words):
        read_qrels(tmp_path / "q.txt")


def test_a_missing_file_of_judgements_is_named(tmp_path: Path) -> None:
    """A path that is not there is said so."""
    with pytest.raises(FileError, match="no such file"):
        read_qrels(tmp_path / "none.txt")


def test_a_binary_file_of_judgements_is_refused(tmp_path: Path) -> None:
    """A file that is not text is said so, with the line."""
    (tmp_path / "q.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="line 1 cannot be read as text"):
        read_qrels(tmp_path / "q.txt")


@pytest.mark.parametrize(
    "header",
    ["", "query-id\tcorpus-id\tscore\n", "qid\tdocid\trel\n", "q_id\tdoc_id\tgrade\n",
     "Query-ID\tCorpus-ID\tScore\n", "topic\titer\tdocument\trelevance\n"],
)  # fmt: skip
def test_a_header_is_no_judgement(tmp_path: Path, header: str) -> None:
    """The first line is skipped where it names columns, and read where it judges."""
    (tmp_path / "q.tsv").write_text(f"{header}q1\td1\t1\n")
    assert read_qrels(tmp_path / "q.tsv") == {"q1": {"d1": 1.0}}


def test_a_query_may_be_called_like_a_column(tmp_path: Path) -> None:
    """What ends in a number is a judgement, whatever the query is called."""
    (tmp_path / "q.tsv").write_text("query\td1\t1\n")
    assert read_qrels(tmp_path / "q.tsv") == {"query": {"d1": 1.0}}


def test_ids_between_tabs_may_hold_spaces_and_line_separators(tmp_path: Path) -> None:
    """Only a line feed ends a line, also after a carriage return and behind a byte order mark."""
    text = "\ufeffq 1\td\u2028 1\t1\r\nq 1\t0\td 2\t2\t\r\n"
    (tmp_path / "q.tsv").write_text(text, encoding="utf-8", newline="")
    assert read_qrels(tmp_path / "q.tsv") == {"q 1": {"d\u2028 1": 1.0, "d 2": 2.0}}


def test_metrics_still_offer_the_reader() -> None:
    """The name under which it was known before is the same function."""
    from fastfill import metrics

    assert metrics.read_qrels is read_qrels
