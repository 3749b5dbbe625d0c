"""Reading several views of the same items: pairing by id, and what does not belong together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastfill.align import Alignment
from fastfill.errors import FastFillError, IdError, ShapeError, ZeroVectorError
from fastfill.features import Pairs, PairView, PairViews, read_pairs

VIEWS, ITEMS = 4, 30
RNG = np.random.default_rng(0)
OLD = RNG.normal(size=(VIEWS, ITEMS, 3)).astype(np.float32)
NEW = RNG.normal(size=(VIEWS, ITEMS, 5)).astype(np.float32)
SIDE = RNG.normal(size=(VIEWS, ITEMS, 2)).astype(np.float32)
IDS = np.array([f"photo-{number}" for number in range(ITEMS)])
LABELS = np.arange(ITEMS)
SHUFFLED = RNG.permutation(ITEMS)


def write_old(folder: Path) -> str:
    np.savez(folder / "old.npz", views=OLD, ids=IDS)
    return f"{folder}/old.npz:views"


def write_new(folder: Path, rows: np.ndarray = SHUFFLED) -> str:
    np.savez(folder / "new.npz", views=NEW[:, rows], ids=IDS[rows])
    return f"{folder}/new.npz:views"


def same_views(pairs: Pairs, *, side: bool = False) -> None:
    assert pairs.views is not None
    for number in range(VIEWS):
        look = pairs.views.look(number)
        np.testing.assert_array_equal(look.old, OLD[number])
        np.testing.assert_array_equal(look.new, NEW[number])
        if side:
            np.testing.assert_array_equal(look.side, SIDE[number])


def test_views_with_ids_are_paired_by_id(tmp_path: Path) -> None:
    """Files in another order give the same pairs, in every view, with their labels."""
    np.save(tmp_path / "labels.npy", LABELS[SHUFFLED])
    pairs = read_pairs(write_old(tmp_path), write_new(tmp_path), tmp_path / "labels.npy")
    assert pairs.new.ids.tolist() == pairs.old.ids.tolist() == IDS.tolist()
    assert pairs.labels is not None
    assert pairs.labels.tolist() == LABELS.tolist()
    np.testing.assert_array_equal(pairs.new.vectors, NEW[0])
    same_views(pairs)


@pytest.mark.parametrize("with_views", [True, False], ids=["views", "plain"])
def test_side_information_is_found_by_id(tmp_path: Path, with_views: bool) -> None:
    """Of views as of vectors, whichever of the files is in another order."""
    values = SIDE[:, SHUFFLED] if with_views else SIDE[0, SHUFFLED]
    np.savez(tmp_path / "side.npz", side=values, ids=IDS[SHUFFLED])
    pairs = read_pairs(write_old(tmp_path), write_new(tmp_path), side=f"{tmp_path}/side.npz:side")
    assert pairs.side is not None
    np.testing.assert_array_equal(pairs.side, SIDE[0])
    same_views(pairs, side=with_views)


def test_side_information_of_plain_pairs_is_found_by_id(tmp_path: Path) -> None:
    """One vector for each item, and the third model's in another order."""
    np.savez(tmp_path / "old.npz", vectors=OLD[0], ids=IDS)
    np.savez(tmp_path / "new.npz", vectors=NEW[0], ids=IDS)
    np.savez(tmp_path / "side.npz", vectors=SIDE[0, SHUFFLED], ids=IDS[SHUFFLED])
    files = [f"{tmp_path}/{name}.npz:vectors" for name in ("old", "new", "side")]
    pairs = read_pairs(files[0], files[1], side=files[2])
    np.testing.assert_array_equal(pairs.side, SIDE[0])


def test_views_without_the_same_ids_are_refused(tmp_path: Path) -> None:
    """An item that one of the models has not seen; ids on one side only."""
    old = write_old(tmp_path)
    with pytest.raises(IdError, match=r"has no vector for 1 ids of .*: photo-29"):
        read_pairs(old, write_new(tmp_path, np.arange(ITEMS - 1)))
    np.save(tmp_path / "new.npy", NEW)
    with pytest.raises(IdError, match=r"are texts and those of .* are numbers"):
        read_pairs(old, tmp_path / "new.npy")


def test_a_file_without_a_view_is_refused(tmp_path: Path) -> None:
    """By its name and its shape."""
    np.save(tmp_path / "old.npy", OLD[:0])
    np.save(tmp_path / "new.npy", NEW[:0])
    with pytest.raises(ShapeError, match=r"old.npy: holds no views, its shape is \(0, 30, 3\)"):
        read_pairs(tmp_path / "old.npy", tmp_path / "new.npy")


def generated(make: object) -> Pairs:
    views = PairViews.generated(VIEWS, make)  # type: ignore[arg-type]
    plain = Pairs.from_views(OLD[:1], NEW[:1])
    return Pairs(plain.old, plain.new, views=views)


def test_a_function_that_makes_no_view_is_named() -> None:
    """Two arrays are not a `PairView`."""
    with pytest.raises(FastFillError, match=r"View 0 is a tuple: .* return PairView\(old, new\)"):
        generated(lambda number: (OLD[number], NEW[number]))


def test_a_later_view_of_other_items_is_refused() -> None:
    """The first view fits, the third has lost its last items: also where some rows are taken."""

    def make(number: int) -> PairView:
        rows = slice(None, 20 if number == 2 else None)
        return PairView(OLD[number, rows], NEW[number, rows])

    some = generated(make).take(np.arange(10, 30)).views
    assert some is not None
    np.testing.assert_array_equal(some.look(1).new, NEW[1, 10:])
    with pytest.raises(ShapeError, match=r"View 2 has old vectors of shape \(20, 3\) where "):
        some.look(2)


def test_the_own_rows_of_zero_vectors_in_a_view_are_named() -> None:
    """Maps are learned on folds, whose rows have other numbers."""
    old, new = np.tile(OLD, (1, 10, 1)), np.tile(NEW, (1, 10, 1))
    old[3, [7, 207]] = 0
    for method in ("ridge", "kernel", "residual"):
        with pytest.raises(ZeroVectorError, match=r"view 3: .* in rows 7, 207"):
            Alignment.fit(Pairs.from_views(old, new), method=method, distance="cosine")
