"""`fastfill order`: an order from files, and what a pilot of the gallery teaches it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fastfill.align import Alignment, pilot_errors
from fastfill.cli.main import commands, load_commands
from fastfill.errors import FastFillError
from fastfill.features import Features, Pairs
from fastfill.order import PolicyInput, arrange, read_order


def order(*args: object) -> Result:
    """The command in this process."""
    words = ["order", *map(str, args)]
    return CliRunner().invoke(commands, words, catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An alignment, its pairs, a gallery of 300 items and a pilot of 80 of them."""
    load_commands()
    rng = np.random.default_rng(0)
    old = rng.normal(size=(600, 6)).astype(np.float32)
    new = old + np.abs(old[:, :1]) * rng.normal(size=old.shape).astype(np.float32)
    rows = rng.permutation(300)[:80]
    arrays = {"pairs-old": old[300:], "pairs-new": new[300:], "gallery": old[:300],
              "pilot": new[rows], "rows": rows}  # fmt: skip
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    pairs = Pairs(Features(old[300:]), Features(new[300:]))
    Alignment.fit(pairs, method="ridge").save(tmp_path / "a.safetensors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_pilot_changes_the_order_as_the_library_does(folder: Path) -> None:
    """The order is that of `pilot_errors` with the same pilot and pairs."""
    result = order(
        "a.safetensors", "gallery.npy", "--policy", "sigma", "-o", "o.parquet", "--pilot",
        "pilot.npy", "--pilot-ids", "rows.npy", "--pairs-old", "pairs-old.npy",
        "--pairs-new", "pairs-new.npy",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    alignment = Alignment.load("a.safetensors")
    gallery, rows = np.load("gallery.npy"), np.load("rows.npy")
    pairs = Pairs(Features(np.load("pairs-old.npy")), Features(np.load("pairs-new.npy")))
    plain = alignment(gallery)
    taught = pilot_errors(plain, gallery, rows, np.load("pilot.npy"), pairs=pairs)
    written = read_order("o.parquet").positions
    assert np.array_equal(written, arrange("sigma", PolicyInput(taught)).positions)
    assert not np.array_equal(written, arrange("sigma", PolicyInput(plain)).positions)


def test_a_parquet_pilot_brings_its_ids(folder: Path) -> None:
    """Items are found by their ids, in whatever order the pilot has them."""
    gallery, rows, new = np.load("gallery.npy"), np.load("rows.npy"), np.load("pilot.npy")
    names = np.array([f"item-{row}" for row in range(len(gallery))])
    for file, ids, vectors in (("g", names, gallery), ("p", names[rows], new)):
        table = {"id": pa.array(ids.tolist()), "vector": pa.array(vectors.tolist())}
        pq.write_table(pa.table(table), f"{file}.parquet")
    order("a.safetensors", "g.parquet", "--policy", "sigma", "-o", "1.parquet",
          "--pilot", "p.parquet")  # fmt: skip
    order("a.safetensors", "gallery.npy", "--policy", "sigma", "-o", "2.parquet",
          "--pilot", "pilot.npy", "--pilot-ids", "rows.npy")  # fmt: skip
    by_id, by_row = read_order("1.parquet", ids=names), read_order("2.parquet")
    assert np.array_equal(by_id.positions, by_row.positions)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--pilot pilot.npy", "pilot.npy does not say which items it holds: give --pilot-ids"),
        ("--pilot-ids rows.npy", "--pilot-ids belongs to a pilot"),
        ("--pairs-new pairs-new.npy", "--pairs-new belongs to a pilot"),
        ("--pilot pilot.npy --pairs-new pairs-new.npy", "give --pairs-old too"),
        ("--pilot pilot.npy --pilot-ids wrong.npy", "wrong.npy: the gallery has no items 300"),
        ("--pilot few.npy --pilot-ids few-rows.npy", "A pilot of 10 items is too small"),
        ("--pilot pilot.npy --pilot-ids twice.npy", "twice.npy: duplicate ids "),
        ("--pilot pilot.npy --pilot-ids texts.npy", "texts.npy: the ids are texts, those of "),
    ],
)
def test_half_a_pilot_is_refused(folder: Path, words: str, said: str) -> None:
    """What is missing or does not belong to the gallery is named, with the way out."""
    rows = np.load("rows.npy")
    np.save("wrong.npy", np.r_[300, rows[1:]])
    np.save("twice.npy", np.r_[rows[1], rows[1:]])
    np.save("texts.npy", rows.astype(str))
    np.save("few.npy", np.load("pilot.npy")[:10])
    np.save("few-rows.npy", rows[:10])
    with pytest.raises(FastFillError) as caught:
        commands.main(["order", "a.safetensors", "gallery.npy", "-o", "o.parquet", *words.split()],
                      standalone_mode=False)  # fmt: skip
    assert said in str(caught.value)


def test_pairs_may_be_views_and_a_pilot_may_bring_its_ids(folder: Path) -> None:
    """Of several views of the pairs the first counts; an `.npz` names its rows."""
    given = {name: np.load(f"{name}.npy") for name in ("pairs-old", "pairs-new", "pilot", "rows")}
    for name in ("pairs-old", "pairs-new"):
        np.save(f"{name}-views.npy", np.stack([given[name], given[name] + 1]))
    np.savez("pilot.npz", vectors=given["pilot"], ids=given["rows"])
    order("a.safetensors", "gallery.npy", "-o", "1.parquet", "--pilot", "pilot.npy",
          "--pilot-ids", "rows.npy", "--pairs-old", "pairs-old.npy", "--pairs-new",
          "pairs-new.npy")  # fmt: skip
    order("a.safetensors", "gallery.npy", "-o", "2.parquet", "--pilot", "pilot.npz:vectors",
          "--pairs-old", "pairs-old-views.npy", "--pairs-new", "pairs-new-views.npy")  # fmt: skip
    order("a.safetensors", "gallery.npy", "-o", "3.parquet", "--policy", "novelty",
          "--pairs-old", "pairs-old-views.npy")  # fmt: skip
    order("a.safetensors", "gallery.npy", "-o", "4.parquet", "--policy", "novelty",
          "--pairs-old", "pairs-old.npy")  # fmt: skip
    positions = [read_order(f"{number}.parquet").positions for number in range(1, 5)]
    assert np.array_equal(positions[0], positions[1])
    assert np.array_equal(positions[2], positions[3])
    assert not np.array_equal(positions[0], positions[2])
