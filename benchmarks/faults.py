"""python -m benchmarks.faults --store lance --store postgres --rows 20000

A migration with an encoder of which one call in twenty goes wrong: it is refused (429), times out,
answers for half of the items, in another dimension, or with NaN in some rows. One item in 500 can
never be embedded. The backfill must end by itself; in the store every new vector must be the one
that the model gives for the row's text, every item that can be embedded must be new, and exactly
those that cannot must be listed, with the reason.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import DIM, fill_lance, fill_postgres
from fastfill.errors import EncoderBusyError
from fastfill.gallery import Gallery
from fastfill.migrate import Migration

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

SHARE = 0.05  # of the calls
POISON = 500  # one item in so many
FAULTS = ("429", "timeout", "half a batch", "wrong dimension", "NaN")
WAVES = np.random.default_rng(0).uniform(0.1, 3.0, DIM)


def model(texts: Any) -> Any:
    """(n, d) what the model gives for texts that end in a number."""
    numbers = np.array([int(str(text).split()[-1]) for text in texts], dtype=np.float64)
    return np.sin(numbers[:, None] * WAVES + 1).astype(np.float32)


def poisonous(text: Any) -> bool:
    """Can this item never be embedded?"""
    return int(str(text).split()[-1]) % POISON == 7


class Faulty:
    """The model behind a service that fails in every way."""

    def __init__(self, share: float = SHARE) -> None:
        self._rng, self._share = np.random.default_rng(5), share
        self.calls, self.faults = 0, Counter[str]()

    def __call__(self, texts: Any) -> Any:
        self.calls += 1
        fault = str(self._rng.choice(FAULTS)) if self._rng.random() < self._share else ""
        self.faults[fault] += bool(fault)
        if fault == "429":
            raise EncoderBusyError("429 Too Many Requests", 0.01)
        if fault == "timeout":
            raise TimeoutError("the service did not answer")
        if any(map(poisonous, texts)):
            raise ValueError("this item cannot be read")
        vectors = model(texts)
        if fault == "half a batch":
            return vectors[: len(vectors) // 2]
        if fault == "wrong dimension":
            return vectors[:, 1:]
        if fault == "NaN":
            vectors[self._rng.random(len(vectors)) < 0.5, 3] = np.nan
        return vectors


@dataclass(frozen=True)
class Outcome:
    """What was found in the store when the backfill had ended."""

    rows: int
    seconds: float
    calls: int
    faults: Counter[str]
    new: int
    wrong: int  # new vectors that are not the model's
    poison: set[Any]  # ids of items that cannot be embedded
    listed: set[Any]  # ids of items that were set aside

    @property
    def good(self) -> bool:
        """Nothing wrong, nothing missing, everything listed that must be and nothing else."""
        done = self.new + len(self.poison) == self.rows
        return done and not self.wrong and self.listed == self.poison


def migrate(gallery: Gallery, pairs: int = 500, share: float = SHARE) -> Outcome:
    """From the start to the end of a backfill, then look at every row."""
    encoder, began = Faulty(share), time.perf_counter()
    migration = Migration(gallery, encoder, encoder_name="faulty")
    migration.start(pairs=pairs, method="ridge", index=False)
    for _ in migration.backfill(throttle=False):
        pass
    seconds = time.perf_counter() - began
    rows = new = wrong = 0
    poison: set[Any] = set()
    for block in gallery.store.scan(None, batch=4_096, new=True):
        rows += len(block)
        poison |= {k for k, t in zip(block.ids, block.inputs, strict=True) if poisonous(t)}
        done = np.array([generation == "new" for generation in block.generation], dtype=bool)
        new += int(done.sum())
        if done.any() and block.new is not None:
            right = np.isclose(block.new[done], model(block.inputs[done]), atol=1e-5).all(axis=1)
            wrong += int((~right).sum())
    listed = set(migration.status().quarantined)
    return Outcome(rows, seconds, encoder.calls, +encoder.faults, new, wrong, poison, listed)


def row(name: str, found: Outcome) -> str:
    """One line of the table."""
    faults = ", ".join(f"{found.faults[fault]} × {fault}" for fault in FAULTS)
    poison = f"{len(found.listed & found.poison)} of {len(found.poison)}"
    return (
        f"| {name}, {found.rows:,} | {found.calls:,} | {faults} | {found.seconds:.0f} s | "
        f"{found.new:,} | {found.wrong} | {poison} | {len(found.listed - found.poison)} |"
    )


def main() -> None:
    """Measure, print, write; an error if anything is not as it must be."""
    from fastfill.wiring import connect

    parser = argparse.ArgumentParser()
    parser.add_argument("--store", action="append", choices=["lance", "postgres"])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    lines = [
        "| store, rows | calls | faults | time | new | wrong | poison listed | others listed |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    bad = []
    for name in options.store or ["lance", "postgres"]:
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            if name == "postgres":
                from benchmarks.shared.postgres_server import PostgresServer

                server = PostgresServer()
                url = fill_postgres(server.uri, options.rows, False)
            else:
                server, url = None, fill_lance(folder, options.rows, False)
            gallery = connect(url, input="text", distance="l2")
            found = migrate(gallery)
            gallery.store.close()
            if server is not None:
                server.close()
        lines.append(row(name, found))
        print(lines[-1], flush=True)
        bad += [] if found.good else [name]
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.faults", *sys.argv[1:]])
        write_section("An encoder that fails in every way", command, "\n".join(lines))
    if bad:
        sys.exit(f"Not as it must be: {', '.join(bad)}.")


if __name__ == "__main__":
    main()
