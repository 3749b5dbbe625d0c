"""A short run of the benchmark of encoder faults on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastfill.gallery import Gallery
from fastfill.wiring import connect

pytest.importorskip("lancedb", reason="LanceDB is not installed")
pytest.importorskip("psycopg", reason="psycopg is not installed")

ROWS, DIM = 1_200, 32


@pytest.fixture(params=["lance", "postgres"])
def gallery(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gallery]:
    """A gallery of texts, two of which can never be embedded; in few dimensions, which are soon
    learned from."""
    from benchmarks import faults
    from benchmarks.shared import live_tables
    from benchmarks.shared.live_tables import fill_lance, fill_postgres

    monkeypatch.setattr(live_tables, "DIM", DIM)
    monkeypatch.setattr(faults, "WAVES", faults.WAVES[:DIM])
    if request.param == "lance":
        url = fill_lance(str(tmp_path), ROWS, False)
    else:
        url = fill_postgres(request.getfixturevalue("postgres"), ROWS, False)
    opened = connect(url, input="text", distance="l2")
    yield opened
    opened.store.close()


def test_a_backfill_survives_every_fault_of_its_encoder(gallery: Gallery) -> None:
    """Nothing wrong is written, nothing is left out, and what cannot be embedded is listed."""
    from benchmarks.faults import FAULTS, migrate

    found = migrate(gallery, pairs=100, share=0.2)
    assert set(found.faults) == set(FAULTS)
    assert found.wrong == 0
    assert found.poison <= found.listed
    assert found.new + len(found.listed) == ROWS
