"""The verbs of a migration from the command line, on LanceDB."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lance_photos import REFITS

from fastfill.cli.opening import open_by_url
from fastfill.migrate.ledger.worker_reports import WorkerReport, WorkerReports

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

SRC = Path(__file__).parents[2] / "src"
URL = "lance://./db#photos.vector"
ENCODER = """
import os, time, zlib
import numpy as np

MIX = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)


def old(text):
    return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(6).astype(np.float32)


def encode(texts):
    return np.tanh(np.stack([old(str(t)) for t in texts]) @ MIX)


def slow(texts):
    time.sleep(0.02 * len(texts))
    return encode(texts)


def old_model(texts):
    return np.stack([old(str(t)) for t in texts])


def dying(texts):
    if str(texts[0]).startswith("a question") and not os.path.exists("live"):
        raise KeyboardInterrupt
    return encode(texts)


def picky(texts):
    if "text 7" in texts:
        raise ValueError("cannot read")
    return encode(texts)
"""
Fastfill = Callable[..., Any]


@pytest.fixture
def fastfill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastfill:
    """Run the command in a folder with a table and an encoder; returns click's result."""
    from click.testing import CliRunner

    from fastfill.cli.main import commands, load_commands

    (tmp_path / "toy_encoder.py").write_text(ENCODER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("fastfill.migrate.REFIT_EVERY", REFITS)
    sys.modules.pop("toy_encoder", None)
    import toy_encoder

    texts = [f"text {n}" for n in range(200)]
    vectors = np.stack([toy_encoder.old(text) for text in texts])
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 6)
    lancedb.connect("db").create_table(
        "photos", pa.table({"id": list(range(200)), "text": texts, "vector": flat})
    )
    load_commands()

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(commands, arguments)

    return run


def start(fastfill: Fastfill, encoder: str = "encode") -> Any:
    """The usual start."""
    return fastfill(
        *("start", URL, "--input", "text", "--encoder", f"toy_encoder:{encoder}"),
        *("--distance", "l2", "--pairs", "60", "--method", "ridge"),
    )


def test_the_whole_life(fastfill: Fastfill) -> None:
    """Plan, start, backfill, verify and complete: each says what it did and what comes next."""
    plan = fastfill(
        *("plan", URL, "--input", "text", "--encoder", "toy_encoder:encode", "--distance", "l2")
    )
    assert plan.exit_code == 0, plan.output
    assert "200 rows, 6 → 8 dimensions" in plan.output
    assert "Next: fastfill start 'lance://./db#photos.vector' --input text" in plan.output
    assert lancedb.connect("db").open_table("photos").schema.names == ["id", "text", "vector"]
    begun = start(fastfill)
    assert "Aligned 140 rows" in begun.output
    assert "Next: fastfill backfill" in begun.output
    part = fastfill("backfill", URL, "--budget", "10%")
    assert "Embedded 20 rows. 80/200" in part.output
    assert "Next: fastfill backfill" in part.output
    rest = fastfill("backfill", URL)
    assert "200/200  100.0 %" in rest.output
    assert "Next: fastfill complete" in rest.output
    assert fastfill("verify", URL).exit_code == 0
    assert "Next: fastfill complete" in fastfill("complete", URL).output
    gone = fastfill("complete", URL, "--drop-old")
    assert "The old vectors are gone" in gone.output
    assert "vector" not in lancedb.connect("db").open_table("photos").schema.names


def test_a_start_that_ended_early_goes_on_by_the_url(fastfill: Fastfill) -> None:
    """The next command is right, and pairs, method and distance are those of the first start."""
    Path("queries.txt").write_text("".join(f"a question {n}\n" for n in range(40)))
    given = ("--pairs", "60", "--method", "ridge", "--distance", "l2", "--queries", "queries.txt")
    encoders = ("--encoder", "toy_encoder:dying", "--old-encoder", "toy_encoder:old_model")
    assert fastfill("start", URL, "--input", "text", *encoders, *given).exit_code != 0
    Path("live").touch()
    told = fastfill("status", URL).output
    assert f"Next: fastfill start '{URL}' --queries FILE --old-encoder NAME" in told
    again = fastfill("start", URL)
    assert again.exit_code == 0, again.output
    assert "was given --queries FILE --old-encoder NAME" in again.output
    state = open_by_url(URL, encode=False).status().state
    assert state is not None
    assert state.learning is not None
    assert (state.learning.pairs, state.learning.method, state.distance) == (60, "ridge", "l2")
    assert f"Next: fastfill backfill '{URL}'" in fastfill("status", URL).output


