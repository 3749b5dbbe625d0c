"""The server of the live page: read only, for this machine, and clear about what is wrong."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from fastfill.errors import InputError, StoreError
from fastfill.page import Answer, CachedReader, PageServer, live_page


def unreachable() -> Answer:
    """An address whose store is gone."""
    raise StoreError("db: gone.")


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    """A page, and an address that cannot be answered at present."""
    answers = {"/": lambda: Answer("text/html", live_page()), "/state.json": unreachable}
    with PageServer(answers) as running:
        yield running


def ask(
    server: PageServer, path: str = "/", method: str = "GET", host: str | None = None
) -> http.client.HTTPResponse:
    """One request, perhaps under another name of the host."""
    connection = http.client.HTTPConnection(server.url.split("/")[2], timeout=10)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    return connection.getresponse()


def test_it_listens_on_the_loopback(server: PageServer) -> None:
    """No other machine can reach it unless a host is named."""
    assert server.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(server: PageServer, method: str) -> None:
    """Requests that would write are not known."""
    assert ask(server, method=method).status == 501


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("[::1]:1", 200), ("evil.example", 403), ("", 403)],
)
def test_other_names_of_the_host_are_refused(server: PageServer, host: str, status: int) -> None:
    """A page elsewhere that lets its own name point at this machine gets nothing."""
    assert ask(server, host=host).status == status


def test_only_the_given_addresses_exist(server: PageServer) -> None:
    """There is no file behind any other path; a query changes nothing."""
    assert ask(server, "/../etc/passwd").status == 404
    assert ask(server, "/?a=1").status == 200


def test_headers_keep_the_page_to_itself(server: PageServer) -> None:
    """Nothing is cached, framed or guessed; HEAD has the same headers and no body."""
    answer = ask(server, method="HEAD")
    assert answer.read() == b""
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_an_error_is_told(server: PageServer) -> None:
    """A store that cannot be read is a sentence with status 503, and the server goes on."""
    answer = ask(server, "/state.json")
    assert (answer.status, answer.read()) == (503, b"db: gone.")
    assert ask(server).status == 200


def test_a_port_in_use_is_named(server: PageServer) -> None:
    """Two servers on one port: the second says so, and the way out."""
    port = int(server.url.rstrip("/").rsplit(":", 1)[1])
    with pytest.raises(InputError, match=rf":{port} cannot be listened on .* name another port"):
        PageServer({}, port=port)


def test_slow_reads_are_rare() -> None:
    """A value that takes long to read is kept for longer than one that is quick to read."""
    now, reads = 0.0, []

    def read() -> int:
        nonlocal now
        now += 1.0  # it takes a second
        reads.append(now)
        return len(reads)

    reader = CachedReader(read, every=2.0, clock=lambda: now)
    assert reader() == 1
    now += 19.0
    assert reader() == 1
    now += 2.0
    assert reader() == 2
