"""Commands on data sets at rest: embed, learn and measure, by every engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from scale_encoder import encode
from scale_world import gallery_table
from test_scale_engines import run_commands

from fastfill.align import Alignment
from fastfill.cli.main import commands, load_commands
from fastfill.features import Matrix
from fastfill.scale import LanceTable

EMBED = ["--encoder", "scale_encoder:encode", "--input", "text"]


@pytest.fixture
def place(tmp_path: Path, vectors: Matrix, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with labels, queries, and the encoder's module."""
    (tmp_path / "gallery").mkdir()
    table = gallery_table(vectors)
    labelled = table.append_column("label", pa.array(np.arange(len(vectors)) % 5))
    pq.write_table(labelled, tmp_path / "gallery/a.parquet", row_group_size=50)
    np.save(tmp_path / "queries.npy", np.eye(3, dtype=np.float32))
    np.save(tmp_path / "labels.npy", np.array([1, 2, 3]))
    shutil.copy(Path(__file__).with_name("scale_encoder.py"), tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def chain(engine: str, out: str) -> list[list[str]]:
    """Embed, learn, align, order, and embed again what the order puts first."""
    runner, map_file = ["--engine", engine, "--workers", "2"], f"{out}.safetensors"
    few = ["--key", "id"]
    return [
        ["backfill", "gallery", "-o", f"{out}-new", *EMBED, *runner],
        ["align", f"{out}-new", "-o", map_file, "--method", "ridge", *runner],
        ["transform", map_file, f"{out}-new", "-o", f"{out}-aligned", *runner],
        ["order", map_file, f"{out}-aligned", "-o", f"{out}-order", "--policy", "sigma", *runner],
        ["curve", f"{out}-order", "--query-new", "queries.npy", "--query-labels", "labels.npy",
         "--points", "5", "-o", f"{out}-report", *runner],
        ["backfill", f"{out}-order", "-o", f"{out}-first", "--budget", "10%", *few, *EMBED,
         *runner],
        ["backfill", f"{out}-order", "-o", f"{out}-rest", "--from-rank", "30", *few, *EMBED,
         *runner],
    ]  # fmt: skip


def test_every_engine_gives_what_processes_give(place: Path) -> None:
    """New vectors, the map, ranks and curves, bit by bit."""
    engines = [name for name in ("ray", "daft") if pytest.importorskip(name)]
    chains = [chain(engine, engine) for engine in ("local", *engines)]
    said = run_commands(place, *(words for one in chains for words in one))
    assert said == [None] * len(said)
    local = Alignment.load(place / "local.safetensors")
    for engine in engines:
        for part in ("new", "aligned", "order", "first", "rest"):
            mine, theirs = (pq.read_table(place / f"{name}-{part}") for name in (engine, "local"))
            assert mine.equals(theirs), (engine, part)
        assert Alignment.load(place / f"{engine}.safetensors").fingerprint == local.fingerprint
        assert curves(place, engine) == curves(place, "local")
    check_shares(place)


def curves(place: Path, engine: str) -> object:
    """The numbers of a report."""
    return json.loads((place / f"{engine}-report/curves.json").read_text())["curves"]


def check_shares(place: Path) -> None:
    """The first tenth by rank, then the rest: every row is embedded in one of the two."""
    ranked = pq.read_table(place / "local-order").sort_by("id")
    first, rest = (
        pq.read_table(place / f"local-{part}").sort_by("id")["vector_new"]
        for part in ("first", "rest")
    )
    early = ranked["vector_rank"].to_numpy() < 30
    assert np.array_equal(first.is_valid().to_numpy(), early)
    assert np.array_equal(rest.is_valid().to_numpy(), ~early)
    expected = encode(ranked["text"].to_pylist())
    both = np.stack((first if early[0] else rest).drop_null().to_numpy())
    assert np.array_equal(both, expected[early if early[0] else ~early])


def run(*words: str) -> Result:
    """A command in this process."""
    load_commands()
    return CliRunner().invoke(commands, list(words))


def test_a_lance_table_is_embedded_where_it_is(lance_table: LanceTable, place: Path) -> None:
    """The table gets the new column, in one version of it."""
    lance = pytest.importorskip("lance")
    assert run("backfill", lance_table.name, "--engine", "local", *EMBED).exit_code == 0
    table = lance.dataset(lance_table.uri).to_table()
    assert np.array_equal(
        np.stack(table["vector_new"].to_numpy()), encode(table["text"].to_pylist())
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["backfill", "gallery", "--engine", "local", "-o", "out", "--until", "0.9"],
         "--until belongs to a live migration"),
        (["backfill", "gallery", "--encoder", "scale_encoder:encode"],
         "--encoder is for a data set at rest: give --engine too"),
        (["backfill", "gallery", "--engine", "local", "-o", "out"], "Give --encoder"),
        (["backfill", "gallery", "--engine", "local", *EMBED], "-o OUT"),
        (["backfill", "postgresql://host/db#items.vector", "--engine", "local", "-o", "out",
          *EMBED], "is a live store, and engines work on data at rest"),
        (["backfill", "gallery", "--engine", "local", "-o", "out", "--budget", "10", *EMBED],
         "has no column vector_rank"),
        (["backfill", "gallery", "--engine", "local", "-o", "out", "--encoder",
          "scale_encoder:broken", "--input", "text"],
         "failed on 50 items from row 0 of a.parquet, row group 0 on (no numbers today)"),
        (["curve", "gallery", "--engine", "local"], "--engine needs a gallery"),
        (["curve", "gallery", "--engine", "local", "--old", "old.npy"],
         "--old is for galleries in files"),
        (["curve", "map.safetensors", "--label", "album"], "--label is for a gallery in pieces"),
        (["align", "gallery", "-o", "a.safetensors", "--engine", "local", "--epochs", "3"],
         "--epochs is for single files"),
        (["align", "gallery", "-o", "a.safetensors", "--key", "id"],
         "--key is for pairs in pieces"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(words: list[str], said: str, place: Path) -> None:
    """In one sentence, and nothing is written."""
    before = set(place.iterdir())
    result = run(*words)
    shown = " ".join(f"{result.output} {result.exception}".replace("│", " ").split())
    assert said in shown, shown
    assert result.exit_code != 0
    left = set(place.iterdir()) - before
    assert not [
        path for path in left if path.suffix == ".safetensors" or list(path.glob("*.parq*"))
    ]
