"""Folders and tables in object storage: a server of S3's protocol on the loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scale_world import gallery_table
from test_scale_engines import environment

import fastfill
from fastfill.align import Alignment
from fastfill.errors import FileError
from fastfill.features import Matrix
from fastfill.migrate import Migration
from fastfill.scale import Folder, LanceTable, order_folder, transform_folder, transform_table


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An empty bucket, whose server and credentials are in the environment."""
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("AWS_ALLOW_HTTP", "true")
        patch.setenv("AWS_ACCESS_KEY_ID", "someone")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        client = boto3.client("s3", endpoint_url=address)
        client.create_bucket(Bucket="gallery")
        client.close()
        yield "s3://gallery"
    server.stop()


def test_a_folder_is_read_and_written_in_a_bucket(
    bucket: str, alignment: Alignment, vectors: Matrix
) -> None:
    """Transform and order give what they give on this machine; finished pieces are found again."""
    source, target = Folder(bucket).child("in"), Folder(bucket).child("out")
    for name, rows in (("a", slice(0, 120)), ("b", slice(120, 300))):
        sink = pa.BufferOutputStream()
        pq.write_table(gallery_table(vectors[rows], rows.start), sink, row_group_size=100)
        source.write(f"{name}.parquet", sink.getvalue())
    result = transform_folder(alignment, f"{bucket}/in", f"{bucket}/out", key="id")
    assert (result.rows, result.done) == (300, 4)
    assert transform_folder(alignment, f"{bucket}/in", f"{bucket}/out", key="id").done == 0
    files = json.loads(target.read("_fastfill.json"))["files"]
    parts = [pq.read_table(pa.BufferReader(target.read(file))) for file in files]
    aligned = np.stack(pa.concat_tables(parts)["vector_aligned"].to_numpy())
    assert np.allclose(aligned, alignment(vectors).vectors, atol=1e-6)
    order_folder(alignment, f"{bucket}/in", f"{bucket}/order", key="id", policy="sigma")
    assert len(Folder(bucket).child("order").files()) == 5


def test_a_lance_table_lives_in_a_bucket(
    bucket: str, alignment: Alignment, vectors: Matrix
) -> None:
    """The URL of its column works for `transform` and for a migration alike."""
    lance = pytest.importorskip("lance")
    uri, url = f"{bucket}/db/photos.lance", f"lance://{bucket}/db#photos.vector"
    lance.write_dataset(gallery_table(vectors), uri, max_rows_per_file=150)
    transform_table(alignment, LanceTable.from_url(url))
    aligned = np.stack(lance.dataset(uri).to_table()["vector_aligned"].to_numpy())
    assert np.allclose(aligned, alignment(vectors).vectors, atol=1e-6)
    assert fastfill.connect(url, id="id", input="text").store.describe().rows == 300


def test_another_address_in_the_environment_is_another_place(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened under other settings is not used for the same URL."""
    folder = Folder(bucket)
    before = folder.system
    assert Folder(bucket).system is before
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert not folder.system.equals(before)
    monkeypatch.undo()
    assert folder.system is before


ENCODER = """
import os, signal
import numpy as np

calls = 0

def encode(texts):
    global calls
    calls += 1
    if calls == int(os.environ.get("DIES_AT", 0)):
        os.kill(os.getpid(), signal.SIGKILL)
    numbers = np.array([[float(text.split()[1])] for text in texts], dtype=np.float32)
    return np.concatenate([np.sin(numbers), numbers / 100], axis=1)
"""


def test_a_live_migration_in_a_bucket_goes_on_after_a_kill(
    bucket: str, vectors: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started, killed in the middle of its backfill, resumed and completed: all rows are new."""
    lance = pytest.importorskip("lance")
    pytest.importorskip("lancedb")
    uri, url = f"{bucket}/live/photos.lance", f"lance://{bucket}/live#photos.vector"
    lance.write_dataset(gallery_table(vectors), uri, max_rows_per_file=150)
    (tmp_path / "bucket_encoder.py").write_text(ENCODER)
    monkeypatch.syspath_prepend(str(tmp_path))
    from bucket_encoder import encode  # type: ignore[import-not-found]

    gallery = fastfill.connect(url, id="id", input="text", distance="l2")
    migration = Migration(gallery, encode, encoder_name="bucket_encoder:encode")
    migration.start(pairs=60, method="ridge", index=False)
    paths = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    words = [url, "--no-throttle", "--batch", "100", "--lease", "2", "--refit", "never"]
    killed = subprocess.run(
        [sys.executable, "-m", "fastfill", "backfill", *words], check=False, timeout=120,
        env={**environment(), "PYTHONPATH": paths, "DIES_AT": "3"},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert 60 < migration.status().progress.new < len(vectors)
    last = [*migration.backfill(throttle=False, refit=None)][-1]
    assert last.new == last.total == len(vectors)
    migration.complete()
    table = lance.dataset(uri).to_table(columns=["id", "text", "vector", "vector_new"])
    assert sorted(table["id"].to_pylist()) == list(range(len(vectors)))
    old, new = (np.stack(table[name].to_numpy()) for name in ("vector", "vector_new"))
    assert np.array_equal(old, vectors[table["id"].to_numpy()])
    assert np.array_equal(new, encode(table["text"].to_pylist()))


def test_a_bucket_that_is_not_there_is_named(bucket: str, alignment: Alignment) -> None:
    """One sentence with the address and the way out."""
    with pytest.raises(
        FileError, match=r"s3://nowhere/in: .* Name the folder|s3://nowhere/in: cannot"
    ):
        transform_folder(alignment, "s3://nowhere/in", f"{bucket}/out")
