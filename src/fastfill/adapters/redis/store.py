"""`RedisStore`: the parts put together."""

from __future__ import annotations

from fastfill.adapters.redis.connection import RedisConnection
from fastfill.adapters.redis.context import RedisContext
from fastfill.adapters.redis.documents import RedisDocuments
from fastfill.adapters.redis.inspection import inspect_index
from fastfill.adapters.redis.reads import RedisReads
from fastfill.adapters.redis.schema import RedisSchema
from fastfill.adapters.redis.search import RedisSearch
from fastfill.adapters.redis.writes import RedisWrites
from fastfill.gallery import ComposedStore, Inspection


class RedisStore(ComposedStore):
    """One vector field of one index."""

    def __init__(self, connection: RedisConnection, index: str, field: str) -> None:
        context = RedisContext(connection, index, field)
        super().__init__(
            context,
            documents=RedisDocuments(context),
            schema=RedisSchema(context),
            reads=RedisReads(context),
            writes=RedisWrites(context),
            search=RedisSearch(context),
        )
        self._redis = context

    def inspect(self, sample: int, seed: int) -> Inspection:
        """Look at the vector field, and draw up to `sample` random hashes."""
        return inspect_index(self._redis, sample, seed)
