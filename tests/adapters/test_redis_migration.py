"""Migrations on Redis: from start to completion, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from redis_world import fill

from fastfill.errors import InputError, MigrationError, StoreError
from fastfill.gallery import Columns, Gallery
from fastfill.migrate import Migration
from fastfill.testing import marks, new_vectors, values
from fastfill.wiring import open_store

OLD, NEW = 6, 9
_MIX = np.random.default_rng(5).standard_normal((OLD, NEW)).astype(np.float32)


def old_model(text: str) -> Any:
    """What the old model makes of a text."""
    return np.random.default_rng(sum(map(ord, text))).standard_normal(OLD).astype(np.float32)


def encode(texts: Any) -> Any:
    """The new model."""
    return np.stack([np.tanh(old_model(text) @ _MIX) for text in texts])


def items(count: int) -> dict[str, list[Any]]:
    """Hashes with a text."""
    texts = [f"text {n}" for n in range(count)]
    return {
        "id": [f"photo:{n}" for n in range(count)],
        "text": texts,
        "vector": [old_model(text) for text in texts],
        "place": ["on the roof", "at sea"] * (count // 2),
    }


def everything(client: Any) -> dict[bytes, dict[bytes, bytes]]:
    """All hashes of the owner's."""
    return {key: client.hgetall(key) for key in client.scan_iter(match="photo:*")}


def test_a_migration_beside_its_owner(redis_owner: Any, redis_place: str) -> None:
    """From start to completion; the owner's fields stay, the new index filters by them."""
    fill(redis_owner, items(60), dim=OLD, metric="COSINE")
    before = everything(redis_owner)
    store = open_store(f"{redis_place}#photos.vector")
    migration = Migration(Gallery(store, input="text"), encode)
    migration.start(pairs=30, method="ridge")
    redis_owner.hset("photo:3", "text", "text 900")
    redis_owner.delete("photo:4")
    assert [*migration.backfill(throttle=False)][-1].fraction == 1.0
    assert migration.verify().good
    after = everything(redis_owner)
    assert {name: after[b"photo:5"][name] for name in before[b"photo:5"]} == before[b"photo:5"]
    asked = encode(["text 900"])[0]
    for exact in (True, False):
        hits = store.search(
            asked, 1, side="new", distance="cosine", where={"place": "at sea"}, exact=exact
        )
        assert hits.ids.tolist() == ["photo:3"]
    migration.complete(drop_old=True)
    assert everything(redis_owner)[b"photo:5"].keys() == {b"text", b"place", b"vector_new"}
    store.close()


def test_a_rollback_restores_hashes_and_indexes(redis_owner: Any, redis_place: str) -> None:
    """Only the hash of documents is left, and a model of other dimensions can be tried."""
    fill(redis_owner, items(40), dim=OLD)
    before = everything(redis_owner)
    store = open_store(f"{redis_place}#photos.vector")
    migration = Migration(Gallery(store, input="text"), encode)
    migration.start(pairs=20, method="ridge")
    migration.rollback()
    assert everything(redis_owner) == before
    assert redis_owner.execute_command("FT._LIST") == [b"photos"]
    assert redis_owner.exists("fastfill:photos.vector") == 1
    store.expand(NEW + 3)
    assert store.describe().new_dim == NEW + 3
    store.close()


def test_an_edit_in_the_middle_of_a_write_is_refused(redis_owner: Any, redis_place: str) -> None:
    """The server itself compares: no moment is left between looking at a row and writing it."""
    data = {**values(5), "id": [f"photo:{n}" for n in range(5)]}
    fill(redis_owner, data)
    store = open_store(f"{redis_place}#photos.vector")
    store.bind(Columns("id", "text", "vector"))
    store.expand(12)
    rows = store.read(data["id"])
    redis_owner.hset("photo:1", "text", "edited")
    redis_owner.hdel("photo:2", "vector")
    redis_owner.delete("photo:3")
    assert store.write(rows, new_vectors(rows), marks("new", rows)) == 2
    assert redis_owner.exists("photo:3") == 0
    assert redis_owner.hget("photo:1", "vector_new") is None
    store.close()


