"""`fastfill curve`: what is read, what is shown, what is refused."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from evaluation_files import write_gallery

from fastfill.align import Aligned, Alignment, Fusion
from fastfill.cli import compare as _compare  # noqa: F401  registers the commands
from fastfill.cli import curve as _curve  # noqa: F401
from fastfill.cli.main import commands
from fastfill.errors import FastFillError
from fastfill.evaluate import Curve, backfill_curves, serving_curves
from fastfill.features import Features, Pairs
from fastfill.order import Order, write_order


@pytest.fixture
def gallery_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small gallery, where the commands run."""
    monkeypatch.chdir(tmp_path)
    return write_gallery(tmp_path)


OWN = "curve --aligned H.npy --variance V.npy --new new.npy --labels labels.npy --points 5"


def run(command: str) -> Result:
    """A command in this process."""
    return CliRunner().invoke(commands, shlex.split(command))


def answer(command: str) -> dict[str, Any]:
    """The JSON object of a command that succeeds."""
    result = run(f"{command} --json")
    if result.exception is not None:
        raise result.exception
    return dict(json.loads(result.stdout))


def refusal(command: str) -> str:
    """Why a command is refused: a usage error, or one of FastFill's own."""
    result = run(command)
    if isinstance(result.exception, FastFillError):
        return str(result.exception)
    assert result.exit_code == 2, result.output
    return result.stderr.partition("Error: ")[2].strip()


def test_curve_of_own_aligned_vectors(gallery_files: Path) -> None:
    """Numbers are those of the library, for each policy and metric."""
    found = answer(f"{OWN} --policy sigma,random --metrics map,cmc@1")
    read = {name: np.load(gallery_files / f"{name}.npy") for name in ("H", "V", "new", "labels")}
    curves = backfill_curves(
        Aligned(read["H"], read["V"]), read["new"], read["labels"], policy="sigma", points=5
    )
    first = found["curves"][0]
    assert (first["name"], first["metric"]) == ("sigma", "map")
    np.testing.assert_allclose(first["values"], curves["map"].values)
    assert first["area"] == pytest.approx(curves["map"].area)
    assert [one["name"] for one in found["curves"]] == ["sigma", "random"] * 2
    assert found["levels"]["map"].keys() == {"new/new"}
    assert found["files"] == []


def test_people_get_a_table_and_programs_one_object(gallery_files: Path) -> None:
    """Without --json stdout is empty; with it stdout is JSON alone and the table stays."""
    shown = run(OWN)
    assert shown.exit_code == 0
    assert "mAP in %, by backfilled fraction" in shown.stdout
    both = run(f"{OWN} --json")
    json.loads(both.stdout)
    assert "mAP in %" in both.stderr


def test_a_folder_gets_every_file(gallery_files: Path) -> None:
    """Page, tables, numbers and figures; the JSON names them."""
    found = answer(
        f"{OWN} --old old.npy --groups groups.npy --head head.npy"
        " --policy sigma,random,entropy,oracle --seeds 2 --takes 30 days --metrics cmc@1,map"
        " --title 'My gallery' -o out/here"
    )
    names = {Path(file).name for file in found["files"]}
    assert names == {path.name for path in (gallery_files / "out" / "here").iterdir()}
    for name in ("report.html", "tables.md", "curves.json", "curve.svg", "curve.png", "flips.png"):
        assert name in names
    for name in ("groups-map.svg", "served.png", "sigma.svg", "timeline-map.png"):
        assert name in names
    page = (gallery_files / "out/here/report.html").read_text()
    assert "<title>My gallery</title>" in page
    assert found["kendall_tau"]["H"].keys() == {"l2", "disc", "l2+disc"}
    assert sum(one["name"] == "random" for one in found["curves"]) == 4


def test_without_labels_agreement_is_measured(gallery_files: Path) -> None:
    """Galleries without labels have neighbours."""
    found = answer("curve --aligned H.npy --new new.npy --points 3")
    assert [(c["name"], c["metric"]) for c in found["curves"]] == [("random", "agreement@10")]
    assert "needs labels" in refusal("curve --aligned H.npy --new new.npy --metrics map")


