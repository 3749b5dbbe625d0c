"""A real browser for the tests of pages: headless Chromium, driven through a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


class Chromium:
    """One page. Speaks the DevTools protocol: JSON ended by NUL, out on fd 3, in on fd 4."""

    def __init__(self, program: str, folder: Path) -> None:
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        self._program = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=_move(to_read, to_write),
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._count, self._buffer, self._session = 0, b"", ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events on the way are noted."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            self._note(answer)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], 60)[0]:
                raise TimeoutError("Chromium has not answered for a minute.")
            data = os.read(self._in, 1 << 16)
            if not data:
                raise RuntimeError("Chromium has ended.")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(text))

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"].get("text", "exception"))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])

    def open(self, path: Path, width: int = 1000, height: int = 900, *, dark: bool = False) -> None:
        """Load a file and wait until its charts are drawn."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.absolute().as_uri())
        self.run(
            "new Promise(done => document.readyState === 'complete' ? done() : "
            "addEventListener('load', done)).then(() => new Promise(done => "
            "requestAnimationFrame(() => requestAnimationFrame(done))))"
        )

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as a keyboard sends it."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def tab(self) -> None:
        """The tab key, which moves the focus."""
        for kind in ("rawKeyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )

    def move(self, selector: str, across: float = 0.5, down: float = 0.5) -> tuple[float, float]:
        """The mouse, to a place within an element."""
        script = f"""(() => {{ const node = document.querySelector({json.dumps(selector)});
            node.scrollIntoView({{block: 'center'}}); const box = node.getBoundingClientRect();
            return [box.left + box.width * {across}, box.top + box.height * {down}]; }})()"""
        x, y = self.run(script)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of an element."""
        x, y = self.move(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End the browser."""
        os.close(self._out)
        os.close(self._in)
        self._program.terminate()
        self._program.wait(30)


def _move(to_read: int, to_write: int) -> Any:
    """In the child, put the two ends where Chromium looks for them."""

    def place() -> None:
        high = [os.dup2(fd, 100 + k) for k, fd in enumerate((to_read, to_write))]
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    return place
