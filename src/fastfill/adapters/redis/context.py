"""What the parts of a Redis store share: the connection, the owner's index, and our own."""

from __future__ import annotations

from fastfill.adapters.redis.connection import RedisConnection
from fastfill.adapters.redis.hashes import RedisHashes
from fastfill.adapters.redis.index import IndexField, RedisIndex, find_index, require_index
from fastfill.errors import StoreError, some
from fastfill.gallery import Side
from fastfill.gallery.base import StoreContext


class RedisContext(StoreContext):
    """One vector field of one index."""

    def __init__(self, connection: RedisConnection, index: str, field: str) -> None:
        super().__init__(f"{connection.name}#{index}.{field}", field)
        self.connection = connection
        self.owner = require_index(connection, index)
        vectors = [each for each in self.owner.fields if each.kind == "VECTOR"]
        found = next((each for each in vectors if each.name == field), None)
        if found is None:
            names = some(each.name for each in vectors) or "none at all"
            raise StoreError(f"{self.name}: the index has no vector '{field}', only {names}.")
        if found.settings.get("data_type") != "FLOAT32":
            raise StoreError(f"{self.name} holds {found.settings['data_type']}, not FLOAT32.")
        self.vector: IndexField = found
        self.documents = f"fastfill:{index}.{field}"  # the key of a hash
        self.hashes = RedisHashes(connection, self.owner.prefixes, self.documents)
        self._added: RedisIndex | None = None

    @property
    def added_name(self) -> str:
        """The name of the index of the added vectors."""
        return f"{self.owner.name}__{self.columns.new}"

    def look(self) -> RedisIndex | None:
        """The index of the added vectors as it is now, or None."""
        self._added = find_index(self.connection, self.added_name)
        return self._added

    @property
    def added(self) -> RedisIndex | None:
        """The same; looked for again until it is there."""
        return self._added if self._added is not None else self.look()

    @property
    def new_dim(self) -> int | None:
        """Dimensions of the added vectors; None before there are any."""
        field = None if self.added is None else self.added.find(self.columns.new)
        return None if field is None else field.dim

    def marked(self) -> bool:
        """Has any hash marks? The index of the added vectors knows them."""
        if self.added is None:
            return False
        wanted = f"@{self.columns.mark('generation')}:{{aligned|new|waiting}}"
        command = ("FT.SEARCH", self.added_name, wanted, "LIMIT", 0, 0, "DIALECT", 2)
        return int(self.connection.run(*command)[0]) > 0

    def field(self, side: Side) -> str:
        """The field of a hash that holds the old or the added vector."""
        return self.vector.field if side == "old" else self.columns.new

    def close(self) -> None:
        """Let go of the server."""
        self.connection.close()
