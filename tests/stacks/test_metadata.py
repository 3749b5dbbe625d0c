"""What PyPI and pip are told: extras that errors name, links that lead somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fastfill.cli.versions import PACKAGES

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r'MissingExtraError\(\s*"[^"]+",\s*"([^"]+)"')


@pytest.fixture
def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(read["project"])


def test_every_extra_that_an_error_names_exists(project: dict[str, Any]) -> None:
    """Who follows the sentence of an error can install what it names."""
    files = (ROOT / "src" / "fastfill").rglob("*.py")
    named = {extra for path in files for extra in NAMED.findall(path.read_text(encoding="utf-8"))}
    assert {"lance", "onnx", "sklearn", "langchain"} <= named
    assert named <= set(project["optional-dependencies"])


def test_versions_are_told_of_packages_that_extras_bring(project: dict[str, Any]) -> None:
    """What `fastfill --version` names is what the extra of that name brings."""
    extras = project["optional-dependencies"]
    for extra, package in PACKAGES.items():
        assert any(re.match(rf"{package}\b", needed) for needed in extras[extra]), extra


def test_the_package_of_every_store_is_named(project: dict[str, Any]) -> None:
    """A store that there is an adapter and an extra for is in `fastfill --version`."""
    adapters = {path.parent.name for path in ROOT.glob("src/fastfill/adapters/*/store.py")}
    stores = adapters & set(project["optional-dependencies"])
    assert {"lance", "postgres", "qdrant", "chroma", "redis", "sqlite"} <= stores
    assert stores == adapters
    assert stores <= set(PACKAGES)


def test_links_lead_to_public_hosts(project: dict[str, Any]) -> None:
    """Every link is an https address of a public host."""
    for url in project["urls"].values():
        assert re.match(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+/", url), url
