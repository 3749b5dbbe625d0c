"""The way to Redis: a client whose errors are sentences for people."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fastfill.errors import InputError, StoreError

T = TypeVar("T")
PASSWORD, USER = "REDIS_PASSWORD", "REDIS_USERNAME"  # names of variables
PORT = 6_379
TIMEOUT = 60  # seconds
SCANNED = 1_000  # keys that are looked at in one request


class RedisConnection:
    """Commands one by one, many at once, and scripts."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name
        versions = dict(map(_version, self.run("MODULE", "LIST")))
        if b"search" not in versions:
            raise StoreError(f"{name} has no search module: FastFill needs Redis Stack or Redis 8.")
        self.search_version = versions[b"search"]  # 20810 is 2.8.10

    def run(self, *command: Any) -> Any:
        """One command."""
        return self._ask(lambda client: client.execute_command(*command))

    def run_all(self, commands: Sequence[Sequence[Any]], *, strict: bool = False) -> list[Any]:
        """Many commands in one message, others may run in between; unless `strict` an answer may
        be an error, of a key that is no hash."""

        def ask(client: Any) -> list[Any]:
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return list(pipeline.execute(raise_on_error=strict)) if commands else []

        return self._ask(ask)

    def script(self, source: str) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
        """A Lua script as a function of keys and arguments."""
        registered = self._ask(lambda client: client.register_script(source))
        return lambda keys, values: self._ask(
            lambda _: registered(keys=list(keys), args=list(values))
        )

    def pages_of_keys(self, pattern: str) -> Iterator[list[str]]:
        """Keys of hashes that fit a pattern, page by page; Redis may give one more than once."""
        cursor: Any = None
        while cursor != 0:
            cursor, keys = self.run(
                *("SCAN", cursor or 0, "MATCH", pattern, "COUNT", SCANNED, "TYPE", "HASH")
            )
            yield [key.decode() for key in keys]

    def _ask(self, work: Callable[[Any], T]) -> T:
        if self._client is None:
            raise StoreError(f"{self.name} has been closed.")
        try:
            return work(self._client)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise StoreError(f"{self.name} cannot be reached: {error}") from error
        except redis.RedisError as error:
            raise StoreError(f"{self.name}: {error}") from error

    def close(self) -> None:
        """Let go of the server."""
        if self._client is not None:
            self._client.close()
        self._client = None


def open_server(place: str, *, tls: bool = False) -> RedisConnection:
    """The server at HOST[:PORT][/DB], with the password of the environment if there is one."""
    address, _, database = place.partition("/")
    host, _, port = address.partition(":")
    if "@" in place:
        raise InputError(f"Keep the password out of the URL: put it into {PASSWORD}.")
    if not host or not (port or "0").isdigit() or not (database or "0").isdigit():
        raise InputError(f"'{place}' is not a server: use redis://HOST:PORT[/DB]#INDEX.FIELD.")
    client = redis.Redis(
        host=host,
        port=int(port or PORT),
        db=int(database or 0),
        username=os.environ.get(USER) or None,
        password=os.environ.get(PASSWORD) or None,
        ssl=tls,
        socket_timeout=TIMEOUT,
        protocol=2,
        retry=Retry(NoBackoff(), 0),  # a script whose answer was lost must not run again
    )
    scheme = "rediss" if tls else "redis"
    at = f"{scheme}://{host}:{port or PORT}" + (f"/{database}" if database else "")
    try:
        return RedisConnection(client, at)
    except StoreError:
        client.close()
        raise


def _version(module: Any) -> tuple[bytes, int]:
    """Name and version of a module; newer servers tell more of it.

    >>> _version([b"name", b"search", b"ver", 20810, b"path", b""])
    (b'search', 20810)
    """
    told = module if isinstance(module, dict) else dict(zip(module[::2], module[1::2], strict=True))
    return told[b"name"], int(told[b"ver"])
