"""python -m benchmarks.install_size

What `pip install fastfill` and its extras put on a disk: each in a fresh virtual environment, with
the versions of constraints.txt, without what the environment itself brings (pip).
"""

from __future__ import annotations

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

EXTRAS = ("", "lance", "postgres", "qdrant", "demo", "networks")
LARGEST = 3  # packages that are named


@dataclass(frozen=True)
class Installed:
    """What an installation has added: bytes of each folder of the site-packages."""

    extra: str
    folders: dict[str, int]
    seconds: float

    def row(self) -> str:
        """A row of the table."""
        largest = sorted(self.folders, key=lambda name: -self.folders[name])[:LARGEST]
        named = ", ".join(f"{name} {self.folders[name] / 1e6:.0f}" for name in largest)
        label = f"`fastfill[{self.extra}]`" if self.extra else "`fastfill`"
        size = sum(self.folders.values()) / 1e6
        return f"| {label} | {size:,.0f} | {self.seconds:.0f} | {named} |"


def main() -> None:
    """Install each extra by itself and add up what lies in its environment."""
    with tempfile.TemporaryDirectory() as folder:
        bare = folder_sizes(make_environment(Path(folder) / "bare"))
        rows = [install(Path(folder) / (extra or "none"), extra, bare).row() for extra in EXTRAS]
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


def install(folder: Path, extra: str, bare: dict[str, int]) -> Installed:
    """Install the project with one extra, and see what has come."""
    packages = make_environment(folder)
    began = time.perf_counter()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), target], check=True)
    seconds = time.perf_counter() - began
    sizes = folder_sizes(packages)
    added = {name: size for name, size in sizes.items() if name not in bare}
    return Installed(extra, added, seconds)


def folder_sizes(packages: Path) -> dict[str, int]:
    """Bytes of every folder and file of the site-packages."""
    return {
        path.name: sum(f.stat().st_size for f in [path, *path.rglob("*")] if f.is_file())
        for path in packages.iterdir()
    }


if __name__ == "__main__":
    main()