def test_queries_of_their_own(gallery_files: Path) -> None:
    """Separate queries come with labels, and with old vectors for old/old."""
    found = answer(
        f"{OWN} --old old.npy --query-new query.npz:new --query-labels query.npz:labels"
        " --query-old query.npz:old --metrics map"
    )
    assert found["facts"]["queries"] == "9"
    assert found["levels"]["map"].keys() == {"new/new", "old/old"}


QUERIES = (
    "--old old.npy --new new.npy --labels labels.npy --query-new query.npz:new"
    " --query-labels query.npz:labels --query-old query.npz:old --metrics map --points 5"
)


@pytest.fixture
def alignment(gallery_files: Path) -> Alignment:
    """Learned from half of the gallery and written to a file."""
    old, new = (np.load(gallery_files / f"{name}.npy")[:30] for name in ("old", "new"))
    learned = Alignment.fit(Pairs(Features(old), Features(new)), method="ridge")
    learned.save(gallery_files / "map.safetensors")
    return learned


def test_each_way_to_serve_is_a_curve(gallery_files: Path, alignment: Alignment) -> None:
    """The values are those of the library, with a fusion learned from the queries given."""
    found = answer(f"curve map.safetensors {QUERIES} --policy sigma --serving old,aligned,both")
    read = {name: np.load(gallery_files / f"{name}.npy") for name in ("old", "new", "labels")}
    query = dict(np.load(gallery_files / "query.npz"))
    assert alignment.reference is not None
    fusion = Fusion.learn(alignment.reference, (query["old"], query["new"]), items=60)
    assert [one["name"] for one in found["curves"]] == ["old", "aligned", "both"]
    for one in found["curves"]:
        expected = Curve.simulate(
            alignment(read["old"]), read["new"], read["labels"], queries=query["new"],
            query_labels=query["labels"], points=5, serving=one["name"], old=read["old"],
            queries_old=query["old"], fusion=fusion,
        )  # fmt: skip
        np.testing.assert_allclose(one["values"], expected.values, atol=1e-6)
        assert one["fractions"] == [0.0, 0.25, 0.5, 0.75, 1.0]
        assert one["serving"] == [one["name"]] * 5
    levels = found["levels"]["map"]
    assert levels["old/old"] == pytest.approx(found["curves"][0]["end"])
    assert levels["new/new"] == pytest.approx(found["curves"][1]["end"])


def test_old_queries_let_the_evidence_choose(gallery_files: Path, alignment: Alignment) -> None:
    """With --query-old the default is auto, which says what served; else the new model alone."""
    result = run(f"curve map.safetensors {QUERIES} --policy sigma --json")
    [one] = json.loads(result.stdout)["curves"]
    assert one["name"] == "sigma"
    assert set(one["serving"]) <= {"old", "aligned", "both"}
    assert "Served by sigma: " in result.stderr
    named = answer(f"curve map.safetensors {QUERIES} --policy sigma --serving auto")["curves"]
    assert named[0]["values"] == one["values"]
    bare = QUERIES.replace(" --query-old query.npz:old", "")
    assert answer(f"curve map.safetensors {bare}")["curves"][0]["serving"] == ["aligned"] * 5


def test_new_new_is_measured_where_no_curve_ends_there(
    gallery_files: Path, alignment: Alignment
) -> None:
    """Both models together do not end with what the new one gives alone."""
    command = f"curve map.safetensors {QUERIES} --policy sigma --serving"
    alone, both = (answer(f"{command} {way}") for way in ("aligned", "both"))
    for level in ("new/new", "old/old"):
        assert both["levels"]["map"][level] == pytest.approx(alone["levels"]["map"][level])
    assert both["curves"][0]["end"] != pytest.approx(alone["curves"][0]["end"])
    assert alone["levels"]["map"]["new/new"] == alone["curves"][0]["end"]


