"""A short run of the crash harness, and the proof that it can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


TRIES = 4  # of a worker that writes blindly, until it is caught


def run_harness(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `benchmarks.crash` in a process of its own."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.crash",
            "--quiet",
            "--no-write",
            *("--items", "60", "--patience", "60"),
            *options,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("store", ["lance", "postgres", "postgres-side", "qdrant"])
def test_nothing_is_lost_when_workers_are_killed(store: str) -> None:
    """Workers killed under a storm of writes, and the server too, lose and spoil nothing."""
    pytest.importorskip("lancedb", reason="LanceDB is not installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    pytest.importorskip("qdrant_edge", reason="qdrant-edge-py is not installed")
    short = ("--kills", "3", "--each", "0", "--storm-runs", "2")
    # On a busy machine a storm without rest rewrites the few rows faster than they are embedded.
    result = run_harness("--store", store, *short, "--pause", "0.03")
    assert result.returncode == 0, result.stderr[-2000:]
    assert "none failed" in result.stdout


def test_nothing_is_lost_when_workers_are_killed_while_re_aligning() -> None:
    """A worker killed while it keeps a new map or aligns rows by it leaves rows that all serve."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    result = run_harness(
        *("--store", "postgres", "--aim", "re-aligning", "--kills", "2", "--each", "1"),
        *("--storm-runs", "2", "--no-stalls"),
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "none failed" in result.stdout


def test_the_harness_fails_without_compare_and_set() -> None:
    """A worker that wakes up late and writes blindly is noticed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    options = ("--store", "postgres", "--kills", "1", "--each", "0", "--only-stall")
    good = run_harness(*options)
    assert good.returncode == 0, good.stderr[-2000:]
    # One stall may end before anybody else has written the row.
    blind = [run_harness(*options, FASTFILL_HARNESS_NO_CAS="1")]
    while blind[-1].returncode == 0 and len(blind) < TRIES:
        blind.append(run_harness(*options, FASTFILL_HARNESS_NO_CAS="1"))
    assert blind[-1].returncode != 0
    assert "AssertionError" in blind[-1].stderr
