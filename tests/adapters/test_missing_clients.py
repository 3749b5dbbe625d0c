"""Without a store's client its URL is refused in a sentence that says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("url", "client", "extra"),
    [
        ("lance://here#photos.vector", "lancedb", "lance"),
        ("postgresql://here/photos#photos.vector", "psycopg", "postgres"),
        ("qdrant://here#photos", "qdrant_client", "qdrant"),
        ("chroma://here#photos", "chromadb", "chroma"),
        ("redis://here#photos.vector", "redis", "redis"),
        ("sqlite://here#photos.vector", "sqlite_vec", "sqlite"),
    ],
)
def test_a_client_that_is_not_installed_is_named(url: str, client: str, extra: str) -> None:
    """The URL alone loads the adapter, and the error tells the extra that brings its client."""
    code = f"""
import sys
sys.modules[{client!r}] = None
from fastfill.errors import MissingExtraError
from fastfill.wiring import open_store
try:
    open_store({url!r})
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"pip install 'fastfill[{extra}]'" in done.stdout
