"""`fastfill compare`: several alignments and orders, with significance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from evaluation_files import write_gallery
from test_cli_curve import answer, refusal, run

from fastfill.align import Alignment
from fastfill.cli.compare import ComparedEntry
from fastfill.features import Features, Pairs
from fastfill.order import Order, write_order


@pytest.fixture
def gallery_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small gallery, where the commands run."""
    monkeypatch.chdir(tmp_path)
    return write_gallery(tmp_path)


ON = "--new new.npy --labels labels.npy --points 5 --metrics map"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.safetensors", ("", "a.safetensors", "")),
        ("a.safetensors@sigma", ("", "a.safetensors", "sigma")),
        ("x=d=1/e@2/H.npz:key@o.parquet", ("x", "d=1/e@2/H.npz:key", "o.parquet")),
        ("/d=1/H.npy", ("", "/d=1/H.npy", "")),
        ("my name=H.npy@traffic:sigma", ("my name", "H.npy", "traffic:sigma")),
    ],
)
def test_an_entry_is_taken_apart(text: str, parts: tuple[str, str, str]) -> None:
    """Name, file and order are told apart, also where folders have odd names."""
    entry = ComparedEntry.parse(text)
    assert (entry.name, entry.source, entry.order) == parts


def test_every_entry_is_compared_with_the_baseline(gallery_files: Path) -> None:
    """New vectors beat aligned ones significantly, and themselves not at all."""
    np.save("copy.npy", np.load("H.npy"))
    found = answer(f"compare H.npy@random copy.npy@random best=new.npy@random {ON}")
    assert [one["name"] for one in found["curves"]] == ["H random", "copy random", "best"]
    same, better = found["comparisons"]
    assert (same["a"], same["b"], same["difference"]) == ("copy random", "H random", 0.0)
    assert not same["significant"]
    assert better["a"] == "best"
    assert better["significant"]
    assert better["low"] > 0


def test_entries_without_an_order_get_the_policies(gallery_files: Path) -> None:
    """A gallery with a variance gets sigma and random, one without only random."""
    found = answer(f"compare ours=H.npy plain=H.npy --variance ours=V.npy {ON} --seeds 2")
    names = list(dict.fromkeys(one["name"] for one in found["curves"]))
    assert names == ["ours sigma", "ours random", "plain random"]
    assert list(found["kendall_tau"]) == ["ours"]


def test_orders_from_files_and_a_chosen_baseline(gallery_files: Path) -> None:
    """An order's file stands behind the @; any row can be the baseline."""
    write_order(Order(np.arange(60)), gallery_files / "asis.parquet")
    found = answer(f"compare H.npy@asis.parquet H.npy@random --baseline 'H asis' {ON}")
    assert [(one["a"], one["b"]) for one in found["comparisons"]] == [("H random", "H asis")]


def test_the_terminal_shows_gains(gallery_files: Path) -> None:
    """People see gain, interval and p beside the table."""
    shown = run(f"compare H.npy@random new.npy@random {ON}").stdout
    assert "Gain of area over H random, in points" in shown
    assert "95 % interval" in shown
    assert "▲" in shown


def test_alignments_of_ours_side_by_side(gallery_files: Path) -> None:
    """Alignments and matrices stand in one table; different distances must be settled."""
    pairs = Pairs(Features(np.load("old.npy")), Features(np.load("new.npy")))
    Alignment.fit(pairs, method="ridge").save("ridge.safetensors")
    Alignment.fit(pairs, method="procrustes", distance="cosine").save("turn.safetensors")
    entries = "compare ridge.safetensors turn.safetensors@sigma H.npy@random --old old.npy"
    assert "choose a --distance" in refusal(f"{entries} {ON}")
    found = answer(f"{entries} {ON} --distance l2 -o out")
    names = [one["name"] for one in found["curves"]]
    assert names == ["ridge sigma", "ridge random", "turn sigma", "H random"]
    assert found["comparisons"][0]["b"] == "ridge random"
    assert (gallery_files / "out" / "sigma-2.svg").exists()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (f"compare {ON}", "Missing argument"),
        (f"compare a.safetensors {ON} --old old.npy", "a.safetensors"),
        (f"compare H.npy H.npy {ON}", "Several orders are called H random"),
        (f"compare H.npy@sigma {ON}", "'sigma' needs --variance"),
        (f"compare H.npy@best {ON}", "Unknown policy 'best'"),
        (f"compare H.npy@none.parquet {ON}", "none.parquet: no such file"),
        (f"compare H.npy {ON} --variance V.npy", "write it NAME=FILE"),
        (f"compare H.npy {ON} --variance G=V.npy", "no aligned gallery is called 'G'"),
        (f"compare H.npy {ON} --baseline best", "No order is called 'best'"),
        (f"compare H.txt {ON}", "H.txt: no such file"),
    ],
)
def test_wrong_combinations_are_refused(gallery_files: Path, command: str, reason: str) -> None:
    """Each refusal says what to write instead."""
    assert reason in refusal(command)


def test_alignments_need_the_old_vectors(gallery_files: Path) -> None:
    """An alignment without --old has nothing to map."""
    pairs = Pairs(Features(np.load("old.npy")), Features(np.load("new.npy")))
    Alignment.fit(pairs, method="ridge").save("ridge.safetensors")
    assert "need --old" in refusal(f"compare ridge.safetensors {ON}")


def test_entries_are_compared_in_each_way_to_serve(gallery_files: Path) -> None:
    """The old search is one row; aligned vectors alone have nothing to fuse by."""
    old, new = (Features(np.load(f"{name}.npy")) for name in ("old", "new"))
    methods = ("ridge", "procrustes")
    for method in methods:
        Alignment.fit(Pairs(old, new), method=method).save(f"{method}.safetensors")
    entries = "ridge.safetensors@random procrustes.safetensors@random --old old.npy"
    found = answer(f"compare {entries} {ON} --serving old,aligned,both")
    assert [one["name"] for one in found["curves"]] == [
        "old",
        *(f"{name} random {way}" for name in methods for way in ("aligned", "both")),
    ]
    mixed = f"compare ridge.safetensors@random H.npy@random --old old.npy {ON} --serving both"
    assert "needs the reference pairs of an alignment" in refusal(mixed)
