"""python -m benchmarks.shared.qdrant_server FOLDER PORT

Qdrant's own engine (`qdrant-edge-py`, the embedded form of the server's) behind the part of its
REST protocol that the adapter and an application use. It stands in for a server where none can be
installed: several processes at once, real requests and answers, and a process that can be killed.
What an operation does to points is what Qdrant does, one operation at a time.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import orjson
from pydantic import BaseModel, TypeAdapter
from qdrant_client import models

from benchmarks.shared.qdrant_database import VERSION, QdrantDatabase

Answer = Callable[[QdrantDatabase, str, str, Any], Any]
N, POINTS = "/collections/N", "/collections/N/points"


def _aliases(db: QdrantDatabase) -> Any:
    pairs = db.aliases().items()
    return {"aliases": [{"alias_name": a, "collection_name": name} for a, name in pairs]}


ROUTES: list[tuple[str, str, Any, Answer]] = [
    ("GET", "", None, lambda *_: {"title": "qdrant", "version": VERSION}),
    ("GET", "/aliases", None, lambda db, *_: _aliases(db)),
    (
        "GET",
        "/collections",
        None,
        lambda db, *_: {"collections": [{"name": name} for name in db.names()]},
    ),
    ("GET", f"{N}/exists", None, lambda db, n, *_: {"exists": db.exists(n)}),
    ("GET", N, None, lambda db, n, *_: db.info(n)),
    ("PUT", N, models.CreateCollection, lambda db, n, _, b: db.create(n, b)),
    ("DELETE", N, None, lambda db, n, *_: db.drop(n)),
    (
        "POST",
        "/collections/aliases",
        models.ChangeAliasesOperation,
        lambda db, _, __, b: db.change_aliases(b.actions),
    ),
    ("PUT", f"{N}/index", models.CreateFieldIndex, lambda db, n, _, b: db.create_index(n, b)),
    (
        "PUT",
        f"{N}/vectors/V",
        models.VectorNameConfig,
        lambda db, n, v, b: db.create_vector(n, v, b),
    ),
    ("DELETE", f"{N}/vectors/V", None, lambda db, n, v, _: db.drop_vector(n, v)),
    ("POST", f"{POINTS}/scroll", models.ScrollRequest, lambda db, n, _, b: db.scroll(n, b)),
    ("POST", POINTS, models.PointRequest, lambda db, n, _, b: db.retrieve(n, b)),
    ("POST", f"{POINTS}/count", models.CountRequest, lambda db, n, _, b: db.count(n, b)),
    ("POST", f"{N}/facet", models.FacetRequest, lambda db, n, _, b: db.facet(n, b)),
    ("POST", f"{POINTS}/query", models.QueryRequest, lambda db, n, _, b: db.query(n, b)),
    ("PUT", POINTS, models.PointsList, lambda db, n, _, b: db.upsert(n, b)),
    ("PUT", f"{POINTS}/vectors", models.UpdateVectors, lambda db, n, _, b: db.put_vectors(n, b)),
    (
        "POST",
        f"{POINTS}/vectors/delete",
        models.DeleteVectors,
        lambda db, n, _, b: db.chosen(n, "delete_vectors", b, b.vector),
    ),
    (
        "POST",
        f"{POINTS}/payload",
        models.SetPayload,
        lambda db, n, _, b: db.chosen(n, "set_payload", b, b.payload),
    ),
    (
        "PUT",
        f"{POINTS}/payload",
        models.SetPayload,
        lambda db, n, _, b: db.chosen(n, "overwrite_payload", b, b.payload),
    ),
    (
        "POST",
        f"{POINTS}/payload/delete",
        models.DeletePayload,
        lambda db, n, _, b: db.chosen(n, "delete_payload", b, b.keys),
    ),
    (
        "POST",
        f"{POINTS}/delete",
        models.PointsSelector,
        lambda db, n, _, b: db.chosen(n, "delete_points", b),
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


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    return [_plain(each) for each in value] if isinstance(value, list) else value


class Handler(BaseHTTPRequestHandler):
    """One request, one operation of the engine."""

    protocol_version = "HTTP/1.1"
    database: QdrantDatabase
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
                result = _plain(answer(self.database, name, vector, body))
        except Exception as error:  # what the engine refuses is an exception of no special kind
            reason = str(error.args[0]) if error.args else type(error).__name__
            missing = isinstance(error, KeyError) or reason.startswith("No point with id")
            said = f"Not found: {reason}" if missing else reason
            self._answer(404 if missing else 400, {"status": {"error": said}})
        else:
            bare = isinstance(result, dict) and "version" in result and not name
            self._answer(200, result if bare else _ok(result))

    def _answer(self, status: int, value: Any) -> None:
        data = orjson.dumps(value)  # vectors as text are most of the work of this server
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


def main() -> None:
    """Serve a folder until killed."""
    Handler.database = QdrantDatabase(sys.argv[1])
    server = Server(("127.0.0.1", int(sys.argv[2])), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
