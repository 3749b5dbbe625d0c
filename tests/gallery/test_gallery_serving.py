"""A search by both models answers what scoring every item would."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_world import (
    COLUMNS,
    KINDS,
    NEW_DIM,
    OLD_DIM,
    make_fusion,
    make_store,
    obvious_scores,
    set_state,
)

from fastfill.errors import EncoderError, InputError, ShapeError, StoreError
from fastfill.features import DISTANCES, Distance
from fastfill.gallery import Gallery, Hits, MemoryStore, candidates_for, fuse_hits, objects

OLD = np.array([0.4, -0.2, 0.9], dtype=np.float32)
NEW = np.array([0.1, 0.7, -0.5, 0.3], dtype=np.float32)


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=25),
    distance=st.sampled_from(DISTANCES),
    seed=st.integers(0, 99),
    album=st.sampled_from([None, 0, 1]),
    k=st.integers(1, 30),
)
def test_with_all_candidates_the_answer_is_that_of_scoring_every_item(
    kinds: list[str], distance: Distance, seed: int, album: int | None, k: int
) -> None:
    """The k best by the definition, whatever vectors are missing, with minus their scores."""
    store = make_store(kinds, distance, seed)
    where = None if album is None else {"album": album}
    hits = Gallery(store).search(old=OLD, new=NEW, k=k, filter=where, candidates=99)
    scores = obvious_scores(store, make_fusion(distance, seed), OLD, NEW, album)
    best = sorted(scores.values(), reverse=True)[:k]
    np.testing.assert_allclose(-hits.distances, best, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose([scores[key] for key in hits.ids], best, rtol=1e-3, atol=1e-3)
    assert len(set(hits.ids)) == len(hits.ids)


def test_an_item_that_was_just_inserted_is_found_by_its_old_vector() -> None:
    """Without marks and an added vector, the item that the old model likes best is the answer."""
    store = make_store(["new", "aligned"] * 20)
    gallery = Gallery(store)
    gallery.upsert({"id": ["late"], "text": ["late"], "album": [0], "vector": [OLD]})
    hits = gallery.search(old=OLD, new=NEW, k=1)
    assert hits.ids.tolist() == ["late"]
    assert hits.generation.tolist() == [None]
    assert gallery.search(new=NEW, serving="aligned", k=40).ids.tolist().count("late") == 0


def test_a_row_that_changes_between_the_searches_counts_once() -> None:
    """It is taken as the later search saw it, with the generation that belongs to its vector."""
    near, far = np.float32([0.1]), np.float32([0.1])
    before = Hits(objects(["a"]), near, objects(["aligned"]), new=np.ones((1, NEW_DIM), "f"))
    later = Hits(objects(["a"]), far, objects(["new"]), old=np.ones((1, OLD_DIM), "f"))
    hits = fuse_hits(make_fusion("l2"), OLD, NEW, before, later, 3)
    assert hits.ids.tolist() == ["a"]
    assert hits.generation.tolist() == ["new"]


def test_a_search_that_fails_fails_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong on either side reaches the caller, and never half an answer."""
    store = make_store(["new", "aligned"])
    search = store.search
    for broken in ("old", "new"):

        def fail(*arguments: Any, side: Any, fails: str = broken, **options: Any) -> Hits:
            if side == fails:
                raise StoreError("the server has gone")
            return search(*arguments, side=side, **options)

        monkeypatch.setattr(store, "search", fail)
        with pytest.raises(StoreError, match="the server has gone"):
            Gallery(store).search(old=OLD, new=NEW)


