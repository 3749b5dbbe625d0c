"""The files of a trained model: its features and classifier, and the weights beside them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastfill.errors import FileError
from fastfill.features import Ints, Matrix, replacing
from fastfill.lab.backbones import Backbone


@dataclass(frozen=True, eq=False)
class ModelFeatures:
    """What is kept of a trained model: its features of all images, and its classifier."""

    train: Matrix  # (n, d) features of all training images, also of classes it was not trained on
    test: Matrix  # (m, d)
    head: Matrix | None  # (classes, d); row i belongs to the i-th of `classes`
    classes: Ints  # the classes it was trained on
    facts: dict[str, float | str]  # how it was trained: last loss, speed, rate, device


def write_features(path: Path, features: ModelFeatures) -> None:
    """Features as float16, the classifier as float32; whole or not at all."""
    arrays: dict[str, Any] = {
        "train": features.train.astype(np.float16),
        "test": features.test.astype(np.float16),
        "classes": features.classes,
        "facts": np.array(json.dumps(features.facts)),
    }
    if features.head is not None:
        arrays["head"] = features.head
    with replacing(made_folder(path)) as draft, draft.open("wb") as file:
        np.savez(file, **arrays)


def read_features(path: Path) -> ModelFeatures:
    """What `write_features` wrote; float32 inside."""
    with np.load(path, allow_pickle=False) as file:
        return ModelFeatures(
            file["train"].astype(np.float32),
            file["test"].astype(np.float32),
            file["head"].astype(np.float32) if "head" in file else None,
            file["classes"].astype(np.int64),
            json.loads(str(file["facts"])),
        )


def weights_path(path: Path) -> Path:
    """The file of a model's weights, beside that of its features.

    >>> weights_path(Path("models/old.npz")).name
    'old.weights.safetensors'
    """
    return path.with_suffix(".weights.safetensors")


def write_weights(path: Path, backbone: Backbone) -> None:
    """Convolutions as float16, norms, which are small, as float32; whole or not at all."""
    from safetensors.torch import save_file

    state = {
        name: (value.half() if value.ndim > 1 else value.float()).detach().cpu().contiguous()
        for name, value in backbone.state_dict().items()
    }
    with replacing(made_folder(path)) as draft:
        save_file(state, draft)


def read_weights(path: Path, backbone: Backbone) -> None:
    """Load what `write_weights` wrote into a backbone of the same network, in place."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state = load_file(path)
        with torch.no_grad():
            backbone.load_state_dict(state)  # copies into the float32 weights
    except (SafetensorError, RuntimeError) as error:
        raise FileError(
            f"{path}: does not hold the weights of this network. Delete it to train again."
        ) from error


def made_folder(path: Path) -> Path:
    """The path, in a folder that exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