def test_a_map_that_is_learned_again_needs_no_file(gallery_files: Path) -> None:
    """All ways to serve come from one backfill, as the library plays it through."""
    found = answer(
        f"curve --refit --pairs 25 {QUERIES} --policy random --serving old,aligned,both,auto"
    )
    read = {name: np.load(gallery_files / f"{name}.npy") for name in ("old", "new", "labels")}
    query = dict(np.load(gallery_files / "query.npz"))
    expected = serving_curves(
        read["old"], read["new"], read["labels"], pairs=25, policy="random", metrics="map",
        points=5, queries=query["new"], query_labels=query["labels"], queries_old=query["old"],
        seed=0,
    )  # fmt: skip
    assert [one["name"] for one in found["curves"]] == [*expected]
    for one in found["curves"]:
        curve = expected[one["name"]]["map"]
        np.testing.assert_allclose(one["values"], curve.values, atol=1e-6)
        assert tuple(one["serving"]) == curve.serving


def test_a_file_says_by_which_method_maps_are_learned_again(
    gallery_files: Path, alignment: Alignment
) -> None:
    """Its method in place of the choice; the pairs are new, 5 % of the gallery or the fewest."""
    options = f"{QUERIES} --refit --policy random,mixed --serving both"
    found = answer(f"curve map.safetensors {options} --seeds 2")
    assert [one["name"] for one in found["curves"]] == ["random", "random", "mixed", "mixed"]
    one, other = (curve["values"][0] for curve in found["curves"][:2])
    assert one != other  # other pairs, another map


def test_an_order_from_a_file(gallery_files: Path) -> None:
    """An order of somebody's own is measured beside the policies, under the file's name."""
    order = Order(np.arange(60)[::-1])
    write_order(order, gallery_files / "mine.parquet")
    found = answer(f"{OWN} --order-file mine.parquet --metrics map")
    assert [one["name"] for one in found["curves"]] == ["mine", "sigma", "random"]
    read = {name: np.load(gallery_files / f"{name}.npy") for name in ("H", "V", "new", "labels")}
    expected = backfill_curves(
        Aligned(read["H"], read["V"]), read["new"], read["labels"], policy=order, points=5
    )
    np.testing.assert_allclose(found["curves"][0]["values"], expected["map"].values)


