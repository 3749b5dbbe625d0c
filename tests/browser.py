"""A real browser for the tests of pages: the system's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--hide-scrollbars"]


class Chromium:
    """One page, what it has asked for on the network, and what it complained about."""

    def __init__(self, browser: Any) -> None:
        self._page = browser.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._page.on("request", lambda request: self.requests.append(request.url))
        self._page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self._page.on("console", self._note)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(
        self, place: Path | str, width: int = 1000, height: int = 900, *, dark: bool = False
    ) -> None:
        """Load a file or an address, and wait until its charts are drawn."""
        self._page.set_viewport_size({"width": width, "height": height})
        self._page.emulate_media(color_scheme="dark" if dark else "light")
        self._page.goto(place if isinstance(place, str) else place.absolute().as_uri())
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        return self._page.evaluate(expression)

    def wait_for(self, expression: str, seconds: float = 240) -> None:
        """Until a JavaScript expression is true.

        Playwright's own way evaluates in the page, which a content security policy forbids.
        """
        deadline = time.monotonic() + seconds
        while not self.run(expression):
            assert time.monotonic() < deadline, f"{expression} did not become true"
            self._page.wait_for_timeout(100)

    def text(self, selector: str) -> str:
        """What an element shows."""
        return str(self._page.inner_text(selector))

    def press(self, key: str) -> None:
        """A key, as a keyboard sends it."""
        self._page.keyboard.press(key)

    def move(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """The mouse, to a place within an element."""
        element = self._page.locator(selector).first
        element.scroll_into_view_if_needed()
        box = element.bounding_box()
        self._page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of an element, whatever lies there."""
        self.move(selector)
        self._page.mouse.down()
        self._page.mouse.up()

    def picture(self, path: Path) -> None:
        """A PNG of the whole page."""
        self._page.screenshot(path=path, full_page=True)

    def forget(self) -> None:
        """What was noted before."""
        self.requests.clear()
        self.complaints.clear()


@contextmanager
def running_chromium() -> Iterator[Chromium]:
    """A headless browser, where one is installed; the tests are skipped elsewhere."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on this machine: install it to test pages in a real browser")
    driver = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield Chromium(browser)
        browser.close()
