"""A real server on this machine that embeds texts, for the tests of encoders over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], Any]


class Server:
    """Answers requests by a function, and remembers them."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.paths: list[str] = []
        self.answer: Callable[[dict[str, Any]], Answer] = self.embed
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.handle_any()

            def do_GET(self) -> None:
                self.handle_any()

            def handle_any(self) -> None:
                """A request by any method: a redirect may change it."""
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                outer.seen.append((body, dict(self.headers)))
                outer.paths.append(self.path)
                status, headers, value = outer.answer(body)
                data = json.dumps(value).encode()
                self.send_response(status)
                for name, text in headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Be quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1/embeddings"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @staticmethod
    def embed(body: dict[str, Any]) -> Answer:
        """Vectors that tell the text's length, in reverse order to test the index."""
        data = [
            {"index": i, "embedding": [float(len(text)), 1.0]}
            for i, text in enumerate(body["input"])
        ]
        return 200, {}, {"data": data[::-1]}


def running() -> Iterator[Server]:
    """A server, and its end."""
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()
