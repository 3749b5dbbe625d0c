"""python docs/pictures/watch.py

Takes the pictures of the live page, in about two minutes on two cores: the demo's digits in a
LanceDB table are migrated by the real commands, `fastfill watch` shows it, and the Chromium of the
system looks at it. Needs the extra `dev`.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from fastfill.cli.demo_live import make_store
from fastfill.digits import make_upgrade

HERE = Path(__file__).parent
SIZES = {"desktop": (800, 1290), "phone": (390, 1500)}  # a longer page is cut: the audit trail
DARK = {("during", "phone"), ("paused", "desktop")}
PATIENT = 240.0  # seconds
URL = "lance://./store#digits.vector"
BROKEN = 7  # an image that cannot be embedded at first
ENCODER = """
from pathlib import Path

from fastfill.digits import encode as embed


def encode(images):
    broken = Path("broken")
    if broken.exists() and broken.read_bytes() in images:
        raise ValueError("the image cannot be read")
    return embed(images)
"""
START = ["--input", "pixels", "--encoder", "digits_encoder:encode", "--distance", "l2"]
START += ["--pairs", "150", "--method", "kernel"]
BACKFILL = ["--label", "digit", "--batch", "10", "--lease", "2", "--refit", "20%"]


def main() -> None:
    """The states, one after the other, each at both widths."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(folder)
        make_table()
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with watching() as page:
            take(browser, page, "before")
            command("start", *START).wait()
            run = command("backfill", *BACKFILL, "--rate", "8")
            wait(page, "Backfilling", lambda state: state["progress"]["fraction"] > 0.5)
            take(browser, page, "during")
            command("pause").wait()
            wait(page, "Paused")
            take(browser, page, "paused")
            command("resume").wait()
            run.terminate()
            run.wait()
            command("backfill", *BACKFILL).wait()
            take(browser, page, "failed")
            Path("broken").unlink()
            command("backfill", *BACKFILL, "--retry-failed").wait()
            command("complete").wait()
            wait(page, "Complete")
            take(browser, page, "done")
        browser.close()
        os.chdir(HERE)


def make_table() -> None:
    """The digits under the old model, and beside them the new one, which cannot read an image."""
    from fastfill.digits import as_bytes

    upgrade = make_upgrade()
    make_store(upgrade, Path("store"))
    Path("digits_encoder.py").write_text(ENCODER)
    Path("broken").write_bytes(as_bytes(upgrade.gallery)[BROKEN])


def command(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """`fastfill VERB URL …` in a process of its own, which finds the encoder in this folder."""
    verb, *rest = arguments
    path = os.pathsep.join([str(HERE.parents[1] / "src"), "."])
    environment = {**os.environ, "PYTHONPATH": path}
    line = [sys.executable, "-m", "fastfill", verb, URL, *rest]
    return subprocess.Popen(line, env=environment, text=True, **options)


@contextmanager
def watching() -> Iterator[str]:
    """`fastfill watch` on a free port; the address that it says."""
    watch = command("watch", "--port", "0", stderr=subprocess.PIPE)
    assert watch.stderr is not None
    try:
        yield watch.stderr.readline().split()[2]
    finally:
        watch.terminate()
        watch.wait()


def wait(page: str, word: str, true: Callable[[Any], bool] = lambda _: True) -> None:
    """Until the page says this word and something else is true of it."""
    deadline = time.monotonic() + PATIENT
    while time.monotonic() < deadline:
        state = json.load(urlopen(f"{page}state.json"))
        if state["summary"]["activity"]["word"] == word and true(state):
            return
        time.sleep(0.3)
    raise SystemExit(f"The page did not say {word}.")


def take(browser: Browser, address: str, state: str) -> None:
    """The page as it is now, at both widths, as small WebP files."""
    for device, (width, height) in SIZES.items():
        scheme = "dark" if (state, device) in DARK else "light"
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, device_scale_factor=1
        )
        page.goto(address)
        page.locator("#rows tr").first.wait_for()
        page.wait_for_timeout(500)
        shot = Image.open(io.BytesIO(page.screenshot(full_page=True)))
        cut = shot.crop((0, 0, width, min(height, shot.height)))
        cut.save(HERE / f"watch-{state}-{device}.webp", quality=60, method=6)
        page.close()


if __name__ == "__main__":
    main()
