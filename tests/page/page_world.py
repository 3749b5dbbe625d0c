"""A small LanceDB gallery with a toy upgrade, migrated by the real command in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SRC = Path(__file__).parents[2] / "src"
URL = "lance://./db#photos.vector"
ROWS, OLD = 200, 6
ENCODER = """
import zlib
import numpy as np

MIX = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)


def old(text):
    return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(6).astype(np.float32)


def encode(texts):
    if "text 7" in texts:
        raise ValueError("cannot read <b>7</b>")
    return np.tanh(np.stack([old(str(t)) for t in texts]) @ MIX)
"""


def make_gallery(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of texts with old vectors and albums, and a module with the new model beside it."""
    lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (folder / "page_encoder.py").write_text(ENCODER)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("page_encoder", None)
    import page_encoder

    texts = [f"text {n}" for n in range(ROWS)]
    vectors = np.stack([page_encoder.old(text) for text in texts])
    table = pa.table(
        {
            "id": list(range(ROWS)),
            "text": texts,
            "album": [n % 4 for n in range(ROWS)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), OLD),
        }
    )
    lancedb.connect("db").create_table("photos", table)
    return URL


def start(url: str, encoder: str = "page_encoder:encode") -> str:
    """`fastfill start` in this process; returns what it said."""
    from click.testing import CliRunner

    from fastfill.cli.main import commands, load_commands

    load_commands()
    options = ["--input", "text", "--encoder", encoder, "--distance", "l2"]
    options += ["--pairs", "60", "--method", "ridge", "--metrics-port", "0"]
    result = CliRunner().invoke(commands, ["start", url, *options])
    assert result.exit_code == 0, result.output
    return result.output


def run_command(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """The command in a process of its own, in this folder."""
    command = "from fastfill.cli import main; main()"
    path = os.pathsep.join([str(SRC), str(Path.cwd())])
    return subprocess.Popen(
        [sys.executable, "-c", command, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
