"""The site needs no server: pages are opened as files, and the search works there."""

from __future__ import annotations

import re
from pathlib import Path

from browser import Chromium
from docs_world import ROOT

SHIM = ROOT / "docs" / "iframe-worker.js"
ECHO = "addEventListener('message', event => postMessage('heard ' + event.data.word));"
PAGE = """<!doctype html><title>page</title><body><script src="{shim}"></script><script>
window.heard = [];
const worker = new Worker("echo.js");
worker.addEventListener("message", event => heard.push(event.data));
worker.postMessage({{ word: "one" }});
worker.postMessage({{ word: "two" }});
</script></body>"""


def test_the_site_is_built_for_files() -> None:
    """Search is made for files last of all, by a script of ours instead of another server's."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    plugins = re.search(r"^plugins:\n((?:  .*\n)+)", settings, re.M)
    assert plugins is not None
    assert re.findall(r"^  - (\w+)", plugins[1], re.M)[-1] == "offline"
    assert f"polyfills: [{SHIM.relative_to(ROOT)}]" in settings


def test_a_page_that_is_a_file_gets_its_answers(tmp_path: Path, chromium: Chromium) -> None:
    """Where browsers start no worker, its script runs in the page and answers in order."""
    (tmp_path / "echo.js").write_text(ECHO)
    (tmp_path / "page.html").write_text(PAGE.format(shim=SHIM.as_uri()))
    chromium.open(tmp_path / "page.html")
    chromium.wait_for("heard.length === 2", seconds=60)
    assert chromium.run("heard") == ["heard one", "heard two"]
    assert chromium.complaints == []
