"""Verbs after `complete --drop-old`: what is refused, and how to go on from there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lance_photos import OPTIONS, ROWS, START, URL, Fastfill, commands_in, create, table, third

from fastfill.gallery import change_state
from fastfill.wiring import connect

pytest.importorskip("lancedb", reason="LanceDB is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

THIRD = ("--input", "text", "--encoder", "lance_photos:third", "--distance", "l2")


@pytest.fixture(scope="module")
def all_new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a gallery, every row of which is new."""
    folder = tmp_path_factory.mktemp("all_new")
    with pytest.MonkeyPatch.context() as patch:
        run = commands_in(folder, patch)
        create()
        assert run(*START).exit_code == 0
        assert run("backfill", URL).exit_code == 0
    return folder


@pytest.fixture
def fastfill(all_new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastfill:
    """Run the command beside a copy of that gallery."""
    shutil.copytree(all_new, tmp_path, dirs_exist_ok=True)
    return commands_in(tmp_path, monkeypatch)


def ended(fastfill: Fastfill, *options: str) -> Any:
    """Complete it, and drop the old vectors."""
    result = fastfill("complete", URL, "--drop-old", *options)
    assert result.exit_code == 0, result.output
    return result


VERBS = [
    START, ("pairs", URL), ("plan", URL), ("verify", URL), ("backfill", URL), ("pause", URL),
    ("resume", URL), ("plan", URL, *OPTIONS),
]  # fmt: skip


@pytest.mark.parametrize("swap", [True, False])
def test_what_has_ended_is_left_alone(fastfill: Fastfill, swap: bool) -> None:
    """Each verb says in one sentence that it has, names the way out, and changes nothing."""
    ended(fastfill, *(["--swap"] if swap else []))
    before = table()
    for verb in VERBS:
        refused = fastfill(*verb)
        assert refused.exit_code == 1, verb
        told = str(refused.exception)
        assert "is complete and its old vectors have been dropped, so that nothing is left" in told
        assert ("another --encoder" if swap else "the column 'vector_new' as the old one") in told
    assert table().version == before.version
    assert table().schema.names == before.schema.names
    assert "complete: 200/200" in fastfill("status", URL).output


def test_a_swap_comes_too_late(fastfill: Fastfill) -> None:
    """Once the old vectors are gone their name is not exchanged; completing again is no error."""
    ended(fastfill)
    refused = fastfill("complete", URL, "--swap")
    assert "the old vectors have been dropped, and --swap exchanges" in str(refused.exception)
    assert table().schema.names == ["id", "album", "text", "vector_new"]
    assert fastfill("complete", URL).exit_code == 0
    assert fastfill("complete", URL, "--drop-old").exit_code == 0
    assert "complete: 200/200" in fastfill("status", URL).output


def test_an_attempt_of_an_earlier_version_is_forgotten(fastfill: Fastfill) -> None:
    """It left the migration in a swap that could neither end nor be undone."""
    from dataclasses import replace

    ended(fastfill)
    store = connect(URL).store
    change_state(store, lambda state: replace(state, phase="completing", swapping=True))
    assert "--swap exchanges" in str(fastfill("complete", URL, "--swap").exception)
    assert fastfill("complete", URL).exit_code == 0
    assert "complete: 200/200" in fastfill("status", URL).output
    assert table().schema.names == ["id", "album", "text", "vector_new"]


@pytest.mark.parametrize("swap", [True, False])
def test_the_way_out_leads_on(fastfill: Fastfill, swap: bool) -> None:
    """What is now the only column of vectors is upgraded to a third model, to the end."""
    ended(fastfill, *(["--swap"] if swap else []))
    url = URL if swap else URL.replace("vector", "vector_new")
    assert "200 rows, 8 → 5 dimensions" in fastfill("plan", url, *THIRD).output
    begun = fastfill("start", url, *THIRD, "--pairs", "60", "--method", "ridge")
    assert "Aligned 140 rows" in begun.output
    assert fastfill("backfill", url).exit_code == 0
    assert fastfill("verify", url).exit_code == 0
    assert "The old vectors are gone" in fastfill("complete", url, "--drop-old").output
    rows = table().to_arrow()
    name = "vector_new" if swap else "vector_new_new"
    assert rows.schema.names == ["id", "album", "text", name]
    vectors = np.stack(rows[name].to_numpy(zero_copy_only=False))
    np.testing.assert_allclose(vectors, third(rows["text"].to_pylist()), rtol=1e-5)


@pytest.mark.parametrize("swap", [True, False])
def test_doctor_looks_at_the_column_that_is_there(fastfill: Fastfill, swap: bool) -> None:
    """No row is said to have no vector, by any address that the gallery has had."""
    ended(fastfill, *(["--swap"] if swap else []))
    looked = fastfill("doctor", URL)
    assert f"{ROWS} rows; all of them" in looked.output
    assert "no vector" not in looked.output
    assert "vectors: all are there, finite and not zero" in looked.output


def test_the_way_back_is_told_where_there_is_one(fastfill: Fastfill) -> None:
    """Not where the old vectors have just been dropped."""
    assert "Back: fastfill swap-back" in fastfill("complete", URL, "--swap").output
    assert "swap-back" not in ended(fastfill, "--swap").output
