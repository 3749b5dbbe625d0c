"""`rollback` where there is nothing to roll back, and beside a run, on LanceDB."""

from __future__ import annotations

from pathlib import Path

import lance_photos
import pytest
from lance_photos import START, URL, Fastfill, commands_in, create, encode, table

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


def test_nothing_is_rolled_back_where_nothing_was_started(fastfill: Fastfill) -> None:
    """A slip in the URL is told; a rollback that is given again has nothing to do."""
    assert "there is no migration, so" in str(fastfill("rollback", URL).exception)
    assert fastfill(*START).exit_code == 0
    slip = fastfill("rollback", URL.replace("vector", "vektor"))
    assert slip.exit_code == 1
    assert "no migration, and no column 'vektor'" in str(slip.exception)
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
