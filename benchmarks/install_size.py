"""python -m benchmarks.install_size

What `pip install fastfill` and its extras put on a disk, and other tools for the same work from
PyPI beside them: each in a fresh virtual environment, with the versions of constraints.txt, without
what the environment itself brings (pip). And how long `import fastfill` and `fastfill status` take
there, on a small gallery in the middle of a migration, in a new process each time.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared.live_tables import fill_lance, fill_sqlite, free, toy_alignment
from benchmarks.shared.paths import ROOT
from benchmarks.shared.sections import write_section
from fastfill.migrate import Migration
from fastfill.wiring import connect

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

EXTRAS = (
    "", "lance", "postgres", "qdrant", "chroma", "redis", "sqlite", "numba", "metrics", "otel",
    "onnx", "report", "sklearn", "scale", "ray", "daft", "langchain", "llamaindex", "haystack",
    "demo", "networks", "sentence-transformers", "lab", "all",
)  # fmt: skip
OTHERS = ("vecshift", "isotrieve")
LARGEST = 3  # packages that are named
STORES = {"lance": ("lance", "all"), "sqlite": ("sqlite", "all")}  # galleries, and where to look
ROWS = 1_000  # of each
TIMES = 5  # that a process is started, after one that is not counted


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
        urls = make_galleries(Path(folder))
        rows, starts = [], []
        for label, target in targets.items():
            environment = Path(folder) / "one"
            rows.append(install(environment, label, target, bare).row())
            print(rows[-1], file=sys.stderr, flush=True)
            starts += start_rows(environment, label, urls)
            shutil.rmtree(environment)
    head = ["| installed | MB | seconds | largest, MB |", "| --- | --- | --- | --- |"]
    first = ["", "| installed | a process that runs | seconds |", "| --- | --- | ---: |"]
    note = (
        "The torch of `networks` is the build for CPUs. What PyPI gives for Linux brings CUDA's "
        "libraries, some GB more; it was not installed here. Seconds are those of pip, mostly of "
        "its downloads. Those of a process are the median of some, each by itself; `status` is of "
        f"a migration of {ROWS:,} rows."
    )
    body = "\n".join([*head, *rows, *first, *starts, "", note])
    write_section("The size of an installation", "python -m benchmarks.install_size", body)


def make_environment(folder: Path) -> Path:
    """A fresh virtual environment; its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return next(folder.glob("lib/python*/site-packages"))


def make_galleries(folder: Path) -> dict[str, str]:
    """URLs of galleries in the middle of a migration, by the extra that opens them."""
    urls = {}
    for extra, fill in {"lance": fill_lance, "sqlite": fill_sqlite}.items():
        place = folder / extra
        place.mkdir()
        urls[extra] = fill(str(place), ROWS, False)
        migration = Migration(connect(urls[extra], input="text", distance="l2"), free)
        migration.start(alignment=toy_alignment(), index=False)
        for _ in migration.backfill(throttle=False, refit=None, rows=ROWS // 10):
            pass
    return urls


def start_rows(environment: Path, label: str, urls: dict[str, str]) -> list[str]:
    """Rows of the second table: of the library alone, of the extras of stores, of everything."""
    python = str(environment / "bin" / "python")
    runs = {"`import fastfill`": [python, "-c", "import fastfill"]}
    for extra, url in urls.items():
        if label in {f"fastfill[{name}]" for name in STORES[extra]}:
            runs[f"`fastfill status {extra}://…`"] = [python, "-m", "fastfill", "status", url]
    if label != "fastfill" and len(runs) == 1:
        return []
    return [f"| `{label}` | {what} | {seconds(words):.2f} |" for what, words in runs.items()]


def seconds(words: list[str]) -> float:
    """Of a process, the median of several; what it says is thrown away."""
    took, elsewhere = [], {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for _ in range(1 + TIMES):
        began = time.perf_counter()
        subprocess.run(
            words, check=True, capture_output=True, cwd=tempfile.gettempdir(), env=elsewhere
        )
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def install(folder: Path, label: str, target: str, bare: dict[str, int]) -> Installed:
    """Install one thing, and see what has come."""
    packages = make_environment(folder)
    began = time.perf_counter()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, target.replace("[]", "")], check=True)
    seconds = time.perf_counter() - began
    sizes = folder_sizes(packages)
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
