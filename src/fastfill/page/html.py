"""The live page: one document with its style and script inside, which fetches /state.json."""

from __future__ import annotations

from importlib.resources import files

import fastfill
from fastfill.report.html import asset, fill, policy_hash


def live_page() -> str:
    """The page as text: the same for every migration, since it asks for what it shows.

    >>> "connect-src 'self'" in live_page()
    True
    """
    style = asset("report.css") + _own("page.css")
    script = asset("charts.js") + _own("page.js")
    parts = {
        "version": fastfill.__version__,
        "style": style,
        "style_hash": policy_hash(style),
        "script": script,
        "script_hash": policy_hash(script),
    }
    return fill(_own("page.html"), parts)


def _own(name: str) -> str:
    return files("fastfill.page").joinpath("assets", name).read_text(encoding="utf-8")
