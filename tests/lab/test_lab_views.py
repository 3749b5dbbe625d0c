"""Views: the same crops through every model, kept weights, maps that are learned from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from lab_runs import quick, result, run_all

from fastfill.errors import FileError, TrainingError
from fastfill.lab.backbones import build
from fastfill.lab.data.augment import nudged
from fastfill.lab.embedding import embed
from fastfill.lab.model_cache import ModelCache
from fastfill.lab.model_files import read_weights, weights_path, write_weights
from fastfill.lab.model_updates import MODEL_UPDATES
from fastfill.lab.stages import MapOptions, UpdateStages
from fastfill.lab.training import Feed
from fastfill.lab.views import APART, embed_views, pair_views

UPDATE = MODEL_UPDATES["digits"]["half"]
ROWS = np.arange(0, 40, 2)


@pytest.fixture
def feed() -> Feed:
    """40 noisy images."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    return Feed.to_device(pixels, torch.device("cpu"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> ModelCache:
    """The models of the digits, trained for two epochs each when they are asked for."""
    return quick(tmp_path_factory.mktemp("views")).models


def test_a_view_is_what_the_network_says_of_augmented_images(feed: Feed) -> None:
    """Drawn with the seed of the view, in half precision."""
    backbone = build("tiny", 8, (8, 8, 1)).eval()
    bank = embed_views(backbone, feed, ROWS, "nudged", count=3, seed=2)
    torch.manual_seed(2 * 1_000_003 + APART + 1)
    drawn = nudged(feed.pixels, torch.as_tensor(ROWS))
    assert bank.shape == (3, 20, 8)
    assert bank.dtype == torch.float16
    np.testing.assert_allclose(bank[1], embed(backbone, feed, drawn), rtol=2e-3, atol=1e-4)


def test_every_model_sees_the_same_crops(feed: Feed) -> None:
    """Two copies of a model agree in every view; views differ from each other."""
    backbone = build("tiny", 8, (8, 8, 1)).eval()
    copy = build("tiny", 8, (8, 8, 1)).eval()
    copy.load_state_dict(backbone.state_dict())
    one = embed_views(backbone, feed, ROWS, "nudged", count=3, seed=0)
    torch.rand(100)  # whatever else is drawn in between
    two = embed_views(copy, feed, ROWS, "nudged", count=3, seed=0)
    assert torch.equal(one, two)
    assert not torch.equal(one[0], one[1])


def test_features_beyond_half_precision_are_refused(feed: Feed) -> None:
    """Rather than infinities in the pairs of a map."""
    backbone = build("tiny", 8, (8, 8, 1)).eval()
    with torch.no_grad():
        backbone.blocks[-1].norms[-1].bias.fill_(1e6)  # type: ignore[union-attr, index]
    with pytest.raises(TrainingError, match="--views 0"):
        embed_views(backbone, feed, ROWS, "nudged", count=1, seed=0)


def test_views_on_the_unit_sphere_have_length_one() -> None:
    """As the features of an update that compares angles."""
    bank = torch.rand(2, 5, 3).half()
    plain, unit = (pair_views(bank, bank, bank, unit=unit).look(1) for unit in (False, True))
    old, new, side = unit.on_host()
    np.testing.assert_allclose(plain.on_host()[0], bank[1].float())
    assert side is not None
    for part in (old, new, side):
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1, rtol=1e-6)


def test_weights_are_kept_beside_the_features(models: ModelCache) -> None:
    """A model read back gives the features that it was left with, up to half precision."""
    features = models.features(UPDATE.old, 0)
    again = embed(models.backbone(UPDATE.old, 0), models.feed)
    np.testing.assert_allclose(again, features.train, atol=0.01 * float(features.train.max()))


def test_a_model_without_its_weights_is_trained_again_when_views_need_them(
    models: ModelCache,
) -> None:
    """Features alone are enough for everything else."""
    models.features(UPDATE.new, 0)
    path = weights_path(models.path(UPDATE.new, 0))
    path.unlink()
    models.features(UPDATE.new, 0)
    assert not path.exists()
    models.backbone(UPDATE.new, 0)
    assert path.is_file()


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    """The message names the file."""
    path = tmp_path / "old.weights.safetensors"
    write_weights(path, build("tiny", 8, (8, 8, 1)))
    with pytest.raises(FileError, match=r"old\.weights"):
        read_weights(path, build("tiny-small", 8, (8, 8, 1)))
    path.write_bytes(b"no weights")
    with pytest.raises(FileError, match=r"old\.weights"):
        read_weights(path, build("tiny", 8, (8, 8, 1)))


def test_banks_are_made_once_and_given_up_with_their_seed(models: ModelCache) -> None:
    """All maps of a seed share them; the memory of the device holds one seed."""
    bank = models.views(UPDATE.old, 0, ROWS, augment="nudged", count=2)
    assert models.views(UPDATE.old, 0, ROWS, augment="nudged", count=2) is bank
    assert models.views(UPDATE.old, 0, ROWS, augment="plain", count=2) is not bank
    models.views(UPDATE.old, 1, ROWS, augment="nudged", count=2)
    assert models.views(UPDATE.old, 0, ROWS, augment="nudged", count=2) is not bank


def test_pairs_hold_the_plain_look_and_views_by_every_model(models: ModelCache) -> None:
    """Old, new and the model that gives side-information, all of the same images."""
    stages = UpdateStages(models, UPDATE, 0, MapOptions("residual", 1, views=2))
    pairs = stages._pairs(side=True)
    assert pairs.views is not None
    assert pairs.views.count == 2
    rows = np.arange(len(stages.images.train))
    for part, name in zip(pairs.views.look(1).on_host(), ("old", "new", "side"), strict=True):
        bank = models.views(stages.model(name), 0, rows, augment="nudged", count=2)
        assert part is not None
        np.testing.assert_array_equal(part, bank[1].float())
    np.testing.assert_array_equal(pairs.new.vectors, stages.new.train)


def test_maps_of_fixed_features_are_other_maps(tmp_path: Path) -> None:
    """`--views 0` needs no weights, and neither its maps nor its results are mixed up."""
    assert run_all(quick(tmp_path), "flips") == []
    with_views = result(tmp_path, "flips")
    for path in (tmp_path / "models").glob("*.weights.safetensors"):
        path.unlink()
    assert run_all(quick(tmp_path, views=0), "flips") == []
    fixed = result(tmp_path, "flips")
    assert not list((tmp_path / "models").glob("*.weights.safetensors"))
    assert (with_views["map"]["views"], fixed["map"]["views"]) == (2, 0)
    assert with_views["tests"] != fixed["tests"]


@pytest.mark.parametrize("objective", ["cross-entropy", "arcface"])
def test_the_accuracy_of_a_model_is_kept(models: ModelCache, objective: str) -> None:
    """On the training and the test images of its own classes; by angle if trained by ArcFace."""
    model = dataclasses.replace(UPDATE.old, objective=objective)
    features, labels = models.features(model, 0), models.images.test.labels
    own = np.flatnonzero(np.isin(labels, features.classes))
    assert features.head is not None
    lengths = np.linalg.norm(features.head, axis=1) if objective == "arcface" else 1.0
    guessed = features.classes[(features.test[own] @ features.head.T / lengths).argmax(1)]
    accuracy = float((guessed == labels[own]).mean())
    assert features.facts["test_accuracy"] == pytest.approx(accuracy, abs=0.01)
    assert 0 < float(features.facts["train_accuracy"]) <= 1
