"""One small run of the whole laboratory on digits, shared by the tests that look at its results."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_runs import quick, run_all


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of every experiment for one seed, and of `main` for a second one."""
    work = tmp_path_factory.mktemp("lab")
    assert run_all(quick(work), "all") == []
    assert run_all(quick(work, seeds=2), "main") == []
    return work / "results"
