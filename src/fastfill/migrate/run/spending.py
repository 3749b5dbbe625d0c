"""`Spending`: what all workers of a run have spent, and how many rows still fit into its limit.

Where there is a limit, a batch is estimated before it is embedded. What a row costs beside its
length is learned from the rows before: the first batch is one row, and each one at most so many
times as large as all before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from fastfill.errors import MigrationError
from fastfill.migrate.options import Prices

GROWTH = 16  # rows of a batch for each row that was embedded before


class Spending:
    """Shared by the workers of one run.

    >>> spending = Spending(Prices(per_1k_tokens=1.0), limit=0.010, clock=lambda: 0.0)
    >>> spending.reserve([4.0, 4.0, 4.0])
    1
    >>> spending.spend(4.0, guessed=4.0, rows=1, seconds=0.0); spending.cost
    0.004
    >>> spending.reserve([4.0, 4.0, 4.0])
    1
    """

    def __init__(
        self,
        prices: Prices,
        limit: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prices, self._limit, self._clock = prices, limit, clock
        self._began, self._turn = clock(), threading.Lock()
        self._tokens = self._guessed = self._held = 0.0  # counted; by length, of these; to come
        self._rows, self._seconds = 0, 0.0  # embedded; of the encoder for each row, lately

    @property
    def cost(self) -> float:
        """Of all that was embedded, in all the time since the beginning."""
        return self._prices.cost(self._tokens, self._clock() - self._began)

    def reserve(self, tokens: Sequence[float]) -> int:
        """How many of the next rows fit, of which so many tokens are guessed; theirs from now on.

        0 where the limit is reached; an error where not even the first row of a run fits.
        """
        if self._limit is None:
            return len(tokens)
        with self._turn:
            most = min(len(tokens), max(1, GROWTH * self._rows))
            fit = next((n for n in range(most) if self._with(tokens[: n + 1]) > self._limit), most)
            if fit == 0 and len(tokens) and not self._rows and not self._held:
                raise MigrationError(
                    f"The first row alone brings the cost to about {self._with(tokens[:1]):.4g}, "
                    f"more than the limit of {self._limit:.4g}: nothing was embedded. Raise the "
                    "limit (--max-cost)."
                )
            self._held += sum(tokens[:fit])
            return fit

    def _with(self, tokens: Sequence[float]) -> float:
        """What everything would have cost with these rows too."""
        of_a_guess = self._tokens / self._guessed if self._guessed else 1.0
        to_come = (self._held + sum(tokens)) * of_a_guess
        seconds = self._clock() - self._began + self._seconds * len(tokens)
        return self._prices.cost(self._tokens + to_come, seconds)

    def spend(self, tokens: float, *, guessed: float, rows: int, seconds: float) -> None:
        """So many tokens were used by rows that were reserved, in so many seconds."""
        with self._turn:
            self._tokens += tokens
            self._guessed += guessed
            self._held = max(0.0, self._held - guessed)
            self._rows += rows
            self._seconds = seconds / max(rows, 1)
