"""Every Python block of the README and the docs runs, over small models and galleries.

Blocks with a prompt (`>>>`) are run as doctests. Some guides have tests of their own, with other
data or with packages that are slow to import; the blocks of all other pages are run here.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from docs_world import (
    PAGES,
    ROOT,
    Names,
    follows_a_migration,
    make_files,
    make_lance,
    make_sqlite,
    names_of_the_reader,
    python_blocks,
    run_page,
    start_photos,
)

pytest.importorskip("lancedb", reason="LanceDB is not installed")
pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed")

TESTED_BY = {
    "evaluate.md": "cli/test_docs_evaluate.py",
    "evaluate-document-search.md": "cli/test_docs_evaluate.py",
    "choose-queries.md": "cli/test_docs_queries.py",
    "use-a-gallery-as-a-retriever.md": "stacks/test_retrievers.py",
}
RUN_HERE = [page for page in PAGES if python_blocks(page) and page.name not in TESTED_BY]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader, to be copied."""
    folder = tmp_path_factory.mktemp("world")
    for make in (make_files, make_lance, make_sqlite):
        make(folder)
    return folder


def more_names(page: Path) -> Names:
    """A migration that is under way, and where its figures are sent, for pages that use them."""
    names: Names = {"migration": start_photos()} if follows_a_migration(page) else {}
    if any("provider" in block for block in python_blocks(page)):
        sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="no OpenTelemetry")
        names["provider"] = sdk.MeterProvider()
    return names


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.stem)
def test_every_block_of_a_page_runs(
    page: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From top to bottom, with nothing but what a reader has."""
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    run_page(page, names_of_the_reader() | more_names(page))


@pytest.mark.parametrize("page", TESTED_BY)
def test_other_pages_have_tests_of_their_own(page: str) -> None:
    """What is left out here is named by the test that runs it."""
    assert page in (ROOT / "tests" / TESTED_BY[page]).read_text(encoding="utf-8")
