"""A model of the sentence-transformers library as the new model, from a folder, offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.errors import EncoderError

pytest.importorskip("lancedb", reason="LanceDB is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
# The library and those that it stands on warn of their own future at import.
pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = ["red", "green", "blue", "bicycle", "house", "tree", "old", "new", "small", "large"]


@pytest.fixture(scope="module")
def library() -> Any:
    """The library, imported late: that takes seconds."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "sentence_transformers", reason="sentence-transformers is not installed"
        )


@pytest.fixture
def model(library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tiny model, made from modules and saved to a folder: an average of word vectors."""
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words = {"[UNK]": 0, **{word: n for n, word in enumerate(WORDS, start=1)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    weights = np.random.default_rng(3).standard_normal((len(words), 8)).astype(np.float32)
    embedding = StaticEmbedding(tokenizer, embedding_weights=weights)
    folder = tmp_path / "tiny-model"
    library.SentenceTransformer(modules=[embedding], device="cpu").save(str(folder))
    return str(folder)


def captions() -> list[str]:
    """Every text of three words."""
    return [f"{a} {b} {c}" for a in WORDS[:3] for b in WORDS[6:] for c in WORDS[3:6]]


def test_a_folder_becomes_an_encoder(library: Any, model: str) -> None:
    """The encoder's vectors are those of the library's own call."""
    from fastfill.wiring import open_encoder

    encode = open_encoder(f"sentence-transformers:{model}")
    texts = captions()[:5]
    expected = library.SentenceTransformer(model, device="cpu").encode(texts)
    np.testing.assert_allclose(np.asarray(encode(texts)), expected, rtol=1e-6)


def test_a_gallery_is_started_and_backfilled_by_it(
    library: Any, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--encoder sentence-transformers:PATH` goes through a whole migration of a table."""
    import lancedb
    from click.testing import CliRunner

    from fastfill.cli.main import commands, load_commands

    load_commands()
    monkeypatch.chdir(tmp_path)
    texts = captions() * 2
    old = np.random.default_rng(0).standard_normal((len(texts), 6)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(old.ravel()), 6)
    rows = {"id": list(range(len(texts))), "caption": texts, "vector": vectors}
    lancedb.connect("db").create_table("photos", pa.table(rows))
    url = "lance://./db#photos.vector"

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(commands, arguments)
        assert result.exit_code == 0, f"{result.output}{result.exception}"
        return result

    encoder = f"sentence-transformers:{model}"
    begun = run(
        *("start", url, "--input", "caption", "--encoder", encoder, "--distance", "cosine"),
        *("--pairs", "30", "--method", "procrustes"),
    )
    assert f"Aligned {len(texts) - 30} rows" in begun.output
    run("backfill", url, "--refit", "never")
    status = json.loads(run("status", url, "--json").stdout)
    assert (status["encoder"], status["progress"]["new"]) == (encoder, len(texts))
    table = lancedb.connect("db").open_table("photos").to_arrow()
    expected = library.SentenceTransformer(model, device="cpu").encode(table["caption"].to_pylist())
    np.testing.assert_allclose(np.array(table["vector_new"].to_pylist()), expected, rtol=1e-5)


def test_a_model_that_is_not_there_is_named(library: Any, tmp_path: Path) -> None:
    """A wrong path is one sentence with the encoder's name, before any work."""
    from fastfill.wiring import open_encoder

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(EncoderError, match="cannot be loaded"):
            open_encoder(f"sentence-transformers:{tmp_path / 'nowhere'}")
