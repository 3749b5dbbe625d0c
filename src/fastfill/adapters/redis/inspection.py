"""A Redis index before a migration: its hashes, its memory, and what this user may do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from fastfill.adapters.redis.context import RedisContext
from fastfill.adapters.redis.hashes import PAGE, pages_of
from fastfill.adapters.redis.index import count_indexed
from fastfill.gallery import Id, Inspection, VectorIndex

NEEDED = (  # commands of a migration, with as many arguments as they need
    ("FT.CREATE", "index", "SCHEMA", "field", "TAG"),
    ("FT.SEARCH", "index", "*"),
    ("HSET", "key", "field", "1"),
    ("HDEL", "key", "field"),
    ("EVAL", "return 1", "0"),
    ("EVALSHA", "script", "0"),
    ("SCAN", "0"),
)


def inspect_index(context: RedisContext, sample: int, seed: int) -> Inspection:
    """Look at the vector field and draw random hashes; changes nothing.

    A vector of another length than the index says is left out of it by Redis without a word.
    """
    vector, every = context.vector, context.hashes.keys()
    ids = random.Random(seed).sample(every, min(sample, len(every)))
    indexed = count_indexed(context.connection, context.owner.name)
    kind = vector.settings.get("algorithm", "vector").lower()
    behind = max(0, len(every) - indexed)
    return Inspection(
        kind=f"{vector.dim} dimensions, {vector.distance}",
        ids=ids,
        dims=_lengths(context, ids),
        indexes=(VectorIndex(context.owner.name, kind, vector.distance, unindexed=behind),),
        free_bytes=_free_bytes(context),
        missing_permissions=_missing_permissions(context),
        software=_software(context),
    )


def _lengths(context: RedisContext, ids: Sequence[Id]) -> Mapping[int, int]:
    """Dimensions -> hashes that have a vector of so many."""
    lengths: Counter[int] = Counter()
    for page in pages_of(ids, PAGE):
        commands = [["HSTRLEN", key, context.vector.field] for key in page]
        answers = context.connection.run_all(commands)
        lengths.update(size // 4 for size in answers if isinstance(size, int) and size)
    return lengths


def _free_bytes(context: RedisContext) -> int | None:
    """What is left of `maxmemory`; None where there is no such limit."""
    memory = context.connection.run("INFO", "memory")
    most, used = int(memory.get("maxmemory", 0)), int(memory.get("used_memory", 0))
    return max(0, most - used) if most else None


def _software(context: RedisContext) -> tuple[str, ...]:
    """The server, and its search module."""
    server = context.connection.run("INFO", "server")["redis_version"]
    number = context.connection.search_version
    module = f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    return f"Redis {server}", f"search module {module}"


def _missing_permissions(context: RedisContext) -> tuple[str, ...]:
    """Commands that a dry run refuses; nothing where this user may not ask."""
    [user] = context.connection.run_all([["ACL", "WHOAMI"]])
    if not isinstance(user, bytes):
        return ()
    asked = [["ACL", "DRYRUN", user, *command] for command in NEEDED]
    answers = context.connection.run_all(asked)
    return tuple(
        f"run {command[0]}"
        for command, answer in zip(NEEDED, answers, strict=True)
        if isinstance(answer, bytes) and b"permissions to run" in answer
    )
