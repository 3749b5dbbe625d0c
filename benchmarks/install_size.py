"""python -m benchmarks.install_size

What `pip install fastfill` and its extras put on a disk, and other tools for the same work from
PyPI beside them: each in a fresh virtual environment, with the versions of constraints.txt, without
what the environment itself brings (pip).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared.paths import ROOT
from benchmarks.shared.sections import write_section

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

EXTRAS = (
    "", "lance", "postgres", "qdrant", "chroma", "redis", "sqlite", "numba", "metrics", "otel",
    "onnx", "report", "sklearn", "scale", "ray", "daft", "langchain", "llamaindex", "haystack",
    "demo", "networks", "sentence-transformers",
)  # fmt: skip
OTHERS = ("vecshift", "isotrieve")
LARGEST = 3  # packages that are named


@dataclass(frozen=True)
class Installed:
    """What an installation has added: bytes of each folder of the site-packages."""

    label: str
    folders: dict[str, int]
    seconds: float

    def row(self) -> str:
        """A row of the table."""
        largest = sorted(self.folders, key=lambda name: -self.folders[name])[:LARGEST]
        named = ", ".join(f"{name} {self.folders[name] / 1e6:.0f}" for name in largest)
        size = sum(self.folders.values()) / 1e6
        return f"| `{self.label}` | {size:,.0f} | {self.seconds:.0f} | {named} |"


def main() -> None:
    """Install each extra by itself and add up what lies in its environment."""
    targets = {f"fastfill[{extra}]".replace("[]", ""): f"{ROOT}[{extra}]" for extra in EXTRAS}
    targets |= {name: name for name in OTHERS}
    with tempfile.TemporaryDirectory() as folder:
        bare = folder_sizes(make_environment(Path(folder) / "bare"))
        rows = []
        for label, target in targets.items():
            rows.append(install(Path(folder) / "one", label, target, bare).row())
            print(rows[-1], file=sys.stderr, flush=True)
    head = ["| installed | MB | seconds | largest, MB |", "| --- | --- | --- | --- |"]
    note = (
        "The torch of `networks` is the build for CPUs. What PyPI gives for Linux brings CUDA's "
        "libraries, some GB more; it was not installed here. Seconds are those of pip, mostly of "
        "its downloads."
    )
    body = "\n".join([*head, *rows, "", note])
    write_section("The size of an installation", "python -m benchmarks.install_size", body)


def make_environment(folder: Path) -> Path:
    """A fresh virtual environment; its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return next(folder.glob("lib/python*/site-packages"))


def install(folder: Path, label: str, target: str, bare: dict[str, int]) -> Installed:
    """Install one thing, see what has come, and throw it away."""
    packages = make_environment(folder)
    began = time.perf_counter()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, target.replace("[]", "")], check=True)
    seconds = time.perf_counter() - began
    sizes = folder_sizes(packages)
    shutil.rmtree(folder)
    added = {name: size for name, size in sizes.items() if name not in bare}
    return Installed(label, added, seconds)


def folder_sizes(packages: Path) -> dict[str, int]:
    """Bytes of every folder and file of the site-packages."""
    return {
        path.name: sum(f.stat().st_size for f in [path, *path.rglob("*")] if f.is_file())
        for path in packages.iterdir()
    }


if __name__ == "__main__":
    main()
