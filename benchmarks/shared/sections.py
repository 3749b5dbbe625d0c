"""Sections of `benchmarks/RESULTS.md`: each is replaced when its benchmark runs again."""

from __future__ import annotations

import datetime
import os
import platform
import re

from benchmarks.shared.paths import RESULTS

HEADER = """# Results

Every figure was printed by the command above it; running that again replaces its section.
"""


def machine() -> str:
    """What the figures were measured on, in a few words."""
    import importlib.util

    parts = [f"{os.cpu_count()} cores", platform.machine(), f"Python {platform.python_version()}"]
    if importlib.util.find_spec("torch"):
        import torch

        parts.append(f"torch {torch.__version__.split('+')[0]}")
        if torch.cuda.is_available():
            parts.insert(0, torch.cuda.get_device_name())
    return ", ".join(parts)


def write_section(
    title: str, command: str, body: str, where: str | None = None, day: str | None = None
) -> None:
    """Replace or add one section; `where` and `day` tell of figures from elsewhere and earlier."""
    day = day or datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    head = f"```console\n$ {command}\n```\n{where or machine()}; {day}."
    section = f"## {title}\n\n{head}\n\n{body.strip()}\n"
    text = RESULTS.read_text() if RESULTS.exists() else HEADER
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    if pattern.search(text):
        text = pattern.sub(lambda _: section + "\n", text)
    else:
        text = f"{text.rstrip()}\n\n{section}"
    RESULTS.write_text(text.rstrip() + "\n")
    print(f"\n## {title}\n\n{body.strip()}\n")
