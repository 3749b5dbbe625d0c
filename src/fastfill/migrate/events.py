"""Events: what the work tells the operator's own program while it goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfill.errors import InputError

EVENTS = (
    "start", "model", "untried", "unchecked", "judgements", "missing", "noted", "paused",
    "throttled", "reconnecting", "serving", "failed", "done",
)  # fmt: skip
TIMEOUT = 30  # seconds
Callback = Callable[[str, dict[str, Any]], None]  # event, details


def ignore(event: str, details: dict[str, Any]) -> None:
    """A callback that does nothing."""


def hook(path: str, warn: Callable[[str], None]) -> Callback:
    """A callback that runs `path EVENT` with the details as JSON on standard input.

    A hook that fails or hangs is reported and changes nothing about the migration.
    """
    program = Path(path).resolve()
    if not program.is_file():
        raise InputError(f"{path}: the hook is not a file.")

    def callback(event: str, details: dict[str, Any]) -> None:
        if event not in EVENTS:
            return
        try:
            # The operator's own program, without a shell.
            result = subprocess.run(  # noqa: S603
                [str(program), event],
                input=json.dumps({"event": event, **details}),
                text=True,
                timeout=TIMEOUT,
                capture_output=True,
                check=False,
            )
            if result.returncode:
                warn(f"The hook ended with {result.returncode} on {event}: {result.stderr[:200]}")
        except (OSError, subprocess.TimeoutExpired) as error:
            warn(f"The hook could not run on {event}: {error}")

    return callback
