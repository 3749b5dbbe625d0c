"""A small table of LanceDB with toy models, for tests of the verbs."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

URL = "lance://./db#photos.vector"
ROWS = 200
REFITS = 0.25  # the step of refits, unless a test says: at 5 % a run would be refits of ten rows
OPTIONS = ("--input", "text", "--encoder", "lance_photos:encode", "--distance", "l2")
START = ("start", URL, *OPTIONS, "--pairs", "60", "--method", "ridge")
MIX = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)
Fastfill = Callable[..., Any]


def old(text: str) -> Any:
    """What the old model made of a text."""
    return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(6).astype(np.float32)


def encode(texts: Any) -> Any:
    """The new model."""
    return np.tanh(np.stack([old(str(text)) for text in texts]) @ MIX)


def third(texts: Any) -> Any:
    """The model after that."""
    return np.sin(encode(texts)[:, :5])


def photos(ids: list[Any], first: int = 0) -> Any:
    """Rows of a table under these ids, with a text of their own each."""
    import pyarrow as pa

    texts = [f"text {first + n}" for n in range(len(ids))]
    flat = pa.array(np.concatenate([old(text) for text in texts]))
    vectors = pa.FixedSizeListArray.from_arrays(flat, 6)
    albums = [n % 20 for n in range(len(ids))]
    return pa.table({"id": ids, "album": albums, "text": texts, "vector": vectors})


def create(ids: list[Any] | None = None) -> Any:
    """The table, in this folder."""
    import lancedb

    rows = photos(list(range(ROWS)) if ids is None else ids)
    return lancedb.connect("db").create_table("photos", rows)


def table() -> Any:
    """As it is now."""
    import lancedb

    return lancedb.connect("db").open_table("photos")


def commands_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Fastfill:
    """Run a command in a folder; returns click's result."""
    from click.testing import CliRunner

    from fastfill.cli.main import commands, load_commands

    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "lance_photos", sys.modules[__name__])
    monkeypatch.setattr("fastfill.migrate.REFIT_EVERY", REFITS)
    load_commands()
    return lambda *arguments: CliRunner().invoke(commands, arguments)
