"""Notes of what others write to the owner's table, where the owner allows a trigger on it.

| what                           | made by `start`, dropped by `complete` and `rollback`       |
| ------------------------------ | ------------------------------------------------------------ |
| the table `TABLE_ff_COLUMN_notes` | a number, and the id of a row that was written             |
| a function of the same name    | adds a note, with the rights of whoever started the migration |
| a trigger of the same name     | calls it for each row that is inserted, updated or deleted   |

A note is written in the transaction of the write, so it can be read when the write can be seen, and
not before. A sweep reads notes, then looks at their rows in a later statement, which sees at least
the writes of these notes, and removes by their numbers the notes of rows that are as their marks
say. A transaction that commits after the notes were read has notes with other numbers, which stay
for the next sweep. The notes of rows that are to be settled stay too, until a sweep finds them so:
whoever dies in between loses nothing.

That the trigger has seen every write since a whole pass is told by the catalogue. It is made under
a lock that waits for every open write to the table, and fires for rows that come by replication
too; whoever switches it off, replaces it or empties the notes leaves another version of a row in
the catalogue, or another file, and then the next sweep is a whole pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from fastfill.adapters.postgres.connection import raw
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.sql import as_key
from fastfill.errors import StoreError
from fastfill.gallery import Id

NUMBER = "ff_note"  # the column of a note's number
IN_PLACE = (
    "SELECT g.oid || '.' || g.xmin || '.' || p.oid || '.' || p.xmin || '.' || "
    "pg_relation_filenode(to_regclass(%s)) FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid "
    "WHERE g.tgrelid = to_regclass(%s) AND g.tgname = %s AND g.tgenabled = 'A'"
)
MAY_NOTE = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s)"
THERE = "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND tgname = %s)"
DROP_TRIGGER = SQL("DROP TRIGGER IF EXISTS {name} ON {table}")
CREATE_FUNCTION = """
CREATE OR REPLACE FUNCTION {notes}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $note$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO {notes} ({id}) VALUES (NEW.{id});
  ELSE
    INSERT INTO {notes} ({id}) VALUES (OLD.{id});
    IF TG_OP = 'UPDATE' AND NEW.{id} IS DISTINCT FROM OLD.{id} THEN
      INSERT INTO {notes} ({id}) VALUES (NEW.{id});
    END IF;
  END IF;
  RETURN NULL;
END $note$
"""
CREATE_TRIGGER = (
    "CREATE TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON {table} "
    "FOR EACH ROW EXECUTE FUNCTION {notes}(); "
    "ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}"  # in one transaction with the first
)


Note = tuple[int, Id]  # its number, and the id of the row


def in_place(context: PostgresContext) -> str:
    """Which trigger notes every write now; empty where none does."""
    names = [context.regclass(name) for name in (context.notes_name, context.table)]
    rows = context.work.rows_of(IN_PLACE, [*names, context.notes_name])
    return str(rows[0][0]) if rows and rows[0][0] is not None else ""


def check_noting(context: PostgresContext) -> None:
    """Refuse before anything is done where this user may not put a trigger on the table."""
    (row,) = context.work.rows_of(MAY_NOTE, [context.regclass(context.table)])
    if context.beside and not row[0]:
        raise StoreError(
            f"{context.name}: a trigger that always fires can be put on '{context.table}' by its "
            "owner alone. Run start as its owner, or leave --allow-trigger out."
        )


def note_writes(context: PostgresContext) -> None:
    """From now on every write is noted; a trigger that is in place stays."""
    context.work.change_schema(lambda: [] if in_place(context) else _creation(context))


def stop_noting(context: PostgresContext) -> None:
    """Drop the trigger, then its function and the notes: no write ever lacks its notes.

    An owner's table that has no such trigger is not even locked.
    """

    def steps() -> list[Composed]:
        if not context.columns_of(context.notes_name):
            return []
        (row,) = context.work.rows_of(THERE, [context.regclass(context.table), context.notes_name])
        drops = [DROP_TRIGGER] if row[0] else []
        drops += [SQL("DROP FUNCTION IF EXISTS {notes}()"), SQL("DROP TABLE IF EXISTS {notes}")]
        return [_format(context, step) for step in drops]

    context.work.change_schema(steps)


def pages(context: PostgresContext, size: int) -> Iterator[list[Note]]:
    """All notes that can be seen, some at a time."""
    query = SQL("SELECT n.{n}, {} FROM {} n WHERE n.{n} > {} ORDER BY n.{n} LIMIT {}")
    key, last = as_key(context, SQL("n.{}").format(Identifier(context.columns.id))), 0
    while True:
        step = query.format(key, context.notes, Literal(last), Literal(size), n=Identifier(NUMBER))
        rows = context.work.rows_of(step)
        if rows:
            yield [(int(number), key) for number, key in rows]
        if len(rows) < size:
            return
        last = int(rows[-1][0])


def remove(context: PostgresContext, numbers: Sequence[int]) -> None:
    """These notes have been dealt with."""
    query = SQL("DELETE FROM {} WHERE {} = ANY({}::bigint[])").format(
        context.notes, Identifier(NUMBER), Literal(list(numbers))
    )
    context.work.write(lambda cursor: cursor.execute(query))


def _creation(context: PostgresContext) -> list[Composed]:
    create = SQL(
        "CREATE TABLE IF NOT EXISTS {notes} ({number} bigint GENERATED ALWAYS AS IDENTITY "
        "PRIMARY KEY, {id} {kind})"
    )
    steps = (create, SQL(CREATE_FUNCTION), DROP_TRIGGER, SQL(CREATE_TRIGGER))
    return [_format(context, step) for step in steps]


def _format(context: PostgresContext, step: SQL) -> Composed:
    values: dict[str, Composable] = {
        "notes": context.notes,
        "name": Identifier(context.notes_name),
        "table": context.target,
        "number": Identifier(NUMBER),
        "id": Identifier(context.columns.id),
        "kind": raw(context.types[context.columns.id]),
    }
    return step.format(**values)
