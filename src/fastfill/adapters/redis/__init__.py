"""Redis with its search module: `redis://HOST:PORT[/DB]#INDEX.FIELD`.

What the design rests on, in Redis's terms:
- a row is a hash under a prefix of the owner's index; its key is its id;
- the added vector and the marks are more fields of the same hash, written with it by one script.
  A script runs alone, so it compares a row and sets it in one step;
- the added vectors have an index of their own beside the owner's: a field that is added to an
  index can never be dropped from it, so a rollback could not restore the owner's;
- a scan takes all keys first, so that no row is met twice.
"""

from fastfill.errors import MissingExtraError

try:
    from fastfill.adapters.redis.connection import open_server
    from fastfill.adapters.redis.store import RedisStore
except ImportError as error:
    raise MissingExtraError("redis", "redis", "A redis:// URL") from error

__all__ = ["RedisStore", "open_server"]
