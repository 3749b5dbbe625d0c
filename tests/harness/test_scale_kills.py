"""Commands on data sets in object storage, killed while others write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.shared.scale_kills import (
    FolderWorld,
    LanceWorld,
    World,
    kill_rounds,
    object_storage,
)


@pytest.mark.parametrize("world", [LanceWorld, FolderWorld])
def test_no_row_is_lost_or_there_twice(world: Callable[[str], World], tmp_path: Path) -> None:
    """Drivers and workers are killed at random moments, and the commands run again."""
    pytest.importorskip("moto.server")
    pytest.importorskip("lance")
    with object_storage() as bucket:
        tally = kill_rounds(world(bucket), tmp_path, kills=2, rows=2_000)
    assert tally.drivers + tally.workers >= 2
    assert tally.rows >= 2_000
