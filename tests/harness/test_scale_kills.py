"""Commands on data sets in object storage, killed while others write."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.shared.scale_kills import finish_killed
from benchmarks.shared.storage_server import storage_server
from benchmarks.shared.storage_worlds import FolderStorage, LanceStorage, StorageWorld


@pytest.mark.parametrize("kind", [LanceStorage, FolderStorage])
def test_no_row_is_lost_or_there_twice(kind: type[StorageWorld], tmp_path: Path) -> None:
    """Drivers and workers are killed at random moments, and the commands run again."""
    pytest.importorskip("moto.server")
    pytest.importorskip("lance")
    with storage_server() as server:
        world = kind(server.bucket, piece=400, appended=400)
        world.fill(2_000)
        killer = finish_killed(world, tmp_path, engine="local", lasts=0.5, kills=2)
        checked = world.check(2_000)
    assert killer.drivers + killer.workers >= 2
    assert checked.aligned >= 2_000
