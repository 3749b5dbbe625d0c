"""Many workers on one server: killed, stopped, and with a wrong clock."""

from __future__ import annotations

from benchmarks.fleet import run


def test_every_row_is_embedded_once(postgres: str) -> None:
    """Rows are encoded twice only where a worker that was killed or stopped held them."""
    found = run(postgres, 2_000, lease=3.0, batch=25, slow=0.015, seed=3, within=0.3)
    assert found.right == found.rows
    assert found.unexplained == 0
    assert found.in_vain <= found.written / 4
