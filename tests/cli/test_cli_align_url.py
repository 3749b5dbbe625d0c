"""`fastfill align URL`: the map is learned from the gallery's own pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastfill.align import Alignment
from fastfill.cli.align import align_command
from fastfill.errors import InputError

lancedb = pytest.importorskip("lancedb")


def test_align_of_a_gallery_learns_from_its_pairs(tmp_path: Path) -> None:
    """A store's pairs give the same kind of artefact as files do, and the store keeps it too."""
    import fastfill as ff

    rng = np.random.default_rng(0)
    old = rng.normal(size=(80, 4)).astype(np.float32)
    rows = [{"id": i, "text": str(i), "vector": v.tolist()} for i, v in enumerate(old)]
    lancedb.connect(tmp_path / "db").create_table("items", rows)
    url = f"lance://{tmp_path / 'db'}#items.vector"

    def encode(texts: list[str]) -> np.ndarray:
        return old[[int(t) for t in texts], ::-1][:, :3] * 2

    migration = ff.Migration(ff.connect(url, id="id", input="text", distance="l2"), encode)
    migration.pairs(60)
    output = tmp_path / "a.safetensors"
    result = CliRunner().invoke(align_command, [url, "-o", str(output), "--method", "ridge"])
    assert result.exit_code == 0, result.output
    alignment = Alignment.load(output)
    assert (alignment.old_dim, alignment.new_dim, alignment.facts["pairs"]) == (4, 3, 60)
    assert migration.status().state.alignment is not None


def test_a_gallery_and_files_together_are_refused(tmp_path: Path) -> None:
    """Pairs come from one place: a URL and a file of new vectors contradict each other."""
    arguments = ["lance://x#t.v", "new.npy", "-o", str(tmp_path / "a.safetensors")]
    result = CliRunner().invoke(align_command, arguments)
    assert isinstance(result.exception, InputError)
    assert "holds the pairs itself" in str(result.exception)


def test_one_file_alone_is_refused(tmp_path: Path) -> None:
    """Without the new vectors there is nothing to learn from."""
    result = CliRunner().invoke(align_command, ["old.npy", "-o", str(tmp_path / "a.safetensors")])
    assert isinstance(result.exception, InputError)
    assert "both models" in str(result.exception)
