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
    "networks": "torch",
    "report": "matplotlib",
    "sentence-transformers": "sentence-transformers",
    "onnx": "onnx",
    "sklearn": "scikit-learn",
}


def version_lines() -> list[str]:
    """One line for this program, one for each optional package; what an error report needs.

    >>> version_lines()[0].split(",")[0].startswith("fastfill ")
    True
    """
    first = f"fastfill {fastfill.__version__}, Python {platform.python_version()}"
    return [first, *(f"{package} {_installed(package)}" for package in PACKAGES.values())]


def _installed(package: str) -> str:
    """Its version, read without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
