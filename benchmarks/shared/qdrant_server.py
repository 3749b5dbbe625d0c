"""python -m benchmarks.shared.qdrant_server FOLDER PORT

Qdrant's local mode behind the part of Qdrant's REST protocol that the adapter and an application
use. It stands in for a server where none can be installed: several processes at once, real
requests and answers, and a process that can be killed. What an operation does is what the client
library's local mode makes of it, point by point, one operation at a time.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, TypeAdapter
from qdrant_client import models
from qdrant_client.local.persistence import CollectionPersistence
from qdrant_client.local.qdrant_local import QdrantLocal

Answer = Callable[[QdrantLocal, str, str, Any], Any]


def _selector(body: Any) -> Any:
    """Ids or a filter, as local mode takes them."""
    return body.points if getattr(body, "points", None) else body.filter


def _upsert(local: QdrantLocal, name: str, _: str, body: Any) -> Any:
    points = body.points if isinstance(body, models.PointsList) else body.batch
    return local.upsert(name, points, body.update_filter, body.update_mode)


ROUTES: list[tuple[str, str, Any, Answer]] = [
    ("GET", "", None, lambda db, *_: db.info()),
    ("GET", "/aliases", None, lambda db, *_: db.get_aliases()),
    ("GET", "/collections", None, lambda db, *_: db.get_collections()),
    ("GET", "/collections/N/exists", None, lambda db, n, *_: {"exists": db.collection_exists(n)}),
    ("GET", "/collections/N", None, lambda db, n, *_: db.get_collection(n)),
    (
        "PUT",
        "/collections/N",
        models.CreateCollection,
        lambda db, n, _, b: db.create_collection(n, b.vectors, b.sparse_vectors),
    ),
    ("DELETE", "/collections/N", None, lambda db, n, *_: db.delete_collection(n)),
    (
        "POST",
        "/collections/aliases",
        models.ChangeAliasesOperation,
        lambda db, _, __, b: db.update_collection_aliases(b.actions),
    ),
    ("PUT", "/collections/N/index", models.CreateFieldIndex, lambda *_: _done()),
    (
        "PUT",
        "/collections/N/vectors/V",
        models.VectorNameConfig,
        lambda db, n, v, b: db.create_vector_name(n, v, b),
    ),
    (
        "DELETE",
        "/collections/N/vectors/V",
        None,
        lambda db, n, v, _: db.delete_vector_name(n, v),
    ),
    (
        "POST",
        "/collections/N/points/scroll",
        models.ScrollRequest,
        lambda db, n, _, b: _page(
            db.scroll(
                n, b.filter, b.limit or 10, b.order_by, b.offset, b.with_payload, b.with_vector
            )
        ),
    ),
    (
        "POST",
        "/collections/N/points",
        models.PointRequest,
        lambda db, n, _, b: db.retrieve(n, b.ids, b.with_payload, b.with_vector),
    ),
    (
        "POST",
        "/collections/N/points/count",
        models.CountRequest,
        lambda db, n, _, b: db.count(n, b.filter),
    ),
    (
        "POST",
        "/collections/N/points/query",
        models.QueryRequest,
        lambda db, n, _, b: db.query_points(
            n,
            b.query,
            b.using,
            query_filter=b.filter,
            limit=b.limit or 10,
            with_payload=b.with_payload,
        ),
    ),
    ("PUT", "/collections/N/points", models.PointInsertOperations, _upsert),
    (
        "PUT",
        "/collections/N/points/vectors",
        models.UpdateVectors,
        lambda db, n, _, b: db.update_vectors(n, b.points, b.update_filter),
    ),
    (
        "POST",
        "/collections/N/points/vectors/delete",
        models.DeleteVectors,
        lambda db, n, _, b: db.delete_vectors(n, b.vector, _selector(b)),
    ),
    (
        "POST",
        "/collections/N/points/payload",
        models.SetPayload,
        lambda db, n, _, b: db.set_payload(n, b.payload, _selector(b)),
    ),
    (
        "PUT",
        "/collections/N/points/payload",
        models.SetPayload,
        lambda db, n, _, b: db.overwrite_payload(n, b.payload, _selector(b)),
    ),
    (
        "POST",
        "/collections/N/points/payload/delete",
        models.DeletePayload,
        lambda db, n, _, b: db.delete_payload(n, b.keys, _selector(b)),
    ),
    (
        "POST",
        "/collections/N/points/delete",
        models.PointsSelector,
        lambda db, n, _, b: db.delete(n, _selector(b)),
    ),
]
_PARSED = [
    (
        method,
        re.compile(
            "^" + path.replace("/N", "/(?P<n>[^/]+)").replace("/V", "/(?P<v>[^/]+)") + "/?$"
        ),
        None if kind is None else TypeAdapter(kind),
        answer,
    )
    for method, path, kind, answer in ROUTES
]


def _done() -> Any:
    """Local mode has no indexes; a server would say this."""
    return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)


def _page(found: Any) -> Any:
    return {"points": [_plain(record) for record in found[0]], "next_page_offset": found[1]}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    return [_plain(each) for each in value] if isinstance(value, list) else value


class Handler(BaseHTTPRequestHandler):
    """One request, one operation of the local client."""

    protocol_version = "HTTP/1.1"
    local: QdrantLocal
    turn = threading.Lock()

    def _serve(self) -> None:
        path = unquote(self.path.partition("?")[0])
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        if self.headers.get("api-key") == "wrong":
            self._answer(401, {"status": {"error": "Invalid API key"}})
            return
        for method, pattern, kind, answer in _PARSED:
            match = pattern.match(path)
            if match and method == self.command:
                names = match.groupdict()
                self._run(kind, data, answer, names.get("n", ""), names.get("v", ""))
                return
        self._answer(404, {"status": {"error": f"no route {self.command} {path}"}})

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _run(self, kind: Any, data: bytes, answer: Answer, name: str, vector: str) -> None:
        try:
            body = None if kind is None else kind.validate_json(data)
            with self.turn:
                found = _plain(answer(self.local, name, vector, body))
        except KeyError as error:
            self._answer(404, {"status": {"error": f"Not found: No point with id {error} found"}})
        except ValueError as error:
            missing = "not found" in str(error)
            self._answer(404 if missing else 400, {"status": {"error": str(error)}})
        else:
            bare = isinstance(found, dict) and "version" in found and not name
            self._answer(200, found if bare else _ok(found))

    def _answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


def _ok(result: Any) -> dict[str, Any]:
    return {"result": result, "status": "ok", "time": 0.0}


class Server(ThreadingHTTPServer):
    """Clients that go away in the middle are no news."""

    daemon_threads = True

    def handle_error(self, request: Any, address: Any) -> None:
        """Say nothing."""


def _commit_without_sync(self: Any) -> None:
    # What a killed process has written stays with the operating system: only the loss of the
    # machine would show that it had not reached the disk.
    self.storage.execute("PRAGMA synchronous = OFF")
    _ensure_table(self)


_ensure_table = CollectionPersistence._ensure_table


def main() -> None:
    """Serve a folder until killed."""
    warnings.simplefilter("ignore")
    assert sqlite3.threadsafety
    CollectionPersistence._ensure_table = _commit_without_sync  # type: ignore[method-assign]
    Handler.local = QdrantLocal(sys.argv[1], force_disable_check_same_thread=True)
    server = Server(("127.0.0.1", int(sys.argv[2])), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