def test_a_reader_learns_that_its_store_can_search_twice_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who was open before a start, and the indexes that it builds, searches in two threads then."""
    store = make_store(["new", "aligned"])
    search, describe = store.search, store.describe
    threads: set[int] = set()

    def watched(*arguments: Any, **options: Any) -> Hits:
        threads.add(threading.get_ident())
        return search(*arguments, **options)

    monkeypatch.setattr(store, "search", watched)
    monkeypatch.setattr("fastfill.gallery.gallery.FRESH", -1.0)
    gallery = Gallery(store)
    gallery.search(old=OLD, new=NEW)
    assert len(threads) == 1
    monkeypatch.setattr(store, "describe", lambda: replace(describe(), parallel=True))
    set_state(store, phase="completing", serving="both", fusion=gallery.state.fusion)  # type: ignore[union-attr]
    gallery.search(old=OLD, new=NEW)
    assert len(threads) == 2


def test_fewer_candidates_than_answers_are_refused() -> None:
    """Candidates are ten for each answer, at least fifty, and never fewer than the answers."""
    assert [candidates_for(k) for k in (1, 10, 100)] == [50, 100, 1000]
    with pytest.raises(InputError, match="10 answers cannot be chosen from 5 candidates"):
        Gallery(make_store(["new"])).search(old=OLD, new=NEW, candidates=5)


# --- how a gallery is served ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "drop_old", "serving", "expected"),
    [
        ("starting", False, "both", "old"),
        ("started", False, "both", "both"),
        ("started", False, "old", "old"),
        ("started", False, "aligned", "aligned"),
        ("started", True, "both", "both"),
        ("completing", False, "both", "both"),
        ("completing", True, "both", "aligned"),
        ("complete", False, "both", "both"),
        ("complete", True, "old", "aligned"),
        ("rolling back", False, "both", "old"),
        ("rolled back", False, "both", "old"),
    ],
)
def test_what_serves_follows_the_phase(
    phase: str, drop_old: bool, serving: str, expected: str
) -> None:
    """The old model until the start has ended; the new one alone once old vectors may be gone."""
    store = make_store(["new", "aligned"])
    set_state(store, phase=phase, drop_old=drop_old, serving=serving)
    assert Gallery(store).serving == expected


def test_without_a_migration_the_old_model_serves() -> None:
    """A gallery that nobody has touched is searched as ever, also by the old name of the query."""
    store = make_store(["new", "aligned"])
    store.remove(["state"])
    gallery = Gallery(store, distance="l2")
    assert gallery.serving == "old"
    assert gallery.search(OLD, k=1).ids.tolist() == gallery.search(vector=OLD, k=1).ids.tolist()


def test_only_the_vector_that_is_needed_is_used() -> None:
    """Of old= and new= each way to serve takes its own; the other one may be anything."""
    store = make_store(["new", "aligned"] * 5)
    gallery = Gallery(store)
    for serving, side, vector in (("old", "old", OLD), ("aligned", "new", NEW)):
        expected = store.search(vector, 3, side=side, distance="l2").ids.tolist()  # type: ignore[arg-type]
        set_state(store, serving=serving)
        gallery = Gallery(store)
        given: dict[str, Any] = {"old": [0.0], "new": [0.0], side: vector}
        assert gallery.search(k=3, **given).ids.tolist() == expected
        assert gallery.search(vector, k=3).ids.tolist() == expected


def test_queries_are_embedded_by_the_models_that_serve() -> None:
    """A text is embedded by one model or by both, as the serving needs, and by no other."""
    store = make_store(["new", "aligned"] * 5)
    asked: list[str] = []

    def embed(name: str, vector: Any) -> Any:
        return lambda texts: (asked.append(f"{name} {texts}"), [vector])[1]

    gallery = Gallery(store, query_old=embed("old", OLD), query_new=embed("new", NEW))
    expected = gallery.search(old=OLD, new=NEW).ids.tolist()
    assert asked == []
    assert gallery.search("a text").ids.tolist() == expected
    assert asked == ["old ['a text']", "new ['a text']"]
    gallery.search(b"bytes", serving="aligned")
    gallery.search("a text", serving="old")
    assert asked[2:] == ["new [b'bytes']", "old ['a text']"]
    assert gallery.search("a text", old=OLD).ids.tolist() == expected
    assert asked[4:] == ["new ['a text']"]


def test_what_a_search_lacks_is_named() -> None:
    """One sentence says which vector or encoder is missing, and where to give it."""
    gallery = Gallery(make_store(["new", "aligned"]), query_new=lambda texts: [NEW])
    for arguments, told in (
        ({"query": NEW, "serving": "both"}, "served by both models.*give old= and new="),
        ({"new": NEW}, "query under the old one is missing"),
        ({"query": "a text"}, r"Gallery\(…, query_old=function\)"),
        ({"old": OLD, "serving": "aligned"}, "by the new model: give new="),
        ({"query": NEW, "old": OLD}, "not all of them"),
        ({"query": NEW, "serving": "twice"}, "twice"),
    ):
        with pytest.raises(InputError, match=told):
            gallery.search(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("single", "side", "vector"), [("old", "old", OLD), ("aligned", "new", NEW)]
)
def test_one_vector_is_answered_by_the_better_model(single: str, side: Any, vector: Any) -> None:
    """Who can ask only one model gets the better of the two where both serve."""
    store = make_store(["new", "aligned"] * 5)
    set_state(store, serving="both", single=single)
    gallery = Gallery(store)
    assert (gallery.serving, gallery.side) == ("both", side)
    expected = store.search(vector, 3, side=side, distance="l2").ids.tolist()
    assert gallery.search(vector, k=3).ids.tolist() == expected


def test_wrong_shapes_are_named() -> None:
    """What an encoder or a caller gives is checked before any store is asked."""
    for wrong in ([OLD, OLD], OLD, [OLD[:2]], [[np.nan] * OLD_DIM], ["a"], [[1.0], [1.0, 2.0]]):
        gallery = Gallery(make_store(["new"]), query_old=lambda texts, w=wrong: w)
        with pytest.raises(EncoderError, match=r"^query_old returned"):
            gallery.search("a text", serving="old")
    gallery = Gallery(make_store(["new"]))
    with pytest.raises(ShapeError, match=r"old= has the shape \(4,\), .* of 3 numbers"):
        gallery.search(old=NEW, new=NEW)
    with pytest.raises(InputError, match="NaN"):
        gallery.search(old=OLD, new=NEW * np.nan)


def test_both_without_a_fusion_says_so() -> None:
    """A migration that has learned no fusion can be searched in the two other ways."""
    store = make_store(["new", "aligned"])
    set_state(store, serving="aligned")
    gallery = Gallery(store)
    with pytest.raises(InputError, match="has no fusion of its two models"):
        gallery.search(old=OLD, new=NEW, serving="both")


def test_a_fusion_is_read_once_and_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers take over a new fusion with the state that names it, and do not ask for it again."""
    from fastfill.gallery import save_fusion

    store = make_store(["new", "aligned"])
    loaded: list[str] = []
    load = store.load
    monkeypatch.setattr(store, "load", lambda name: (loaded.append(name), load(name))[1])
    monkeypatch.setattr("fastfill.gallery.gallery.FRESH", -1.0)
    gallery = Gallery(store)
    for _ in range(3):
        gallery.search(old=OLD, new=NEW)
    tag = save_fusion(store, make_fusion("l2", seed=5))
    set_state(store, serving="both", fusion=tag)
    for _ in range(3):
        gallery.search(old=OLD, new=NEW)
    names = [name for name in loaded if name.startswith("fusion/")]
    assert len(names) == len(set(names)) == 2
    assert gallery.fusion.to_bytes() == make_fusion("l2", seed=5).to_bytes()


