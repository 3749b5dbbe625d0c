"""The same results from every engine, though workers and drivers are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from dying_work import DyingWork, whose_process
from scale_world import gallery_table

import fastfill
from fastfill.align import Alignment
from fastfill.errors import EngineError, InputError, MissingExtraError
from fastfill.features import Matrix
from fastfill.scale import LanceTable, Piece, open_engine, order_folder
from fastfill.scale.engines import local
from fastfill.scale.engines.local import LocalEngine

PIECES = [Piece(f"piece {i}", str(i), i, 10 * i, 10) for i in range(6)]


@pytest.mark.parametrize("engine", ["local", "ray", "daft"])
def test_results_are_those_of_one_process(
    engine: str, folder: Path, lance_table: LanceTable, tmp_path: Path, alignment: Alignment,
    vectors: Matrix,
) -> None:  # fmt: skip
    """Columns of a Lance table and the order of a folder, bit by bit; errors arrive as they are."""
    lance = pytest.importorskip("lance")
    if engine != "local":
        pytest.importorskip(engine)
    alignment.save(tmp_path / "a.safetensors")
    (tmp_path / "bad").mkdir()
    bad = gallery_table(np.full((2, 6), np.nan, dtype=np.float32))
    pq.write_table(bad, tmp_path / "bad/bad.parquet", row_group_size=1)
    runner = ["--engine", engine, "--workers", "2"]
    said = run_commands(
        tmp_path,
        ["transform", "a.safetensors", lance_table.name, *runner],
        ["order", "a.safetensors", str(folder), "-o", "many", "--policy", "sigma", *runner],
        ["transform", "a.safetensors", "bad", "-o", "out", *runner],
    )
    assert said[:2] == [None, None]
    assert "bad.parquet, row group" in str(said[2])
    assert "NaN or infinite numbers in rows 0" in str(said[2])
    aligned = lance.dataset(lance_table.uri).to_table()["vector_aligned"].to_numpy()
    pieces = [alignment(part).vectors for part in np.split(vectors, 6)]
    assert np.array_equal(np.stack(aligned), np.concatenate(pieces))
    order_folder(alignment, str(folder), str(tmp_path / "one"), policy="sigma")
    assert pq.read_table(tmp_path / "many").equals(pq.read_table(tmp_path / "one"))


def run_commands(cwd: Path, *words: list[str]) -> list[str | None]:
    """What each command says where it fails, else None."""
    script = Path(__file__).with_name("run_commands.py")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(words)], cwd=cwd, env=environment(),
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    said: list[str | None] = json.loads(done.stdout.splitlines()[-1])
    return said


def environment() -> dict[str, str]:
    """This package is found by processes that are started."""
    return {**os.environ, "PYTHONPATH": str(Path(fastfill.__file__).parents[1])}


def test_killed_workers_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their pieces are done again; one that always kills its worker is named."""
    monkeypatch.setattr(local, "TRIES", 2)
    once = DyingWork(str(tmp_path), deaths=1)
    assert list(LocalEngine(2).map(once, PIECES)) == list(range(0, 60, 10))
    always = DyingWork(str(tmp_path), deaths=50)
    with pytest.raises(EngineError, match=r"piece [0-2]: the process .* was killed"):
        list(LocalEngine(2).map(always, PIECES))


def test_workers_that_hear_no_end_are_not_waited_for() -> None:
    """Where one dies that holds the lock of the others, these learn nothing from the pool."""
    stopped = set[int]()

    def work_and_stop() -> None:
        for pid in LocalEngine(2).map(whose_process, PIECES):
            stopped.add(pid)
            if len(stopped) < 2:
                continue
            for each in stopped:
                os.kill(each, signal.SIGSTOP)
            break

    try:
        driver = threading.Thread(target=work_and_stop, daemon=True)
        driver.start()
        driver.join(60)
        assert not driver.is_alive()
        assert len(stopped) == 2
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def test_a_worker_that_dies_while_it_starts_is_replaced(tmp_path: Path) -> None:
    """Also one that has read nothing yet of a long piece of work: its driver does not wait."""
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"  # the first worker dies, and no other helper of multiprocessing
        f'case "$*" in *spawn_main*) mkdir "{tmp_path}/died" 2> /dev/null && exit 1 ;; esac\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    code = (
        "import multiprocessing, test_scale_engines as tests\n"
        "from dying_work import DyingWork\n"
        "from fastfill.scale.engines.local import LocalEngine\n"
        "if __name__ == '__main__':\n"
        f"    multiprocessing.set_executable({str(python)!r})\n"
        "    work = DyingWork('x' * 1_000_000, deaths=0)\n"
        "    print(list(LocalEngine(2).map(work, tests.PIECES)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment(), timeout=120,
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(list(range(0, 60, 10)))
    assert (tmp_path / "died").exists()


def test_the_work_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers get it from their driver: what could be unpickled lies nowhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "marks").mkdir()
    work = DyingWork(str(tmp_path / "marks"), deaths=1)
    results = LocalEngine(2).map(work, PIECES)
    assert next(results) == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]
    assert not files
    assert list(results) == list(range(10, 60, 10))


def test_a_killed_driver_is_resumed(folder: Path, tmp_path: Path, alignment: Alignment) -> None:
    """What it had finished is kept, and the command run again leaves every row there once."""
    alignment.save(tmp_path / "a.safetensors")
    words = ["transform", "a.safetensors", str(folder), "-o", "out", "--workers", "1"]
    command = [sys.executable, "-m", "fastfill", *words]
    driver = subprocess.Popen(command, cwd=tmp_path, env=environment())
    while driver.poll() is None and len(list(tmp_path.glob("out/*.parquet"))) < 2:
        time.sleep(0.001)
    driver.kill()
    driver.wait()
    subprocess.run(command, cwd=tmp_path, env=environment(), check=True)
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == list(range(300))


def test_wrong_engines_are_refused() -> None:
    """An unknown name, and an address where there is no cluster."""
    with pytest.raises(InputError, match="Unknown engine 'rai': did you mean 'ray'"):
        open_engine("rai")
    with pytest.raises(InputError, match="--address here is that of a Ray cluster"):
        open_engine("local", address="here")


@pytest.mark.parametrize(
    ("module", "extra"), [("ray", "ray"), ("daft", "daft"), ("lance", "scale")]
)
def test_a_missing_package_is_named_with_its_extra(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is read."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"fastfill\[{extra}\]"):
        LanceTable("db", "photos", "vector").open() if extra == "scale" else open_engine(module)