def test_hashes_with_odd_fields_are_read_as_they_are(redis_owner: Any, redis_place: str) -> None:
    """Missing, empty and binary values keep their places among those of many hashes."""
    odd: list[dict[str, Any]] = [
        {"text": "plain", "vector": np.float32([1, 2]).tobytes()},
        {"text": "", "vector": np.float32([3, 4]).tobytes()},
        {"vector": np.float32([5, 6]).tobytes()},
        {"text": b"\xff,1\x00", "vector": b"short"},
        {"place": "nowhere"},
    ]
    fill(redis_owner, {"id": [], "vector": []}, dim=2)
    for number in range(700):
        redis_owner.hset(f"photo:{number}", mapping=odd[number % 5])
    store = open_store(f"{redis_place}#photos.vector")
    store.bind(Columns("id", "text", "vector"))
    keys = [f"photo:{number}" for number in range(700)]
    for rows in (store.read(keys), store.read(keys, old=False)):
        assert rows.ids.tolist() == keys
        assert rows.inputs.tolist() == ["plain", "", None, b"\xff,1\x00", None] * 140
    old = store.read([*keys[:5], "photo:gone"]).old
    np.testing.assert_equal(old[:3], [[1, 2], [3, 4], [5, 6]])
    assert np.isnan(old[3:]).all()
    assert len(old) == 5
    seen = [store.read(keys, old=each).seen.tolist() for each in (True, False)]
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 5
    store.close()


def test_a_key_that_is_no_hash_any_more_is_left_alone(redis_owner: Any, redis_place: str) -> None:
    """Whatever took its place is neither read nor written, and the other rows are."""
    data = {**values(3), "id": [f"photo:{n}" for n in range(3)]}
    fill(redis_owner, data)
    store = open_store(f"{redis_place}#photos.vector")
    store.bind(Columns("id", "text", "vector"))
    store.expand(12)
    rows = store.read(data["id"])
    redis_owner.set("photo:1", "a text")
    assert store.read(data["id"]).ids.tolist() == ["photo:0", "photo:2"]
    assert store.write(rows, new_vectors(rows), marks("new", rows)) == 2
    assert redis_owner.get("photo:1") == b"a text"
    redis_owner.hset("photo:bare", "place", "nowhere")
    bare = store.read(["photo:bare"])
    redis_owner.delete("photo:bare")
    assert store.write(bare, new_vectors(bare), marks("new", bare)) == 0
    assert redis_owner.exists("photo:bare") == 0
    store.close()


def test_what_is_in_the_way_is_named(redis_owner: Any, redis_place: str) -> None:
    """A field of the name of an added one is somebody else's, and nothing is written."""
    fill(redis_owner, items(20), dim=OLD)
    redis_owner.hset("photo:7", "vector_new", "theirs")
    store = open_store(f"{redis_place}#photos.vector")
    migration = Migration(Gallery(store, input="text"), encode)
    with pytest.raises(MigrationError, match="vector_new"):
        migration.start(pairs=20, method="ridge")
    store.close()


@pytest.mark.parametrize(
    ("url", "kind", "says"),
    [
        ("{place}#photos.image", StoreError, "no vector 'image', only vector"),
        ("{place}#missing.vector", StoreError, "no index 'missing', only photos"),
        ("{place}#photos", InputError, "after the # comes INDEX.FIELD"),
        ("redis://:word@here#photos.vector", InputError, "Keep the password out of the URL"),
        ("redis://127.0.0.1:1#photos.vector", StoreError, "cannot be reached"),
    ],
)
def test_addresses_that_lead_nowhere(
    redis_owner: Any, redis_place: str, url: str, kind: type[Exception], says: str
) -> None:
    """A wrong address is refused in a sentence that says what is wrong with it."""
    fill(redis_owner, values(1))
    with pytest.raises(kind, match=says):
        open_store(url.format(place=redis_place))


def test_a_field_that_no_hash_has(redis_owner: Any, redis_place: str) -> None:
    """The input is refused with the fields that there are."""
    fill(redis_owner, items(4), dim=OLD)
    store = open_store(f"{redis_place}#photos.vector")
    with pytest.raises(StoreError, match="no hash has a field 'caption', only"):
        Gallery(store, input="caption")
    store.close()
