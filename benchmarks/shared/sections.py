"""Sections of `benchmarks/RESULTS.md`: each is replaced when its benchmark runs again."""

from __future__ import annotations

import datetime
import os
import platform
import re

from benchmarks.shared.paths import RESULTS

HEADER = """# Results

Every figure was printed by the command above it, on the machine and the day below it; running that
again replaces its section.
"""

# How titles begin, in the order of the page. A title that begins as none of them comes last.
SUBJECTS = {
    "The paper": (
        "The paper on", "Laboratory: main", "Laboratory: top5", "Laboratory: architecture",
        "Laboratory: ablation", "Laboratory: unseen", "Laboratory: side", "Laboratory: bias",
        "Laboratory: faces", "Laboratory: flips", "Laboratory: sigma", "Laboratory: best",
        "Why conclusions", "An ArcFace term", "Laboratory:", "The paper's preset",
    ),
    "Maps, errors and orders": (
        "`auto` on text", "`auto` against", "A backfill that teaches, without",
        "A backfill that teaches, with ", "Orders and maps", "An error estimate", "σ² that knows",
    ),
    "Forecasts": ("Forecast of backfilling", "Forecast of document"),
    "Serving by both models": (
        "Document search along", "Document search:", "Classes served", "A search by both models",
    ),
    "Nothing lost in a live migration": (
        "Nothing lost", "An encoder that fails", "A fleet of workers", "Queries during a backfill",
    ),
    "The cost of a live migration": (
        "Overhead of a migration", "A sweep of LanceDB", "What a migration reads",
        "What a migration writes", "Who waits",
    ),
    "Data sets in pieces, and large curves": (
        "Data sets in pieces", "Data sets in object storage", "Embedding by actors", "Learning and",
        "An exact curve", "A curve on a GPU", "A curve at", "A whole curve", "Applying a map",
    ),
    "Installing, and other programs": ("The size of an installation", "Exported maps"),
}  # fmt: skip
OTHERS = "Others"


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
    sections = read_sections(RESULTS.read_text() if RESULTS.exists() else "")
    sections[title] = f"{head}\n\n{body.strip()}"
    RESULTS.write_text(page_of(sections))
    print(f"\n## {title}\n\n{body.strip()}\n")


def read_sections(page: str) -> dict[str, str]:
    """What stands below each title.

    >>> read_sections("# Results\\n\\n## A\\n\\nab\\n\\n### c\\n\\n## B\\n\\nd\\n")
    {'A': 'ab\\n\\n### c', 'B': 'd'}
    """
    _, *parts = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)
    return {title: body.strip() for title, body in zip(parts[::2], parts[1::2], strict=True)}


def page_of(sections: dict[str, str]) -> str:
    """All sections in the order of their subjects, after a list of them."""
    titles = sorted(sections, key=place_of)
    contents: list[str] = []
    for title in titles:
        subject = place_of(title)[1]
        if f"- {subject}" not in contents:
            contents.append(f"- {subject}")
        contents.append(f"    - [{title}](#{anchor_of(title)})")
    parts = [HEADER + "\n" + "\n".join(contents)]
    parts += [f"## {title}\n\n{sections[title]}" for title in titles]
    return "\n\n".join(parts) + "\n"


def place_of(title: str) -> tuple[int, str, int, str]:
    """Where a section comes: its subject, and its place in it.

    >>> place_of("Who waits for a migration")[1], place_of("Something new")[1]
    ('The cost of a live migration', 'Others')
    """
    for number, (subject, beginnings) in enumerate(SUBJECTS.items()):
        for place, beginning in enumerate(beginnings):
            if title.startswith(beginning):
                return number, subject, place, title
    return len(SUBJECTS), OTHERS, 0, title


def anchor_of(title: str) -> str:
    """The anchor of a heading, as code hosts make it.

    >>> anchor_of("`auto` on text, 5 %")
    'auto-on-text-5-'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
