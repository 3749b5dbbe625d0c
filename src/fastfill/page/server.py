"""`PageServer`: a few fixed addresses over HTTP, on this machine unless told otherwise, read only.

It answers GET and HEAD alone and takes no parameters. While it listens on the loopback it also
checks what the request calls the host: a page elsewhere that lets its own name point at 127.0.0.1
(DNS rebinding) is refused.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

from fastfill.errors import FastFillError, InputError

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Answer(NamedTuple):
    """What is at an address: its type and its text."""

    kind: str
    text: str


class PageServer:
    """Serves in threads of its own from `with` to its end.

    >>> from urllib.request import urlopen
    >>> with PageServer({"/": lambda: Answer("text/plain", "hello")}) as server:
    ...     urlopen(server.url).read()
    b'hello'
    """

    def __init__(
        self, answers: Mapping[str, Callable[[], Answer]], host: str = "127.0.0.1", port: int = 0
    ) -> None:
        """`port` 0: a free one."""
        handler = _handler(answers, _is_loopback(host))
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise InputError(
                f"{host}:{port} cannot be listened on ({error.strerror}): name another port."
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    def __enter__(self) -> PageServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(
    answers: Mapping[str, Callable[[], Answer]], loopback: bool
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "fastfill"
        sys_version = ""

        def do_GET(self) -> None:
            if loopback and not _is_loopback(_host_of(self.headers.get("Host", ""))):
                return self._send(HTTPStatus.FORBIDDEN, "This is for this machine alone.")
            answer = answers.get(urlsplit(self.path).path)
            if answer is None:
                return self._send(HTTPStatus.NOT_FOUND, "Nothing is here.")
            try:
                kind, text = answer()
            except FastFillError as error:  # the store, most likely; the next request may succeed
                return self._send(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return self._send(HTTPStatus.OK, text, kind)

        do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

        def _send(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the terminal is for the work."""

    return Handler


def _host_of(header: str) -> str:
    """The name in a Host header, without the port.

    >>> _host_of("localhost:8080"), _host_of("[::1]:8080")
    ('localhost', '::1')
    """
    return urlsplit(f"//{header}").hostname or ""


def _is_loopback(host: str) -> bool:
    """
    >>> _is_loopback("127.0.0.1"), _is_loopback("localhost"), _is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
