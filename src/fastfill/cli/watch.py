"""`fastfill watch`: a page on this machine that shows a migration while it goes on."""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import click

from fastfill.cli.advice import advice
from fastfill.cli.main import commands, say
from fastfill.cli.opening import open_by_url, url_argument
from fastfill.cli.status_text import serving_lines, status_json

if TYPE_CHECKING:
    from fastfill.migrate import Migration
    from fastfill.page import PageServer

PORT = 8750
SHOWN = 100  # items that failed, and events, on the page


@commands.command("watch", short_help="Serve a page that shows the migration as it goes on.")
@url_argument
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Where the page is served on this machine; 0: a free one.",
)
def watch_command(url: str, port: int) -> None:
    """Serve a page that shows the migration as it goes on; reads only."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with serve_page(open_by_url(url, encode=False), url, port) as server:
        say(f"Watching at {server.url} (on this machine alone; Ctrl-C ends it)")
        stop.wait()


def serve_page(migration: Migration, url: str, port: int = 0) -> PageServer:
    """The page at /, what it shows at /state.json, the same for Prometheus at /metrics."""
    from fastfill.page import Answer, CachedReader, PageServer, exposition, live_page
    from fastfill.page.prometheus import CONTENT_TYPE

    status = CachedReader(migration.status)
    state = CachedReader(lambda: json.dumps(page_state(migration, url), allow_nan=False))
    return PageServer(
        {
            "/": lambda: Answer("text/html", live_page()),
            "/state.json": lambda: Answer("application/json", state()),
            "/metrics": lambda: Answer(CONTENT_TYPE, exposition(status())),
        },
        port=port,
    )


def page_state(migration: Migration, url: str) -> dict[str, Any]:
    """What `status --json` says, and what the page makes of it."""
    from fastfill.page import quality_charts, summary

    status, now = migration.status(), time.time()
    plain = status_json(status)
    return {
        "now": now,
        "url": url,
        "phase": status.phase,
        "progress": plain["progress"],
        "summary": summary(status, now),
        "serving_lines": serving_lines(status),
        "forecast": None if status.forecast is None else str(status.forecast),
        "charts": quality_charts(status),
        "encoder": plain["encoder"],
        "column": plain["column"],
        "refits": plain["refits"],
        "workers": plain["workers"],
        "quarantined": dict(list(plain["quarantined"].items())[:SHOWN]),
        "history": migration.history()[-SHOWN:],
        "next": advice(status, url, now)._asdict(),
    }
