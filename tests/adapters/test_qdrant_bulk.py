"""Many points as plain JSON, beside what the client itself reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from qdrant_world import models

from fastfill.adapters.qdrant.bulk import BulkRequests, Point
from fastfill.adapters.qdrant.connection import QdrantConnection, open_server
from fastfill.adapters.qdrant.points import all_of, equals
from fastfill.errors import StoreError

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py is not installed")
COUNT, DIM = 30, 8


@pytest.fixture
def connection(qdrant_server: str) -> Iterator[QdrantConnection]:
    """A connection to the server."""
    opened = open_server(qdrant_server)
    yield opened
    opened.close()


@pytest.fixture
def bulk(connection: QdrantConnection, qdrant_owner: Any) -> BulkRequests:
    """Points with a vector and a payload of all kinds of values; every third has no vector."""
    params = models.VectorParams(size=DIM, distance=models.Distance.EUCLID)
    qdrant_owner.create_collection("photos", {"image": params, "title": params})
    payload = {"text": "ein Fahrrad, groß", "nested": {"a": [1, 2.5, None]}, "flag": True}
    rng = np.random.default_rng(7)
    points = [
        models.PointStruct(
            id=key,
            vector={"image": rng.standard_normal(DIM).tolist()} if key % 3 else {},
            payload={**payload, "number": key},
        )
        for key in range(COUNT)
    ]
    qdrant_owner.upsert("photos", points, wait=True)
    return BulkRequests(connection, "photos")


def plain(points: Any) -> list[Any]:
    """Points as values that can be compared."""
    return [(each.id, each.payload or None, each.vector or None) for each in points]


@pytest.mark.parametrize("payload", [True, False, ["number", "nested"]])
@pytest.mark.parametrize("names", [(), ("image",), ("image", "title")])
def test_points_are_read_as_the_client_reads_them(
    bulk: BulkRequests, qdrant_owner: Any, names: tuple[str, ...], payload: Any
) -> None:
    """By their ids, of which some are missing, and page by page, with a condition."""
    asked: dict[str, Any] = {"with_vectors": list(names) or False, "with_payload": payload}
    ids = [5, 3, 999, 4]
    found = bulk.retrieve(ids, vectors=names, payload=payload)
    assert plain(found) == plain(qdrant_owner.retrieve("photos", ids, **asked))
    wanted = all_of(but=[equals("number", 7)])
    offset = None
    for _ in range(4):
        page, after = bulk.scroll(9, wanted, offset=offset, vectors=names, payload=payload)
        theirs, offset = qdrant_owner.scroll(
            "photos", scroll_filter=wanted, limit=9, offset=offset, **asked
        )
        assert plain(page) == plain(theirs)
        assert after == offset


def test_every_number_of_a_vector_arrives(bulk: BulkRequests, qdrant_owner: Any) -> None:
    """To its last digit, whatever its size, also of a matrix whose rows do not lie together."""
    rng = np.random.default_rng(3)
    exponents = rng.integers(-30, 30, (DIM, COUNT))
    vectors = (rng.standard_normal((DIM, COUNT)) * 10.0**exponents).astype(np.float32).T
    bulk.put_vectors([Point(key, vector={"title": vectors[key]}) for key in range(COUNT)])
    found = qdrant_owner.retrieve("photos", list(range(COUNT)), with_vectors=["title"])
    read = np.array([point.vector["title"] for point in found], np.float32)
    np.testing.assert_array_equal(read, vectors)


def test_a_write_with_a_condition(bulk: BulkRequests, qdrant_owner: Any) -> None:
    """Points that do not fulfil it stay as they are; those that are not there are written."""
    points = [
        Point(key, {"number": -key}, {"image": np.ones(DIM, np.float32)}) for key in (1, 2, 99)
    ]
    bulk.upsert(points, all_of(equals("number", 2)))
    numbers = {p.id: p.payload["number"] for p in qdrant_owner.retrieve("photos", [1, 2, 99])}
    assert numbers == {1: 1, 2: -2, 99: -99}


def test_scores_are_those_of_an_exact_search(bulk: BulkRequests, qdrant_owner: Any) -> None:
    """Of all points that have the vector."""
    query = np.linspace(0, 1, DIM, dtype=np.float32)
    ids = {"must": [{"has_id": list(range(20))}]}
    found = bulk.scores(query, "image", ids, 20)
    stored = qdrant_owner.retrieve("photos", list(range(20)), with_vectors=["image"])
    slow = {p.id: np.linalg.norm(np.array(p.vector["image"]) - query) for p in stored if p.vector}
    assert found.keys() == slow.keys()
    assert [found[key] for key in slow] == pytest.approx(list(slow.values()), rel=1e-5)


def test_what_the_server_refuses_is_one_sentence(bulk: BulkRequests) -> None:
    """With the name of the server."""
    with pytest.raises(StoreError, match=r"qdrant://.*: .+"):
        bulk.put_vectors([Point(1, vector={"title": np.ones(DIM + 1, np.float32)})])
