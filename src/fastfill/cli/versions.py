"""`fastfill --version`: this program, Python, and the packages that it would work with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import fastfill

PACKAGES = {  # extra: the package that it brings, first those of the stores
    "lance": "lancedb",
    "postgres": "psycopg",
    "qdrant": "qdrant-client",
    "chroma": "chromadb",
    "redis": "redis",
    "sqlite": "sqlite-vec",
    "scale": "pylance",
    "networks": "torch",
    "report": "matplotlib",
    "sentence-transformers": "sentence-transformers",
    "onnx": "onnx",
    "sklearn": "scikit-learn",
}
WHERE_INSTALLED = ("pysqlite3-binary",)  # in the place of Python's own SQLite; no other has it


def version_lines() -> list[str]:
    """One line for this program, one for each optional package; what an error report needs.

    >>> version_lines()[0].split(",")[0].startswith("fastfill ")
    True
    """
    first = f"fastfill {fastfill.__version__}, Python {platform.python_version()}"
    lines = [f"{name} {_installed(name) or '(not installed)'}" for name in PACKAGES.values()]
    more = [f"{name} {_installed(name)}" for name in WHERE_INSTALLED if _installed(name)]
    return [first, *lines, *more]


def _installed(package: str) -> str | None:
    """Its version, read without importing it; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
