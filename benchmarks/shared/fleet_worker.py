"""`python -m benchmarks.shared.fleet_worker FOLDER URL LEASE BATCH`: one worker of a fleet.

It is `fastfill backfill` with an encoder that waits, as one on a GPU does. Into FOLDER/PID.txt it
writes a line when a batch begins and ends, and whenever a document is to be replaced: with what
success. FASTFILL_FLEET_CLOCK is how many seconds the clock of the process is wrong by.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.crash_model import new_model
from fastfill.adapters.postgres.documents import PostgresDocuments

SLOW = float(os.environ.get("FASTFILL_FLEET_SLOW", "0.005"))  # seconds for an item
WRONG = float(os.environ.get("FASTFILL_FLEET_CLOCK", "0"))


def encode(texts: Sequence[Any]) -> NDArray[np.float32]:
    """The new model, with every item written down before and after."""
    say("begin", *(str(text).split()[-1] for text in texts))
    time.sleep(SLOW * len(texts))
    vectors = new_model(texts)
    say("end")
    return vectors


def say(*words: object) -> None:
    """One line, whole or not at all."""
    now = time.clock_gettime(time.CLOCK_REALTIME)  # the right one
    line = " ".join(map(str, (now, *words))) + "\n"
    log = Path(os.environ["FASTFILL_FLEET_LOG"], f"{os.getpid()}.txt")
    with log.open("ab", buffering=0) as file:
        file.write(line.encode())


def count_conflicts() -> None:
    """Write down how every compare-and-set of a document ends."""
    plain = PostgresDocuments.save

    def save(self: PostgresDocuments, name: str, value: bytes, version: int) -> bool:
        saved = plain(self, name, value, version)
        say("saved" if saved else "refused", name)
        return saved

    PostgresDocuments.save = save  # type: ignore[method-assign]


def main() -> None:
    """Run the command itself."""
    folder, url, lease, batch = sys.argv[1:]
    os.environ["FASTFILL_FLEET_LOG"] = folder
    time.time = lambda: time.clock_gettime(time.CLOCK_REALTIME) + WRONG
    count_conflicts()
    from fastfill.cli.main import commands, load_commands
    from fastfill.migrate import model_check

    model_check.ROWS = 0  # a row embedded again to check the model is not done twice
    load_commands()
    words = ["backfill", url, "--lease", lease, "--batch", batch, "--no-throttle", "--json"]
    try:
        commands.main([*words, "--refit", "never"], standalone_mode=False)
    finally:
        say("exit")


if __name__ == "__main__":
    main()