def test_parquet_files_are_matched_by_id_and_carry_their_columns(gallery_files: Path) -> None:
    """Rows of another order but the same ids give the same curve; labels come along."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    new, old = np.load("new.npy"), np.load("H.npy")
    shuffled = np.random.default_rng(0).permutation(60)
    labels = np.load("labels.npy")
    ids = [f"i{k}" for k in range(60)]
    pq.write_table(pa.table({"id": ids, "vector": list(new), "label": labels}), "new.parquet")
    pq.write_table(
        pa.table({"id": [ids[k] for k in shuffled], "vector": list(old[shuffled])}), "H.parquet"
    )
    whole = answer("curve --aligned H.npy --new new.npy --labels labels.npy --metrics map")
    matched = answer("curve --aligned H.parquet --new new.parquet --metrics map")
    assert matched["curves"][0]["start"] == pytest.approx(whole["curves"][0]["start"])
    Path("q.tsv").write_text("query-id\tcorpus-id\tscore\ni0\ti4\t1\ni1\ti5\t2\n")
    judged = answer(
        "curve --aligned H.parquet --new new.parquet --query-new new.parquet --qrels q.tsv"
        " --metrics ndcg@10 --points 2"
    )
    assert judged["facts"]["queries"].startswith("60; 58 without a relevant item")


@pytest.mark.usefixtures("gallery_files")
def test_a_judged_set_is_read_as_it_is() -> None:
    """Vectors in the order of the folder's files give the curve of ids worked out by hand."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    new, folder = np.load("new.npy"), Path("set")
    folder.mkdir()
    for name, prefix in (("corpus", "d"), ("queries", "q")):
        lines = [json.dumps({"_id": f"{prefix}{k}", "text": "a text"}) for k in range(60)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    (folder / "qrels.tsv").write_text("q3\td4\t1\nq1\td5\t2\n")
    for name, prefix in (("documents", "d"), ("questions", "q")):
        ids = [f"{prefix}{k}" for k in range(60)]
        pq.write_table(pa.table({"id": ids, "vector": list(new)}), f"{name}.parquet")
    np.save("judged.npy", new[[1, 3]])  # the judged queries alone, in the order of the file
    common = "--metrics ndcg@10 --points 2 --aligned H.npy"
    by_hand = answer(
        f"curve {common} --new documents.parquet --query-new questions.parquet "
        f"--qrels {folder}/qrels.tsv"
    )
    for queries in ("new.npy", "judged.npy", "questions.parquet"):
        read = answer(f"curve {common} --new new.npy --query-new {queries} --judged {folder}")
        assert read["curves"][0]["values"] == pytest.approx(by_hand["curves"][0]["values"])


def write_qrels(first: int) -> None:
    """Each of nine queries asks for the item of its own number, both numbered from `first`."""
    lines = [f"{number}\t{number}\t1" for number in range(first, first + 9)]
    Path("q.tsv").write_text("\n".join(lines))


JUDGED = "curve --aligned H.npy --new new.npy --query-new query.npz:new --qrels q.tsv"


@pytest.mark.usefixtures("gallery_files")
def test_vectors_without_ids_are_judged_by_their_rows_and_that_is_said() -> None:
    """Judgements of rows from 0 find the query's own item, and the reader hears what was meant."""
    write_qrels(0)
    result = run(f"{JUDGED} --metrics cmc@1 --points 2 --json")
    assert json.loads(result.stdout)["curves"][0]["values"][-1] == 1.0
    assert "new.npy has no ids: q.tsv is taken to name its rows, 0 to 59" in result.stderr
    assert "query.npz:new has no ids: q.tsv is taken to name its rows, 0 to 8" in result.stderr


@pytest.mark.usefixtures("gallery_files")
def test_judgements_that_count_from_one_are_refused_where_rows_count_from_zero() -> None:
    """Nothing is measured on documents that are all off by one."""
    write_qrels(1)
    assert "q.tsv: names 9 and never 0, but query.npz:new has no ids" in refusal(JUDGED)


@pytest.mark.usefixtures("gallery_files")
def test_an_array_of_ids_in_an_npz_names_its_rows() -> None:
    """Judgements by such ids give the same curve as judgements by rows."""
    queries, items = np.load("query.npz"), np.load("new.npy")
    np.savez("named.npz", vectors=items[::-1], ids=np.arange(60)[::-1])
    np.savez("asked.npz", vectors=queries["new"], ids=np.arange(9))
    np.save("turned.npy", np.load("H.npy")[::-1])
    write_qrels(0)
    common = "--qrels q.tsv --metrics ndcg@10 --points 2"
    by_ids = answer(
        f"curve --aligned turned.npy --new named.npz --query-new asked.npz {common} --policy random"
    )
    by_rows = answer(f"{JUDGED} --metrics ndcg@10 --points 2 --policy random")
    assert by_ids["curves"][0]["values"] == pytest.approx(by_rows["curves"][0]["values"])


@pytest.mark.usefixtures("gallery_files")
def test_judged_items_that_are_not_in_the_gallery_are_left_out_and_counted() -> None:
    """A few missing documents do not end the evaluation; if all are missing, it is refused."""
    write_qrels(0)
    whole = answer(f"{JUDGED} --metrics ndcg@10 --points 2")
    Path("q.tsv").write_text(Path("q.tsv").read_text() + "\n0\tgone\t2\n")
    result = run(f"{JUDGED} --metrics ndcg@10 --points 2 --json")
    assert json.loads(result.stdout)["curves"] == whole["curves"]
    assert "q.tsv: 1 judged items are not in the gallery and are left out: gone" in result.stderr
    Path("q.tsv").write_text("0\tgone\t2\n")
    assert "judges the items gone, and none of them is among those of new.npy" in refusal(JUDGED)
    Path("q.tsv").write_text("other\t1\t2\n")
    assert "judges the queries other, and none of them is among those of" in refusal(JUDGED)


@pytest.mark.usefixtures("gallery_files")
def test_a_zero_vector_matches_nothing_under_cosine() -> None:
    """An empty document does not end the evaluation: it is told, and is no answer."""
    items = np.load("new.npy")
    items[3] = 0
    np.save("new.npy", items)
    Path("q.tsv").write_text("0\t3\t1\n1\t1\t1\n")
    result = run(f"{JUDGED} --distance cosine --metrics mrr --points 2 --json")
    assert "new.npy: 1 zero vectors have no direction and match nothing, in rows 3" in result.stderr
    end = json.loads(result.stdout)["curves"][0]["values"][-1]  # rank 1, and one in the far half
    assert (1 + 1 / 60) / 2 <= end < (1 + 1 / 30) / 2


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("curve --new new.npy", "Name an alignment (FILE) or aligned vectors"),
        ("curve a.safetensors --aligned H.npy --new new.npy", "one of the two"),
        ("curve a.safetensors --new new.npy", "An alignment needs --old"),
        ("curve a.safetensors --old old.npy --new new.npy --variance V.npy", "--variance belongs"),
        ("curve a.safetensors --old old.npy --new new.npy", "a.safetensors"),
        ("curve --aligned H.npy", "Give --new, the gallery under the new model"),
        ("curve --aligned H.npy --new none.npy", "none.npy: no such file"),
        ("curve --aligned old.npy --new new.npy", "(60, 5) and the new one (60, 6)"),
        ("curve --aligned query.npz:new --new new.npy", "query.npz:new: 9 rows where 60"),
        ("curve --aligned query.npz --new new.npy", "holds several arrays"),
        ("curve --aligned H.npy --new new.npy --policy sigma", "'sigma' needs --variance"),
        (f"{OWN} --policy fastest", "Unknown policy 'fastest'"),
        (f"{OWN} --policy novelty", "'novelty' needs the old vectors"),
        (f"{OWN} --policy entropy", "'entropy' needs the new model's classifier"),
        (f"{OWN} --policy traffic:sigma", "traffic policy needs how often"),
        (f"{OWN} --policy sigma,sigma", "Several orders are called sigma"),
        (f"{OWN} --policy ,", "at least one order"),
        (f"{OWN} --metrics top1", "Unknown metric 'top1'"),
        (f"{OWN} --query-labels labels.npy", "--query-labels needs --query-new"),
        (f"{OWN} --query-old old.npy", "--query-old needs --query-new"),
        (f"{OWN} --serving old", "--serving old needs --old"),
        (f"{OWN} --old old.npy --serving both", "needs the reference pairs of an alignment"),
        (f"{OWN} --serving new", "Unknown way to serve 'new'"),
        (f"{OWN} --serving ,", "--serving is empty"),
        (
            f"{OWN} --old old.npy --query-new query.npz:new --query-labels query.npz:labels"
            " --serving auto",
            "--serving auto needs --query-old",
        ),
        (f"{OWN} --old old.npy --refit", "--aligned does not go with --refit"),
        ("curve --refit --new new.npy", "--refit needs --old"),
        (f"{OWN} --pairs 30", "--pairs belongs to --refit"),
        (f"{OWN} --query-new query.npz:new", "--query-labels is missing"),
        (f"{OWN} --qrels x.tsv", "--qrels needs --query-new"),
        (f"{OWN} --qrels x.tsv --query-new new.npy", "--qrels or labels, not both"),
        (f"{OWN} --judged x", "--judged needs --query-new"),
        (f"{OWN} --judged x --query-new new.npy", "--judged or labels, not both"),
        (f"{OWN} --query-new query.npz:new --query-old query.npz:old", "--query-old needs --old"),
        (f"{OWN} --takes 30 days", "--takes needs --old"),
        (f"{OWN} --takes soon days", "'soon' is not a valid float"),
        (f"{OWN} --takes 0 days --old old.npy", "positive number of days"),
        (f"{OWN} --groups head.npy", "expected one entry per row"),
        (f"{OWN} --groups query.npz:labels", "9 entries for 60"),
        (f"{OWN} --head labels.npy --policy entropy", "expected a 2-D array"),
        (f"{OWN} --shown groups.npy --policy traffic:sigma", "expected 60 numbers"),
        (f"{OWN} --order-file H.npy", "H.npy: cannot be read as Parquet"),
        (f"{OWN} --points 1", "x>=2"),
        (f"{OWN} --distance hamming", "is not one of"),
        (f"{OWN} -o new.npy", "is a file"),
    ],
)
def test_wrong_combinations_are_refused_in_a_sentence(
    gallery_files: Path, command: str, reason: str
) -> None:
    """Each refusal names what is wrong, and nothing is written."""
    before = sorted(gallery_files.rglob("*"))
    assert reason in refusal(command)
    assert sorted(gallery_files.rglob("*")) == before


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_variances_that_cannot_be(gallery_files: Path, bad: float) -> None:
    """NaN, infinite and negative variances are refused with their row."""
    values = np.load("V.npy")
    values[7] = bad
    np.save("V.npy", values)
    assert "V.npy: rows 7 are negative, NaN or infinite" in refusal(OWN)


