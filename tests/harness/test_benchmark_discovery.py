"""`python -m benchmarks` finds every benchmark and runs those that can run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks.shared import discovery
from benchmarks.shared.discovery import Benchmark, find_benchmarks

FOLDER = Path(discovery.__file__).parents[1]
MODULES = sorted(path for path in FOLDER.glob("*.py") if not path.stem.startswith("__"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_benchmark_is_found_and_says_what_it_needs(path: Path) -> None:
    """A file beside the others is a benchmark with its command on top, or it fails here."""
    assert path.stem in [benchmark.name for benchmark in find_benchmarks()]
    text = path.read_text(encoding="utf-8")
    assert f"python -m benchmarks.{path.stem}" in text.split("\n")[0].replace("python3", "python")
    assert text.rstrip().endswith('if __name__ == "__main__":\n    main()')


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_benchmarks_share_code_through_helpers_alone(path: Path) -> None:
    """No benchmark imports another."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [module for module in imported if module.startswith("benchmarks")]
    assert [module for module in ours if not module.startswith("benchmarks.shared.")] == []


def test_a_benchmark_that_says_nothing_is_refused(tmp_path: Path) -> None:
    """The file is named, and what is missing in it."""
    (tmp_path / "good.py").write_text('NEEDS_GPU = True\nNEEDS_DATA: tuple[str, ...] = ("a",)\n')
    (tmp_path / "_helper.py").write_text("")
    assert find_benchmarks(tmp_path) == [Benchmark("good", True, ("a",))]
    (tmp_path / "silent.py").write_text("NEEDS_GPU = False\n")
    with pytest.raises(ValueError, match=r"silent\.py: declare NEEDS_GPU .* and NEEDS_DATA"):
        find_benchmarks(tmp_path)


def test_what_is_in_the_way_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, no folder named, or no such data in it."""
    monkeypatch.setattr(discovery, "has_gpu", lambda: False)
    assert Benchmark("a", True, ()).obstacle() == "there is no GPU"
    monkeypatch.delenv("FASTFILL_DATA", raising=False)
    assert Benchmark("a", False, ("x",)).obstacle() == "FASTFILL_DATA is not set"
    assert Benchmark("a", False, ()).obstacle() is None
    monkeypatch.setenv("FASTFILL_DATA", str(tmp_path))
    assert Benchmark("a", False, ("x", "y")).obstacle() == f"{tmp_path} has no x and no y"
    (tmp_path / "x").mkdir()
    assert Benchmark("a", False, ("x",)).obstacle() is None


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One benchmark that can run here and fails, one that needs a GPU, and no GPU."""
    package = tmp_path / "benchmarks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    needs = "NEEDS_DATA: tuple[str, ...] = ()\n"
    here = "NEEDS_GPU = False\nfrom pathlib import Path\nPath('ran').touch()\nraise SystemExit(3)"
    (package / "here.py").write_text(needs + here)
    (package / "elsewhere.py").write_text(needs + "NEEDS_GPU = True\n")
    monkeypatch.setattr(bench, "find_benchmarks", lambda: find_benchmarks(package))
    monkeypatch.setattr(discovery, "has_gpu", lambda: False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_runs_nothing(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows what runs here, and why others are left out."""
    assert bench.main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert "elsewhere            left out: there is no GPU" in shown
    assert "here                 runs here" in shown
    assert not (two / "ran").exists()


def test_what_can_run_is_run_and_a_failure_is_told(
    two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is left out is no failure, one that fails is."""
    assert bench.main([]) == 1
    said = capsys.readouterr().err
    assert "elsewhere is left out: there is no GPU." in said
    assert "Failed: here\n" in said
    assert (two / "ran").exists()


def test_one_that_was_named_must_run(two: Path) -> None:
    """With --only, a benchmark that cannot run is a failure; with --skip it is not looked at."""
    assert bench.main(["--only", "elsewhere"]) == 1
    assert bench.main(["--skip", "here"]) == 0
    assert not (two / "ran").exists()
    with pytest.raises(SystemExit):
        bench.main(["--only", "nothing"])