@pytest.mark.parametrize("budget", ["0", "-5", "0%", "-1%", "200%", "nan", "inf"])
def test_a_budget_that_is_none_is_refused(fastfill: Fastfill, budget: str) -> None:
    """Nothing is embedded for less than a row, or for more than all of them."""
    start(fastfill)
    refused = fastfill("backfill", URL, "--budget", budget)
    assert "A budget is at least one row, or a share up to 100%" in str(refused.exception)
    assert "60/200" in fastfill("status", URL).output


def test_signs_are_printed_as_they_are(fastfill: Fastfill) -> None:
    """A name between colons is no emoji, and a rate is said once."""
    import toy_encoder

    setattr(toy_encoder, "old:new:", toy_encoder.encode)
    asked = ("--input", "text", "--encoder", "toy_encoder:old:new:", "--distance", "l2")
    assert "encoder toy_encoder:old:new:: " in fastfill("plan", URL, *asked).output
    start(fastfill)
    assert (
        "Resumed with at most 500 rows per second."
        in fastfill("resume", URL, "--rate", "500/s").output
    )


def test_verify_names_wrong_rows(fastfill: Fastfill) -> None:
    """A few of them, and how many: --json has them all."""
    start(fastfill)
    fastfill("backfill", URL)
    table = lancedb.connect("db").open_table("photos")
    table.update(where="id >= 20", values={"vector_new": [1.0] + [0.0] * 7})
    checked = fastfill("verify", URL, "--sample", "200", "--seed", "1")
    assert checked.exit_code == 4
    named = next(line for line in checked.output.splitlines() if "Wrong new rows: " in line)
    assert "… (180 in all)" in named
    assert "Restore the model that they were embedded by" in checked.output
    assert "Next: fastfill backfill" not in checked.output
    few = json.loads(fastfill("verify", URL, "--sample", "30", "--json").stdout)
    assert 20 <= len(few["wrong_new"]) <= 30


