"""Commands that are given again, too early or too late: what is refused, told, and comes next."""

from __future__ import annotations

from pathlib import Path

import lance_photos
import numpy as np
import pytest
from lance_photos import OPTIONS, START, URL, Fastfill, commands_in, create, encode, table

from fastfill.cli.opening import open_by_url
from fastfill.wiring import connect

pytest.importorskip("lancedb", reason="LanceDB is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture
def fastfill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastfill:
    """Run the command beside a gallery."""
    run = commands_in(tmp_path, monkeypatch)
    create()
    return run


@pytest.fixture
def started(fastfill: Fastfill) -> Fastfill:
    """The same, with a migration that has started."""
    assert fastfill(*START).exit_code == 0
    return fastfill


@pytest.mark.parametrize(
    ("verb", "option", "was", "given"),
    [
        ("start", "distance", "l2", "cosine"),
        ("start", "input", "text", "album"),
        ("start", "id", "id", "album"),
        ("start", "method", "ridge", "kernel"),
        ("pairs", "distance", "l2", "cosine"),
        ("plan", "distance", "l2", "cosine"),
        ("plan", "input", "text", "album"),
    ],
)
def test_what_was_decided_at_the_start_stays(
    started: Fastfill, verb: str, option: str, was: str, given: str
) -> None:
    """Another value is refused with both values and the way out, the same one is not."""
    before = table().version
    refused = started(verb, URL, f"--{option}", given)
    assert refused.exit_code == 1
    told = str(refused.exception)
    assert f"was started with --{option} {was}, and --{option} {given} is another one" in told
    assert "run fastfill rollback and start again" in told
    assert table().version == before
    assert started(verb, URL, f"--{option}", was).exit_code == 0


def test_a_start_is_given_again(started: Fastfill) -> None:
    """The same command line goes on without a word about its options."""
    again = started(*START)
    assert again.exit_code == 0, again.output
    assert "change nothing" not in again.output
    assert "Aligned 0 rows" in again.output


def test_what_changes_and_what_does_not_is_told(started: Fastfill) -> None:
    """Another order is taken from now on; pairs come too late for a map that is learned."""
    pairs = started("start", URL, "--pairs", "30")
    assert pairs.exit_code == 0
    assert "The map is learned already, so that 30 pairs change nothing." in pairs.output
    order = started("start", URL, "--policy", "sigma")
    assert "The order of backfilling is 'sigma' from now on." in order.output
    assert "The order" not in started("start", URL, "--policy", "sigma").output
    state = connect(URL).state
    assert state is not None
    assert state.policy == "sigma"


def test_the_next_command_is_one_that_works(started: Fastfill) -> None:
    """Start and plan at 100 % and on a complete gallery say what stands there, and what is next."""
    assert "Next: fastfill backfill" in started(*START).output
    assert started("backfill", URL).exit_code == 0
    assert "Next: fastfill complete" in started(*START).output
    told = str(started("plan", URL).exception)
    assert "is started: all 200 rows are new by lance_photos:encode" in told
    assert "Next: fastfill complete" in told
    assert started("complete", URL).exit_code == 0
    assert "Next: fastfill status" in started(*START).output
    told = str(started("plan", URL, *OPTIONS).exception)
    assert "is complete: all 200 rows are new" in told
    assert "Next: fastfill status" in told


def test_a_plan_leaves_out_rows_that_cannot_be_embedded(started: Fastfill) -> None:
    """They are not what is missing: their column was named."""
    late = table().to_arrow().slice(0, 2).select(["id", "text", "vector"])
    late = late.set_column(0, "id", [[500, 501]]).set_column(1, "text", [[None, None]])
    table().add(late)
    started("backfill", URL)
    told = str(started("plan", URL).exception)
    assert "200 of 202 rows are new" in told
    assert "the others have no old vector or no input" in told


def test_verify_of_a_start_that_has_not_ended_names_the_start(started: Fastfill) -> None:
    """A backfill is refused then."""
    from fastfill.gallery import set_phase

    set_phase(connect(URL).store, "starting")
    table().update(where="id = 5", values={"text": "another text"})
    looked = started("verify", URL)
    assert looked.exit_code == 4
    assert "Next: fastfill start" in looked.output


def test_closed_galleries_are_given_other_columns(started: Fastfill) -> None:
    """What follows a closed migration is another one, whose columns may be others."""
    assert started("backfill", URL).exit_code == 0
    assert started("complete", URL, "--swap", "--drop-old").exit_code == 0
    whole = table().to_arrow()
    captions = [f"caption {n}" for n in range(len(whole))]
    import lancedb

    rows = whole.append_column("caption", [captions])
    lancedb.connect("db").create_table("photos", rows, mode="overwrite")
    third = ("--encoder", "lance_photos:third", "--input", "caption")
    assert started("start", URL, *third, "--pairs", "60", "--method", "ridge").exit_code == 0
    assert started("backfill", URL).exit_code == 0
    rows = table().to_arrow()
    vectors = np.stack(rows["vector_new"].to_numpy(zero_copy_only=False))
    np.testing.assert_allclose(vectors, lance_photos.third(rows["caption"].to_pylist()), rtol=1e-5)


def test_nothing_is_rolled_back_where_nothing_was_started(fastfill: Fastfill) -> None:
    """A slip in the URL is told; a rollback that is given again has nothing to do."""
    assert "there is no migration, so" in str(fastfill("rollback", URL).exception)
    assert fastfill(*START).exit_code == 0
    slip = fastfill("rollback", URL.replace("vector", "vektor"))
    assert slip.exit_code == 1
    assert "there is no column 'vektor', only" in str(slip.exception)
    assert "Rolled back" in fastfill("rollback", URL).output
    again = fastfill("rollback", URL)
    assert again.exit_code == 0
    assert "It was rolled back before: nothing is left to do." in again.output


def test_a_rollback_while_a_run_works(started: Fastfill, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends with one sentence, as after a stop, and leaves nothing behind."""

    def roll_back() -> None:
        if "vector_new" in table().schema.names:
            open_by_url(URL, encode=False).rollback()

    def roll_back_beside(texts: list[str]) -> object:
        roll_back()
        return encode(texts)

    monkeypatch.setattr(lance_photos, "encode", roll_back_beside)
    ended = started("backfill", URL)
    assert ended.exit_code == 3, ended.output
    assert "has been rolled back while this run worked on it" in ended.output
    assert table().schema.names == ["id", "album", "text", "vector"]
    names = connect(URL).store.names("")
    assert [name for name in names if not name.startswith("audit/")] == ["state"]
