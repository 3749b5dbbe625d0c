"""An encoder that waits: what one on a GPU looks like to the CPU. It writes down what it did."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastfill.features import Matrix

DIM = 64


@dataclass(frozen=True)
class WaitingEncoder:
    """Opened in each process; a line of its log is a call: items, when it began and ended."""

    log: str
    seconds: float  # for each item

    def __call__(self) -> Callable[[Sequence[str]], Matrix]:
        """Open it."""
        path = Path(self.log, f"{os.getpid()}.txt")
        path.touch()
        waves = np.linspace(0.1, 3, DIM, dtype=np.float32)

        def encode(items: Sequence[str]) -> Matrix:
            began = time.time()
            numbers = np.array([int(text.split()[-1]) for text in items], dtype=np.float32)
            vectors = np.sin(numbers[:, None] * waves)
            time.sleep(max(0.0, began + self.seconds * len(items) - time.time()))
            with path.open("a") as file:
                file.write(f"{len(items)} {began} {time.time()}\n")
            return np.asarray(vectors)

        return encode