def test_a_search_goes_on_when_the_old_vectors_are_dropped_under_it() -> None:
    """A reader that still believes in both models looks again, and asks the new one alone."""
    store = make_store(["new"] * 5)
    gallery = Gallery(store)
    gallery.search(old=OLD, new=NEW)
    set_state(store, phase="complete", drop_old=True, serving="both")
    store.search = broken_on_old(store)  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="no column"):
        Gallery(store).search(old=OLD, new=NEW, serving="old")
    assert len(gallery.search(old=OLD, new=NEW)) == 5
    assert gallery.serving == "aligned"


def test_one_vector_is_never_compared_with_another_models() -> None:
    """Where the way to serve has changed, a query for one model alone fails and is not reused."""
    store = make_store(["new"] * 5)
    set_state(store, serving="old")
    gallery = Gallery(store)
    gallery.search(OLD)
    set_state(store, phase="complete", drop_old=True, dim=OLD_DIM)
    store.search = broken_on_old(store)  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="no column"):
        gallery.search(OLD)


def broken_on_old(store: MemoryStore) -> Any:
    """The store's search where the old column is gone."""
    search = store.search

    def fail(*arguments: Any, side: Any, vectors: Any = False, **options: Any) -> Hits:
        if "old" in (side, vectors):
            raise StoreError("there is no column 'vector'")
        return search(*arguments, side=side, vectors=vectors, **options)

    return fail


def test_upserts_take_the_marks_off_and_keep_given_vectors() -> None:
    """An item that comes with an added vector is one of the new model from then on."""
    store = make_store(["aligned"] * 30)
    gallery = Gallery(store)
    gallery.upsert({"id": ["item 0"], "vector": [OLD], COLUMNS.new: [NEW]})
    scores = obvious_scores(store, gallery.fusion, OLD, NEW, None)
    hits = gallery.search(old=OLD, new=NEW, k=1)
    assert hits.ids.tolist() == ["item 0"]
    assert hits.distances[0] == pytest.approx(-scores["item 0"], abs=1e-4)
