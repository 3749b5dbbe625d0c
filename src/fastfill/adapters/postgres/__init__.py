"""PostgreSQL with pgvector: `postgresql://…#[SCHEMA.]TABLE.COLUMN`.

What the design rests on, in PostgreSQL's terms:
- the fingerprint is computed by the server from the bytes of the vector and the input, so the
  compare-and-set is a condition of the UPDATE, which READ COMMITTED checks again on the latest
  version of a row that someone else has just changed;
- a row remembers the transaction that marked it: as long as that is its xmin nobody has touched it
  since, so that sweeps and writes need the fingerprint of very few rows;
- a batch goes by binary COPY into a temporary table and from there by one UPDATE, on a connection
  of its own, so that the next batch is read meanwhile;
- what is repeated reads by indexes of the marks and of the rows that are not as their marks say,
  which the server keeps in every transaction; counts are kept by the writes;
- a transaction holds its rows for less than half a second;
- the application never loses a deadlock to a batch: a batch waits for a locked row for less than
  `deadlock_timeout`, and then does without the rows that are locked;
- all of that may be kept in a table beside the owner's instead (`side_table`), which is then read
  and nothing else, but for a trigger where its owner allows one (`write_notes`);
- schema changes wait `lock_timeout` and no longer, indexes are built concurrently after the rows;
- a lost connection is opened again, and a transaction whose end is not known is looked up before it
  is repeated, so that nothing is done twice.
"""

from fastfill.errors import MissingExtraError

try:
    from fastfill.adapters.postgres.store import PostgresStore
except ImportError as error:
    raise MissingExtraError("psycopg", "postgres", "A postgresql:// URL") from error

__all__ = ["PostgresStore"]
