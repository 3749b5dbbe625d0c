"""Without Numba everything that counts ranks works in NumPy, and gives the same figures.

Processes are started as where Numba, torch and others are not installed, as after
`pip install fastfill[lance]`: see `absent_packages/sitecustomize.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
PATHS = (Path(__file__).parent / "absent_packages", ROOT / "src")
SELECTED = (  # a part of the suite that is quick and counts ranks, or migrates
    "src/fastfill/digits.py",
    "src/fastfill/wiring.py",
    "src/fastfill/align/methods.py",
    "src/fastfill/metrics/scores.py",
    "src/fastfill/align/kernel.py",
    "tests/metrics/test_metrics_ranks.py",
    "tests/align/test_align_kernel.py",
    "tests/cli/test_migrate_commands.py::test_the_whole_life",
    "tests/forecast/test_forecast_agreement_leave_one_out.py",
    "tests/migrate/test_migration_life.py::test_after_the_start_the_new_model_serves",
    "tests/migrate/test_quality.py",
)
SMALLEST = "numba torch scipy sklearn matplotlib"  # what an installation for a store leaves out


def python(*arguments: str, absent: str = SMALLEST) -> subprocess.CompletedProcess[str]:
    """Run Python where some packages cannot be imported."""
    path = os.pathsep.join(map(str, PATHS))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "ABSENT_PACKAGES": absent, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_numba_cannot_be_imported_in_these_processes() -> None:
    """The other tests of this file test what they say."""
    assert "No module named 'numba'" in python("-c", "import numba").stderr


def test_a_part_of_the_suite_passes() -> None:
    """Metrics, forecasts and a whole migration need no Numba."""
    # These tests compare with scikit-learn, which stands on SciPy.
    done = python("-m", "pytest", "-p", "no:cacheprovider", *SELECTED, absent="numba torch")
    assert done.returncode == 0, done.stdout


def test_a_curve_is_the_same(tmp_path: Path) -> None:
    """`fastfill curve --json` gives the same figures with Numba and without."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(200, 6)).astype(np.float32)
    arrays = {"old": old, "new": np.tanh(old) + 1, "labels": np.arange(200) % 4}
    files = {name: str(tmp_path / f"{name}.npy") for name in arrays}
    for name, array in arrays.items():
        np.save(files[name], array)
    saved = str(tmp_path / "map.safetensors")
    made = python("-m", "fastfill", "align", files["old"], files["new"], "-o", saved)
    assert made.returncode == 0, made.stderr
    vectors = ["--old", files["old"], "--new", files["new"], "--labels", files["labels"]]
    line = ["-m", "fastfill", "curve", saved, *vectors, "--json"]
    found, expected = (python(*line, absent=absent) for absent in (SMALLEST, "torch"))
    assert found.returncode == 0, found.stderr
    assert _rounded(json.loads(found.stdout)) == _rounded(json.loads(expected.stdout))


def _rounded(value: object) -> object:
    """Sums may be added in another order."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 9) if isinstance(value, float) else value


def test_data_sets_in_pieces_need_no_numba(tmp_path: Path) -> None:
    """They are aligned and ordered; a curve over them names the extra that it needs."""
    code = (
        "import numpy as np, pyarrow as pa, pyarrow.parquet as pq, sys\n"
        "from fastfill import Alignment, Features, Pairs\n"
        "from fastfill.scale import *\n"
        "old = np.random.default_rng(0).normal(size=(60, 4)).astype('f')\n"
        "alignment = Alignment.fit(Pairs(Features(old), Features(old + 1)), method='ridge')\n"
        "table = pa.table({'id': range(60), 'vector': old.tolist()})\n"
        "pq.write_table(table, sys.argv[1] + '/a.parquet', row_group_size=20)\n"
        "for work, name in ((transform_folder, 'aligned'), (order_folder, 'order')):\n"
        "    engine = open_engine(workers=2)\n"
        "    print(work(alignment, sys.argv[1], sys.argv[2] + name, engine=engine))\n"
        "curves_over_pieces(GalleryColumns(ParquetFolder(sys.argv[1])), old, np.zeros(60))\n"
    )
    script, gallery = tmp_path / "script.py", tmp_path / "gallery"
    script.write_text("if __name__ == '__main__':\n    " + code.replace("\n", "\n    "))
    gallery.mkdir()
    done = python(str(script), str(gallery), f"{tmp_path}/")
    assert done.stdout.count("JobResult(rows=60, pieces=3, done=3)") == 2
    assert "pip install 'fastfill[numba]'" in done.stderr
