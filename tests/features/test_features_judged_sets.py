"""Judged sets in BEIR's layout: what is read, what is counted, and what is refused."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.errors import FileError, ShapeError
from fastfill.features import JudgedSet, Texts, read_judged_set
from fastfill.metrics import Relevance

DOCUMENTS = [{"_id": "d1", "title": "Ice", "text": "is cold"}, {"_id": "d2", "text": "Fire"}]
QUERIES = [{"_id": "q1", "text": "what is cold", "metadata": {"url": "x"}}]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\n"
DATA = Path(os.environ.get("FASTFILL_DATA", "")) / "text"


def write(
    folder: Path,
    documents: Sequence[object] = DOCUMENTS,
    queries: Sequence[object] = QUERIES,
    qrels: str = QRELS,
    file: str = "qrels/test.tsv",
) -> Path:
    """A judged set on disk; a text in place of a record is written as it is."""
    for name, records in (("corpus", documents), ("queries", queries)):
        lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(qrels, encoding="utf-8", newline="")
    return folder


def test_a_folder_of_beir_is_read(tmp_path: Path) -> None:
    """Titles are joined to their texts, other keys ignored, grades kept."""
    judged = read_judged_set(write(tmp_path))
    assert judged.documents == Texts(("d1", "d2"), ("Ice is cold", "Fire"))
    assert judged.queries == Texts(("q1",), ("what is cold",))
    assert judged.judgements == {"q1": {"d1": 2.0}}
    assert (judged.name, judged.split, judged.remarks()) == (tmp_path.name, "test", [])


@pytest.mark.parametrize("qrels", ["q1\td1\t2\n", "q1 0 d1 2\n", QRELS])
def test_judgements_may_lie_beside_the_texts_in_any_format(tmp_path: Path, qrels: str) -> None:
    """`qrels.tsv` is read with a header or without, and TREC's lines too."""
    judged = read_judged_set(write(tmp_path, qrels=qrels, file="qrels.tsv"))
    assert (judged.judgements, judged.split) == ({"q1": {"d1": 2.0}}, "")


def test_a_split_is_read_by_its_name(tmp_path: Path) -> None:
    """A named split goes before the file that names none, which goes before the test split."""
    write(tmp_path, qrels="q1\td1\t1\n", file="qrels.tsv")
    write(tmp_path, qrels="q1\td2\t1\n", file="qrels/test.tsv")
    write(tmp_path, qrels="q1\td2\t3\n", file="qrels/dev.tsv")
    assert read_judged_set(tmp_path).judgements == {"q1": {"d1": 1.0}}
    assert read_judged_set(tmp_path, "test").judgements == {"q1": {"d2": 1.0}}
    assert read_judged_set(tmp_path, "dev").judgements == {"q1": {"d2": 3.0}}
    with pytest.raises(FileError, match=r"train\.tsv: no such file; name one of the splits dev, t"):
        read_judged_set(tmp_path, "train")


def test_ids_may_be_numbers_and_titles_missing_or_null(tmp_path: Path) -> None:
    """`id` stands for `_id`, and a number is the text that judgements write."""
    documents = [{"id": 7, "title": None, "text": "seven"}, {"_id": "8", "title": "", "text": "8"}]
    judged = read_judged_set(write(tmp_path, documents, qrels="q1\t7\t1\n"))
    assert judged.documents == Texts(("7", "8"), ("seven", "8"))


def test_what_is_odd_is_counted_and_said(tmp_path: Path) -> None:
    """Empty texts, unjudged queries and judgements of what is not there are no reason to stop."""
    documents = [*DOCUMENTS, {"_id": "d3", "title": "", "text": " "}]
    queries = [*QUERIES, {"_id": "q2", "text": "other"}, {"_id": "q3", "text": ""}]
    qrels = "q1\td1\t2\nq1\td8\t1\nq1\td9\t1\nq2\td8\t1\nq9\td1\t1\n"
    judged = read_judged_set(write(tmp_path, documents, queries, qrels))
    assert judged.judgements == {"q1": {"d1": 2.0}}
    name = tmp_path.name
    assert judged.remarks() == [
        f"{name} has empty documents: 1.",
        f"{name} has empty queries: 1.",
        f"{name} has queries without a judgement, which are not measured: 2.",
        f"{name} has judgements of documents that are not in the corpus: 3.",
        f"{name} has judgements for queries that are not among the queries: 1.",
    ]


def test_judgements_lead_to_relevance(tmp_path: Path) -> None:
    """What is left can be measured: unjudged queries have nothing relevant and are counted."""
    queries = [*QUERIES, {"_id": "q2", "text": "other"}]
    judged = read_judged_set(write(tmp_path, queries=queries, qrels="q1\td2\t3\nq1\td9\t1\n"))
    relevance = Relevance.from_qrels(judged.judgements, judged.queries.ids, judged.documents.ids)
    assert relevance.counts.tolist() == [1, 0]
    assert relevance.gains_of(0).tolist() == [3.0]
    assert judged.only_judged().queries == Texts(("q1",), ("what is cold",))
    assert judged.only_judged().unjudged == 0


