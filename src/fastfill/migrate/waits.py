"""`Waits`: why the work stands still at present: a busy encoder, a store that cannot be reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

TRYING = 3  # a lost store is waited for so many times the wait that is told: a try takes time too


class Waits:
    """Hears the events of a migration, from any thread, and knows what is being waited for.

    >>> waits = Waits(clock=lambda: 0.0)
    >>> waits.on_event("throttled", {"seconds": 42.3, "refusals": 1, "retry_after": 42.0})
    >>> waits.reason()
    'for the encoder, which asked to try again in 42 s'
    >>> waits.on_event("reconnecting", {"seconds": 5.0, "reason": "Redis is indexing"})
    >>> waits.reason()
    'for the store, because Redis is indexing'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._store = self._encoder = ("", clock())  # why, and until when: replaced as a whole

    def on_event(self, event: str, details: dict[str, Any]) -> None:
        """A callback of a migration."""
        if event == "reconnecting":
            until = self._clock() + TRYING * details["seconds"]
            self._store = (f"for the store, because {details['reason']}", until)
        elif event == "throttled" and "refusals" in details:
            until = self._clock() + details["seconds"]
            self._encoder = (f"for the encoder, which {_said(details)}", until)

    def reason(self) -> str | None:
        """Why the work waits now, if it does."""
        now = self._clock()
        return next((text for text, until in (self._store, self._encoder) if now < until), None)


def _said(details: dict[str, Any]) -> str:
    asked = details.get("retry_after")
    if asked is None:
        return f"is busy: trying again in {details['seconds']:.0f} s"
    return f"asked to try again in {asked:.0f} s"
