"""Ray's actors on a cluster whose machines come and go, and with cards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from test_scale_engines import environment

from fastfill.errors import EngineError
from fastfill.scale.engines.ray import RayEngine


class ClusterRun(NamedTuple):
    """What `ray_cluster.py` found, and where."""

    found: dict[str, Any]
    place: Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ClusterRun:
    """In a process of its own, as Ray leaves pipes open."""
    pytest.importorskip("ray")
    place = tmp_path_factory.mktemp("cluster")
    subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ray_cluster.py")), str(place)],
        env=environment(), check=True, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return ClusterRun(json.loads((place / "found.json").read_text()), place)


def test_a_cluster_without_a_machine_is_waited_for(run: ClusterRun) -> None:
    """It is said, and the work begins when it has grown."""
    (told,) = run.found["told"]
    assert told.startswith("Ray has 0 cores, and no room for an actor, of which 2 are wanted")


def test_a_machine_that_vanishes_takes_no_row_with_it(run: ClusterRun) -> None:
    """What its actor had is done by the other one: all rows are there once."""
    table = pq.read_table(run.place / "out")
    assert table["id"].to_pylist() == list(range(200))
    assert [row[0] for row in table["vector_new"].to_pylist()] == list(range(200))


@pytest.mark.parametrize(("actors", "share"), [("two", 1.0), ("four", 0.5)])
def test_actors_share_the_cards(run: ClusterRun, actors: str, share: float) -> None:
    """Of two cards each of two actors has one, each of four half of one, all at the same time."""
    pieces = run.found[actors]
    assert {piece[0] for piece in pieces} == {share}
    assert {tuple(piece[1]) for piece in pieces} == {("0",), ("1",)}


def test_more_actors_than_cores_of_this_machine_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not grow, so waiting would be for ever."""
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    with pytest.raises(EngineError, match="Ray has 2 cores, and 3 actors need one each: use fewer"):
        list(RayEngine(actors=3).map(lambda piece: piece, []))