def test_another_model_under_the_same_name(
    fastfill: Fastfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused by a backfill, and by a complete unless --no-encoder says not to ask it."""
    start(fastfill)
    toy_encoder = sys.modules["toy_encoder"]
    encode = toy_encoder.encode

    def reverse(texts: Any) -> Any:
        return encode(texts)[:, ::-1]

    with monkeypatch.context() as patch:
        patch.setattr(toy_encoder, "encode", reverse)
        refused = fastfill("backfill", URL)
        assert refused.exit_code == 1
        assert "8 of 8 new rows" in str(refused.exception)
    assert "200/200" in fastfill("backfill", URL).output
    monkeypatch.setattr(toy_encoder, "encode", reverse)
    assert "complete --no-encoder" in str(fastfill("complete", URL).exception)
    done = fastfill("complete", URL, "--no-encoder")
    assert "Complete: the column 'vector_new' is the gallery" in done.output


def test_complete_without_the_model(fastfill: Fastfill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the encoder cannot be loaded any more, a line says that nothing was compared."""
    start(fastfill)
    fastfill("backfill", URL)
    monkeypatch.delattr(sys.modules["toy_encoder"], "encode")
    done = fastfill("complete", URL)
    assert done.exit_code == 0
    assert "No new row was embedded again to compare it: toy_encoder:encode" in done.output
    assert "could not be loaded" not in fastfill("complete", URL, "--drop-old").output


def test_a_cut_over_and_back(fastfill: Fastfill) -> None:
    """The new vectors get the name, give it back, and keep it when the old ones are dropped."""
    start(fastfill)
    fastfill("backfill", URL)
    swapped = fastfill("complete", URL, "--swap")
    assert "the column 'vector' is the gallery" in swapped.output
    assert "Back: fastfill swap-back" in swapped.output
    assert "200/200" in fastfill("status", URL).output
    back = fastfill("swap-back", URL, "--json")
    assert "the new vectors are in 'vector_new' again" in back.stderr
    told = json.loads(back.stdout)
    assert (told["column"], told["late_writes"]) == ("vector_new", [])
    assert fastfill("complete", URL, "--swap", "--drop-old").exit_code == 0
    schema = lancedb.connect("db").open_table("photos").schema
    assert schema.names == ["id", "text", "vector"]
    assert schema.field("vector").type.list_size == 8
    assert "the old vectors have been dropped" in str(fastfill("swap-back", URL).exception)


def test_status_says_what_is_where_after_the_end(fastfill: Fastfill) -> None:
    """How to serve, whether the columns are swapped, and whether the old vectors are there."""
    start(fastfill)
    fastfill("backfill", URL)
    for options, line in (
        ([], "The new vectors are in 'vector_new'; the old ones are still there, in 'vector'."),
        (["--swap"], "The new vectors are in 'vector', which they were given in the old ones' "
         "place; the old ones are still there, in 'vector_old'."),
        (["--drop-old"], "The new vectors are in 'vector', which they were given in the old ones' "
         "place; the old ones have been dropped."),
    ):  # fmt: skip
        assert fastfill("complete", URL, *options).exit_code == 0
        told = fastfill("status", URL).output
        assert "serve with: the new model (" in told
        assert line in told
        assert (
            json.loads(fastfill("status", URL, "--json").stdout)["serving"]["serving"] == "aligned"
        )


def test_status_says_why_runs_wait(fastfill: Fastfill) -> None:
    """Where a run has reported, a line says what it does, waits for, or when it was heard of."""
    start(fastfill)
    assert "Stopped" not in fastfill("status", URL).output
    job, now = open_by_url(URL, encode=False)._job, time.time()
    reason = "for the encoder, which asked to try again in 90 s"
    for report, line in (
        (WorkerReport(now, reason=reason), f"Waiting: F{reason[1:]}."),
        (WorkerReport(now), "Backfilling."),
        (WorkerReport(now - 40), "No news: ann was last heard of 4"),
        (WorkerReport(now - 120), "Stopped: ann was last heard of 2 min ago."),
    ):
        WorkerReports.put(job.store, "ann", report)
        assert line in fastfill("status", URL).output


def test_status_is_one_json_object(fastfill: Fastfill) -> None:
    """Programs get counts, the phase and the audit trail on stdout."""
    start(fastfill)
    status = json.loads(fastfill("status", URL, "--json").stdout)
    assert status["phase"] == "started"
    assert (status["progress"]["new"], status["progress"]["aligned"]) == (60, 140)
    assert [event["event"] for event in status["history"]] == ["opened", "aligned", "started"]


def test_pause_resume_and_rollback(fastfill: Fastfill) -> None:
    """A pause is told by status, a rollback leaves the owner's columns alone."""
    start(fastfill)
    assert "Next: fastfill resume" in fastfill("pause", URL).output
    assert "paused" in fastfill("status", URL).output
    assert "at most 50 rows per second" in fastfill("resume", URL, "--rate", "50/s").output
    gone = fastfill("rollback", URL, "--json")
    assert "Rolled back" in gone.stderr
    assert json.loads(gone.stdout)["phase"] == "rolled back"
    assert lancedb.connect("db").open_table("photos").schema.names == ["id", "text", "vector"]
    assert "no migration is open" in fastfill("status", URL).output


def test_items_set_aside_are_listed(fastfill: Fastfill) -> None:
    """Poison items end a backfill with their list and exit code 4."""
    start(fastfill, "picky")
    result = fastfill("backfill", URL)
    assert result.exit_code == 4
    assert "7: ValueError: cannot read" in result.output
    for command in (["backfill", URL], ["status", URL], ["verify", URL]):
        assert f"backfill '{URL}' --retry-failed" in fastfill(*command).output
    assert "complete --partial keeps these for good" in result.output


def test_refits_are_shown(fastfill: Fastfill) -> None:
    """`--refit` sets the step or none; status counts the maps, the audit trail tells of each."""
    start(fastfill)
    assert fastfill("backfill", URL, "--budget", "80", "--refit", "never").exit_code == 0
    assert "learned again" not in fastfill("status", URL).output
    assert fastfill("backfill", URL, "--refit", "often").exit_code != 0
    assert fastfill("backfill", URL, "--budget", "30", "--refit", "50%").exit_code == 0
    status = json.loads(fastfill("status", URL, "--json").stdout)
    tried = [e for e in status["history"] if e["event"] in ("refitted", "refit thrown away")]
    assert len(tried) == 1
    assert {"before", "after", "pairs", "held_out", "metric"} <= set(tried[0])
    assert status["refits"] == (tried[0]["event"] == "refitted")


def test_a_backfill_ends_at_a_quality(fastfill: Fastfill) -> None:
    """`--until` stops when the quality is enough; plan and status tell forecast and measured."""
    start(fastfill)
    lancedb.connect("db").open_table("photos").add_columns({"album": "id % 4"})
    plan = fastfill("plan", URL, "--label", "album").output
    assert "map: 95 % of the new model at " in plan
    assert f"Next: fastfill backfill '{URL}'" in plan  # it has been started
    result = fastfill("backfill", URL, "--until", "0.5", "--metric", "map", "--label", "album")
    assert result.exit_code == 0, result.output
    assert "of the new model's map." in result.output
    assert "Next: fastfill complete 'lance://./db#photos.vector' --partial" in result.output
    assert "; measured 0." in fastfill("status", URL).output
    status = json.loads(fastfill("status", URL, "--json").stdout)
    assert status["progress"]["new"] < 200
    assert status["forecast"]["measured"][-1][0] == pytest.approx(status["progress"]["fraction"])


def test_agreement_comes_with_a_warning(fastfill: Fastfill) -> None:
    """Without labels the metric must be named, and the command says what that implies."""
    start(fastfill)
    refused = fastfill("backfill", URL, "--until", "0.99")
    assert refused.exit_code != 0
    assert "--metric agreement@10" in str(refused.exception)
    result = fastfill("backfill", URL, "--until", "0.9", "--metric", "agreement@10")
    assert "reaches 0.99 only near the end" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "nowhere#a.b"), "not the URL of a store"),
        (("plan", "lance://./db"), "does not name what to migrate"),
        (("plan", "lance://./db#nobody.vector"), "no table 'nobody'"),
        (("plan", "lance://./db#photos.nothing"), "no column 'nothing'"),
        (("plan", URL), "--encoder"),
        (("plan", URL, "--encoder", "missing_module:f"), "cannot be imported"),
        (("plan", URL, "--encoder", "toy_encoder:nothing"), "no function 'nothing'"),
        (("plan", URL, "--input", "caption", "--encoder", "toy_encoder:encode"), "'caption'"),
        (("plan", URL, "--where", "id=1", "--encoder", "toy_encoder:encode"), "as a whole"),
        (("backfill", URL), "--encoder"),
        (("complete", URL), "no migration is open"),
    ],
)
def test_errors_say_what_is_wrong(fastfill: Fastfill, arguments: Any, words: str) -> None:
    """A mistake is one sentence with the way out."""
    result = fastfill(*arguments)
    assert result.exit_code != 0
    assert words in f"{result.output}{result.exception}"


def test_sigterm_ends_cleanly_after_a_batch(fastfill: Fastfill) -> None:
    """A backfill that is told to end does so with exit code 3, and its work counts."""
    start(fastfill)
    command = "from fastfill.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "backfill", URL, "--rate", "20", "--no-throttle"],
        env={"PYTHONPATH": f"{SRC}:{Path.cwd()}", "PATH": "/usr/bin", "HOME": str(Path.cwd())},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("backfill:"):
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    words = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) == 3
    assert "Run the same command again" in words
    status = json.loads(fastfill("status", URL, "--json").stdout)
    assert status["progress"]["new"] > 60