def test_blank_lines_and_odd_line_ends_are_no_matter(tmp_path: Path) -> None:
    """Blank lines are skipped, and a separator inside a text does not end its line."""
    one = '{"_id": "d1", "text": "a\u2028b\u0085c"}\r'
    judged = read_judged_set(write(tmp_path, ["\ufeff" + one, "", " ", DOCUMENTS[1]]))
    assert judged.documents.texts == ("a\u2028b\u0085c", "Fire")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ('{"text": "no id"}', r"line 3 has no '_id' or 'id' that is a text"),
        ('{"_id": null, "text": "t"}', r"line 3 has no '_id' or 'id'"),
        ('{"_id": true, "text": "t"}', r"line 3 has no '_id' or 'id'"),
        ('{"_id": "d3"}', r"line 3 has no 'text' that is a text"),
        ('{"_id": "d3", "text": 5}', r"line 3 has no 'text' that is a text"),
        ('{"_id": "d3", "title": 5, "text": "t"}', r"line 3 has no 'title' that is a text"),
        ('{"_id": "d1", "text": "t"}', r"line 3 has the id 'd1' a second time"),
        ('{"_id": "d3", "text": "t"', r"line 3 is not JSON"),
        ('["d3", "t"]', r"line 3 is not a JSON object"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: str, words: str) -> None:
    """The file and the line at fault are in the message, of documents and of queries."""
    with pytest.raises(FileError, match=rf"corpus\.jsonl: {words}"):
        read_judged_set(write(tmp_path, [*DOCUMENTS, bad]))
    queries = [{"_id": "d1", "text": "x"}, {"_id": "d2", "text": "y"}, bad]
    with pytest.raises(FileError, match=rf"queries\.jsonl: {words}"):
        read_judged_set(write(tmp_path, DOCUMENTS, queries))


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    """Another encoding is said so, with the line."""
    write(tmp_path)
    (tmp_path / "corpus.jsonl").write_bytes(b'{"_id": "a", "text": ""}\n{"_id": "\xe9"}\n')
    with pytest.raises(FileError, match=r"corpus\.jsonl: line 2 cannot be read as text"):
        read_judged_set(tmp_path)


def test_files_that_are_missing_or_empty_are_named(tmp_path: Path) -> None:
    """A folder, its three files, and what they must hold."""
    with pytest.raises(FileError, match=r"nowhere: no such folder"):
        read_judged_set(tmp_path / "nowhere")
    with pytest.raises(FileError, match=r"test\.tsv: no such file; judgements are expected there"):
        read_judged_set(tmp_path)
    write(tmp_path, documents=[""])
    with pytest.raises(FileError, match=r"corpus\.jsonl: holds no documents"):
        read_judged_set(tmp_path)
    (tmp_path / "corpus.jsonl").unlink()
    with pytest.raises(FileError, match=r"corpus\.jsonl: no such file"):
        read_judged_set(tmp_path)


def test_a_split_that_is_not_there_leads_to_the_file_that_is(tmp_path: Path) -> None:
    """Where one file holds all judgements, asking for a split says so."""
    write(tmp_path, file="qrels.tsv")
    with pytest.raises(FileError, match=r"dev\.tsv: no such file; name no split to read qrels"):
        read_judged_set(tmp_path, "dev")


def test_judgements_of_another_set_are_refused(tmp_path: Path) -> None:
    """Where no judgement is of the set, nothing could be measured."""
    with pytest.raises(FileError, match="Check that the ids are the same"):
        read_judged_set(write(tmp_path, qrels="q7\td7\t1\n"))


def test_ids_and_texts_belong_together() -> None:
    """A set made in memory is checked as well."""
    with pytest.raises(ShapeError, match="1 ids for 2 texts"):
        Texts(("a",), ("b", "c"))


IDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\t\n\r"), min_size=1).filter(
    lambda text: text == text.strip()
)
TEXTS = st.text(st.characters(codec="utf-8"))


@settings(max_examples=60)
@given(
    st.dictionaries(IDS, TEXTS, min_size=1, max_size=6),
    st.dictionaries(IDS, TEXTS, min_size=1, max_size=4),
    st.data(),
)
def test_what_was_written_is_read_again(
    documents: dict[str, str], queries: dict[str, str], data: st.DataObject
) -> None:
    """Any ids and texts of Unicode survive, in their order, with their grades."""
    pairs = st.tuples(st.sampled_from([*queries]), st.sampled_from([*documents]))
    grades = data.draw(st.dictionaries(pairs, st.integers(-1, 4), min_size=1))
    with tempfile.TemporaryDirectory() as name:
        folder = write(
            Path(name),
            [{"_id": key, "text": text} for key, text in documents.items()],
            [json.dumps({"id": key, "text": text}, ensure_ascii=False)
             for key, text in queries.items()],
            "".join(f"{query}\t{item}\t{grade}\n" for (query, item), grade in grades.items()),
        )  # fmt: skip
        judged = read_judged_set(folder)
    assert judged.documents.ids == tuple(documents)
    assert judged.documents.texts == tuple(text.strip() for text in documents.values())
    assert dict(zip(judged.queries.ids, judged.queries.texts, strict=True)) == {
        key: text.strip() for key, text in queries.items()
    }
    read = {(q, d): grade for q, row in judged.judgements.items() for d, grade in row.items()}
    assert read == grades
    assert judged.unjudged == len(queries) - len({query for query, _ in grades})


@pytest.mark.skipif(not DATA.is_dir(), reason="FASTFILL_DATA names no folder with text sets")
@pytest.mark.parametrize("name", ["cosqa", "wikiqa", "nfcorpus", "cacm", "cranfield"])
def test_real_sets_are_whole(name: str) -> None:
    """Every query of the real sets is judged, and every judged document is there."""
    judged: JudgedSet = read_judged_set(DATA / name)
    assert (judged.unjudged, judged.missing_documents, judged.missing_queries) == (0, 0, 0)
    assert judged.documents.empty == (2 if name == "cranfield" else 0)
