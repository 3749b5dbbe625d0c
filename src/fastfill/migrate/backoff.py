"""`Backoff`: waiting for an encoder that is busy: Retry-After, else exponential with jitter."""

from __future__ import annotations

import random
import threading

from fastfill.errors import EncoderBusyError, EncoderError
from fastfill.migrate.events import Callback

FIRST, LONGEST = 0.5, 60.0  # seconds
GIVE_UP = 20  # refusals in a row


class Backoff:
    """Counts refusals in a row, and waits longer after each."""

    def __init__(self, stop: threading.Event, callback: Callback) -> None:
        self._stop, self._callback = stop, callback
        self._refusals = 0

    def wait(self, busy: EncoderBusyError) -> bool:
        """Sleep as long as the encoder says, or ever longer; False when the work is to stop."""
        self._refusals += 1
        if self._refusals > GIVE_UP:
            raise EncoderError(f"The encoder was busy {GIVE_UP} times in a row: {busy}") from busy
        longest = min(FIRST * 2 ** (self._refusals - 1), LONGEST)
        seconds = busy.retry_after if busy.retry_after is not None else longest
        seconds += random.uniform(0, 0.1 * longest)
        self._callback(
            "throttled",
            {
                "reason": str(busy),
                "seconds": round(seconds, 2),
                "refusals": self._refusals,
                "retry_after": busy.retry_after,
            },
        )
        return not self._stop.wait(seconds)

    def reset(self) -> None:
        """The encoder has answered."""
        self._refusals = 0
