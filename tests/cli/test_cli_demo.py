"""`fastfill demo`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lancedb")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


def test_the_demo_tells_the_whole_story(tmp_path: Path) -> None:
    """The demo evaluates, migrates a real table through a kill, and leaves a report behind; at no
    step is the search worse than before."""
    ran = subprocess.run(
        [sys.executable, "-m", "fastfill", "demo", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    areas = {(c["name"], c["metric"]): c["area"] for c in told["curves"]}
    assert areas["FastFill, sigma", "map"] > areas["FCT, random", "map"]
    live = told["live"]
    assert [point["fraction"] for point in live] == sorted(point["fraction"] for point in live)
    assert live[-1]["fraction"] == 1
    assert len(live) >= 10
    assert live[0]["map"] < live[-1]["map"]
    assert {point["serving"] for point in live} <= {"aligned", "both"}
    assert all(point["map"] > told["before"]["map"] for point in live)
    assert "serve with: " in ran.stderr
    assert "nDCG@10 on 100 queries" in ran.stderr
    for name in ("report.html", "curve.svg", "live.svg"):
        assert (tmp_path / "demo-output" / name).stat().st_size > 1000
