"""A way to PostgreSQL that can be cut in the middle of a COMMIT."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

Cut = Literal["", "before", "after"]  # the server hears of the COMMIT


class Proxy:
    """Passes bytes between clients and the server's socket; cuts one connection when told to."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        self._path = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        options = "sslmode=disable&gssencmode=disable"
        self.uri = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?{options}"
        self.cut: Cut = ""  # at the next COMMIT
        self.cuts = 0
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._path)
                self._sockets += [client, server]
                self._start(self._pass_on, client, server, True)
                self._start(self._pass_on, server, client, False)

    def _pass_on(self, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if asks and self.cut and b"COMMIT\0" in data:
                    self._end(source, sink, data)
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def _end(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        """Cut the client off; whether the server hears of the COMMIT is what the test is about."""
        cut, self.cut = self.cut, ""
        self.cuts += 1
        client.shutdown(socket.SHUT_RDWR)  # the answer goes nowhere
        if cut == "after":
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let nobody in any more, and everybody go."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()