def test_traffic_and_novelty_get_what_they_need(gallery_files: Path) -> None:
    """Counts of views, old vectors and pairs reach the policies."""
    found = answer(
        f"{OWN} --old old.npy --pairs-old query.npz:old --shown shown.npy"
        " --policy novelty,traffic:novelty,traffic:random --seeds 2 --metrics map"
    )
    names = ["novelty", "traffic:novelty", "traffic:random", "traffic:random"]
    assert [one["name"] for one in found["curves"]] == names


def test_without_matplotlib_the_page_is_still_written(
    gallery_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures are left out with a word about the missing extra."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(f"{OWN} -o out")
    assert result.exit_code == 0
    assert "Figures are left out" in result.stderr
    assert "fastfill[report]" in result.stderr
    written = sorted(path.name for path in (gallery_files / "out").iterdir())
    assert written == ["curves.json", "report.html", "tables.md"]


def test_an_alignment_of_ours(gallery_files: Path) -> None:
    """FILE maps the old gallery; its distance is the default, its vectors those of the library."""
    old, new = Features(np.load("old.npy")), Features(np.load("new.npy"))
    alignment = Alignment.fit(Pairs(old, new), method="ridge", distance="cosine")
    alignment.save("a.safetensors")
    found = answer("curve a.safetensors --old old.npy --new new.npy --labels labels.npy --points 3")
    assert found["facts"]["distance"] == "cosine"
    expected = backfill_curves(
        alignment(old), new, np.load("labels.npy"), policy="sigma", points=3, distance="cosine"
    )
    first = found["curves"][0]
    np.testing.assert_allclose(first["values"], expected[first["metric"]].values, rtol=1e-6)
    assert found["title"] == "Backfilling curves of a"
    assert "dimensions" in refusal("curve a.safetensors --old new.npy --new new.npy")


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a program of its own."""
    program = [sys.executable, "-c", "from fastfill.cli import main; main()", *arguments]
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "60"}
    return subprocess.run(program, capture_output=True, text=True, env=environment, check=False)


def test_the_program_writes_json_and_cuts_no_number(gallery_files: Path) -> None:
    """In a narrow terminal every column is whole; the report repeats the command."""
    result = process(*shlex.split(f"{OWN} --seeds 2 --metrics map --json -o out"))
    assert result.returncode == 0, result.stderr
    json.loads(result.stdout)
    assert "…" not in result.stderr
    assert "to 99 %" in result.stderr
    assert "fastfill curve --aligned H.npy" in (gallery_files / "out/report.html").read_text()


def test_the_program_s_errors_are_one_sentence(gallery_files: Path) -> None:
    """A known error is a sentence on stderr and exit code 1, whatever signs are in it."""
    result = process("curve", "--aligned", "[/bold]x.npy", "--new", "new.npy")
    assert result.returncode == 1
    assert result.stderr == "Error: [/bold]x.npy: no such file. Check the path.\n"
    assert result.stdout == ""


def test_help_names_every_option() -> None:
    """The help of both commands explains each option."""
    for name in ("curve", "compare"):
        text = run(f"{name} --help").stdout
        command = commands.commands[name]
        for parameter in command.params:
            for flag in parameter.opts:
                if flag.startswith("--"):
                    assert flag in text
            assert parameter.param_type_name == "argument" or parameter.help
