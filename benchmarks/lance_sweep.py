"""python -m benchmarks.lance_sweep --rows 100000

What a sweep of a LanceDB table takes: when it looks at every row, when nothing was written since
the one before, and when others have written a few rows, or FastFill a batch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()
OLD, NEW, BATCH = 256, 256, 4_096


class Table:
    """A table whose rows are all settled."""

    def __init__(self, folder: str, rows: int) -> None:
        import lancedb
        import pyarrow as pa

        from fastfill.adapters.lance import LanceStore
        from fastfill.gallery import Columns, Marks, Settled

        vectors = np.random.default_rng(0).standard_normal((rows, OLD), dtype=np.float32)
        flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), OLD)
        text = [f"text of item {n}" for n in range(rows)]
        values = {"id": pa.array(range(rows)), "text": text, "vector": flat}
        self.owner: Any = lancedb.connect(folder).create_table("items", pa.table(values))
        self.store = LanceStore(folder, "items", "vector")
        self.store.bind(Columns("id", "text", "vector"))
        self.store.expand(NEW)
        self.store.save("state", b"-", 0)
        self.settled = Settled("map", "model")
        self.right = Marks("aligned", "map")
        self.sweep()

    def sweep(self) -> float:
        """Seconds of a sweep that settles what it finds."""
        began = time.perf_counter()
        for rows in self.store.unsettled(self.settled, batch=1 << 16, changed=True):
            self.store.write(rows, np.ones((len(rows), NEW), np.float32), self.right)
        return time.perf_counter() - began

    def best(self, before: str) -> float:
        """Of three, each after the same has happened."""
        return min(self._after(before) for _ in range(3))

    def _after(self, before: str) -> float:
        if before == "every row":
            self.store.remove(["clean fragments"])
        else:
            self.sweep()
        self.owner.checkout_latest()
        if before == "10 rows":
            self.owner.update(where="id < 10", values={"text": f"{time.perf_counter()}"})
        elif before == "a batch":
            rows = self.store.read(list(range(BATCH)))
            self.store.write(rows, np.ones((BATCH, NEW), np.float32), self.right)
        return self.sweep()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lance-sweep-") as folder:
        table = Table(str(Path(folder)), options.rows)
        seconds = {
            name: table.best(name) for name in ("every row", "nothing", "10 rows", "a batch")
        }
    names = {
        "every row": "every row, as the first time",
        "nothing": "nothing was written",
        "10 rows": "10 rows were changed by others",
        "a batch": f"FastFill wrote {BATCH:,} rows",
    }
    lines = [
        f"| {names[name]} | {1e3 * took:,.0f} | {took / seconds['every row']:.3f} |"
        for name, took in seconds.items()
    ]
    body = "\n".join(
        ["| since the sweep before | ms | of a full one |", "| --- | ---: | ---: |", *lines]
    )
    body += (
        f"\n\n{options.rows:,} rows, old and added vectors of {OLD} numbers; what is found is "
        "settled, which is part of the time. The best of three."
    )
    print(body)
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.lance_sweep", *sys.argv[1:]])
        write_section("A sweep of LanceDB by fragment", command, body)


if __name__ == "__main__":
    main()
