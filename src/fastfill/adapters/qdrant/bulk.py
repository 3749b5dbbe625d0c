"""Many points at once: plain JSON to and from a server, the client's own objects in local mode.

The client makes an object of every point and looks at every number of a vector that it sends, which
takes longer than all else that is done with them. Numbers go out with the digits of a float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel
from qdrant_client import models

from fastfill.adapters.qdrant.connection import ORDERED, QdrantConnection
from fastfill.gallery import Id

_ORDERED = {"wait": "true", "ordering": "strong"}  # `ORDERED` in an address


class Point(NamedTuple):
    """A point, or what is to be written of it."""

    id: Id
    payload: dict[str, Any] | None = None
    vector: Any = None  # {name: vector}; as it is read, of an unnamed vector the vector


class BulkRequests:
    """Requests for many points of one collection."""

    def __init__(self, connection: QdrantConnection, collection: str) -> None:
        self._connection, self._collection = connection, collection

    def _ask(self, method: str, **options: Any) -> Any:
        return self._connection.ask(method, collection_name=self._collection, **options)

    def _send(self, verb: str, path: str, body: dict[str, Any], **options: Any) -> Any:
        given = {name: value for name, value in body.items() if value is not None}
        data = orjson.dumps(given, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)
        return self._connection.send(verb, self._collection, path, data, **options)

    # --- reading -------------------------------------------------------------------------------

    def scroll(
        self,
        limit: int,
        wanted: Any = None,
        *,
        offset: Any = None,
        vectors: Sequence[str] = (),
        payload: Any = False,
        order: Any = None,
    ) -> tuple[Sequence[Any], Any]:
        """A page of points, with `id`, `payload` and `vector`, and where the next one begins."""
        names = list(vectors) or False
        if self._connection.local:
            page: tuple[Sequence[Any], Any] = self._ask(
                "scroll",
                scroll_filter=wanted,
                limit=limit,
                offset=offset,
                with_vectors=names,
                with_payload=payload,
                order_by=order,
            )
            return page
        body = {"limit": limit, "filter": wanted, "offset": offset, "order_by": order}
        answer = self._send(
            "POST", "/scroll", {**body, "with_vector": names, "with_payload": payload}
        )
        return _points(answer["points"]), answer.get("next_page_offset")

    def retrieve(
        self, ids: Sequence[Id], *, vectors: Sequence[str] = (), payload: Any
    ) -> Sequence[Any]:
        """Those of these points that exist."""
        if not len(ids):
            return []
        keys, names = list(ids), list(vectors) or False
        if self._connection.local:
            records: Sequence[Any] = self._ask(
                "retrieve", ids=keys, with_payload=payload, with_vectors=names
            )
            return records
        body = {"ids": keys, "with_payload": payload, "with_vector": names}
        return _points(self._send("POST", "", body))

    def scores(self, query: Any, using: str, wanted: Any, limit: int) -> dict[Id, float]:
        """The exact scores of the nearest points of a server."""
        body = {"query": query, "using": using or None, "filter": wanted, "limit": limit}
        found = self._send(
            "POST", "/query", {**body, "params": {"exact": True}, "with_payload": False}
        )
        return {point["id"]: point["score"] for point in found["points"]}

    # --- writing -------------------------------------------------------------------------------

    def upsert(self, points: Sequence[Point], condition: Any = None) -> None:
        """Write whole points, those that exist on a condition."""
        if self._connection.local:
            made = [
                models.PointStruct(id=p.id, vector=_lists(p.vector), payload=p.payload)
                for p in points
            ]
            self._ask("upsert", points=made, update_filter=condition, **ORDERED)
            return
        plain = [{"id": p.id, "vector": p.vector or {}, "payload": p.payload} for p in points]
        body = {"points": plain, "update_filter": condition}
        self._send("PUT", "", body, params=_ORDERED)

    def put_vectors(self, points: Sequence[Point]) -> None:
        """Write vectors of points that exist; points that are gone are no error."""
        if self._connection.local:
            made = [models.PointVectors(id=p.id, vector=_lists(p.vector)) for p in points]
            self._ask("update_vectors", points=made, wait=True, missing_ok=True)
            return
        plain = [{"id": p.id, "vector": p.vector} for p in points]
        self._send("PUT", "/vectors", {"points": plain}, params={"wait": "true"}, missing_ok=True)


def _points(records: Sequence[dict[str, Any]]) -> list[Point]:
    return [Point(each["id"], each.get("payload"), each.get("vector")) for each in records]


def _lists(vectors: Any) -> Any:
    arrays = (vectors or {}).items()
    return {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in arrays}


def _plain(value: Any) -> Any:
    """What orjson does not know: the client's conditions, and arrays that are not contiguous."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be sent to Qdrant.")
