"""Training: schedules, backbones, augmentation, checkpoints."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fastfill.errors import FileError, InputError, TrainingError
from fastfill.lab.backbones import BACKBONES, build
from fastfill.lab.clock import OutOfTimeError
from fastfill.lab.data.augment import AUGMENTATIONS, moments, network_input, shifted
from fastfill.lab.embedding import embed
from fastfill.lab.objectives import CrossEntropy, SimCLR
from fastfill.lab.recipes import RECIPES, Recipe
from fastfill.lab.training import Feed, train

QUICK = Recipe(epochs=4, batch=16, lr=0.1, augment="nudged")


@pytest.fixture
def feed() -> Feed:
    """48 images of two kinds: bright on the left, bright on the right."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 60, (48, 8, 8, 1), dtype=np.uint8)
    pixels[::2, :, :4] += 150
    pixels[1::2, :, 4:] += 150
    return Feed.to_device(pixels, torch.device("cpu"))


def fit(feed: Feed, recipe: Recipe = QUICK, **options: object) -> torch.nn.Module:
    """A tiny backbone trained on the two kinds."""
    torch.manual_seed(0)
    backbone = build("tiny-small", 8, (8, 8, 1))
    rows, labels = np.arange(48), np.arange(48) % 2
    train(backbone, CrossEntropy(2, 8), feed, rows, labels, recipe, **options)  # type: ignore[arg-type]
    return backbone


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_gives_embeddings_that_are_not_negative(name: str) -> None:
    """The last block outputs the embedding, then ReLU and average pooling."""
    side = 8 if name.startswith("tiny") else 32
    backbone = build(name, 24, (side, side, 3))
    features = backbone(torch.randn(2, 3, side, side))
    assert features.shape == (2, 24)
    assert bool((features >= 0).all())


def test_large_images_get_the_strided_stem() -> None:
    """Above 64 pixels the stem is 7×7 with stride 2 and pooling, up to 64 it is 3×3."""
    large, small = (build("resnet18", 8, (side, side, 3)) for side in (96, 64))
    assert large.stem[0].weight.shape[-1] == 7
    assert large.pool
    assert small.stem[0].weight.shape[-1] == 3
    assert not small.pool


def test_an_unknown_backbone_is_refused_with_the_known_names() -> None:
    """The message lists what there is."""
    with pytest.raises(InputError, match="resnet50"):
        build("resnet51", 8, (8, 8, 1))


def test_training_learns_to_tell_two_kinds_apart(feed: Feed) -> None:
    """After a few epochs the nearest neighbour of every image is of its kind."""
    features = torch.from_numpy(embed(fit(feed), feed))  # type: ignore[arg-type]
    distances = torch.cdist(features, features).fill_diagonal_(float("inf"))
    assert bool((distances.argmin(1) % 2 == torch.arange(48) % 2).all())


def test_the_same_seed_gives_the_same_network(feed: Feed) -> None:
    """Training is repeatable."""
    one, two = (embed(fit(feed), feed) for _ in range(2))  # type: ignore[arg-type]
    np.testing.assert_array_equal(one, two)


def test_a_run_that_was_stopped_goes_on_as_if_it_never_was(feed: Feed, tmp_path: Path) -> None:
    """Stop after two epochs, call again: the same weights as without a stop."""
    path = tmp_path / "run.safetensors"
    limit = [float("inf")]

    def stop(epoch: int, epochs: int, loss: float, rate: float) -> None:
        limit[0] = 0.0 if epoch == 2 else limit[0]

    class Clock(float):
        def __lt__(self, now: float) -> bool:
            return limit[0] < now

    with pytest.raises(OutOfTimeError, match="2 of 4"):
        fit(feed, checkpoint=path, until=Clock(), report=stop)
    assert path.is_file()
    resumed = embed(fit(feed, checkpoint=path), feed)  # type: ignore[arg-type]
    np.testing.assert_array_equal(resumed, embed(fit(feed), feed))  # type: ignore[arg-type]
    assert not path.exists()


def test_a_checkpoint_of_another_network_is_refused(feed: Feed, tmp_path: Path) -> None:
    """Loading never mixes two networks."""
    path = tmp_path / "run.safetensors"
    with pytest.raises(OutOfTimeError):
        fit(feed, checkpoint=path, until=time.monotonic() - 1)
    other = build("tiny", 8, (8, 8, 1))
    with pytest.raises(FileError, match="another network"):
        train(other, CrossEntropy(2, 8), feed, np.arange(48), np.arange(48) % 2, QUICK,
              checkpoint=path)  # fmt: skip


def test_a_diverging_run_says_so(feed: Feed) -> None:
    """A loss that is not finite stops the run with the learning rate in the message."""
    with pytest.raises(TrainingError, match="learning rate"):
        fit(feed, Recipe(epochs=3, batch=16, lr=1e30, warmup=0.0, augment="plain"))


def test_simclr_sees_two_views_of_every_image(feed: Feed) -> None:
    """The images that a step processes are counted with their views."""
    backbone = build("tiny-small", 8, (8, 8, 1))
    seen = []
    backbone.register_forward_hook(lambda module, args, out: seen.append(len(args[0])))
    train(backbone, SimCLR(8), feed, np.arange(48), np.zeros(48, int), QUICK)
    assert set(seen) == {32}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentations_keep_shape_and_range(name: str) -> None:
    """Whatever is done to them, images stay images."""
    pixels = torch.randint(0, 256, (10, 12, 12, 3), dtype=torch.uint8)
    out = AUGMENTATIONS[name](pixels, torch.tensor([3, 1, 4, 1]))
    assert out.shape == (4, 12, 12, 3)
    assert 0 <= float(out.float().min()) <= float(out.float().max()) <= 255.5


def test_shifted_is_a_crop_of_the_padded_image() -> None:
    """Every augmented image is found, mirrored or not, in the black-padded original."""
    pixels = torch.randint(1, 256, (5, 6, 6, 1), dtype=torch.uint8)
    out = shifted(pixels, torch.arange(5), pad=2)
    for image, crop in zip(pixels, out, strict=True):
        candidates = []
        for source in (image, image.flip(1)):
            padded = torch.zeros(10, 10, 1, dtype=torch.uint8)
            padded[2:8, 2:8] = source
            candidates += [padded[y : y + 6, x : x + 6] for y in range(5) for x in range(5)]
        assert any(torch.equal(crop, candidate) for candidate in candidates)


def test_network_input_is_normalised() -> None:
    """Over the whole set, each channel has mean 0 and deviation 1."""
    pixels = torch.randint(0, 256, (50, 6, 6, 3), dtype=torch.uint8)
    x = network_input(pixels, *moments(pixels), torch.float32)
    assert x.shape == (50, 3, 6, 6)
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", RECIPES)
def test_rates_rise_then_fall_to_nothing(name: str) -> None:
    """Linear warm-up to the highest rate, cosine down to almost zero."""
    recipe = RECIPES[name]
    rates = [recipe.rate(step, 10) for step in range(recipe.epochs * 10)]
    peak = int(np.argmax(rates))
    assert rates[peak] == pytest.approx(recipe.lr)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] < 0.01 * recipe.lr


def test_the_papers_preset_is_appendix_a2() -> None:
    """ResNet v1.5: 100 epochs, batch 1024, rate 1.024, momentum 0.875, decay 3.05e-5, 5 warm."""
    r = RECIPES["resnet-v1.5"]
    assert (r.epochs, r.batch, r.lr, r.momentum, r.warmup) == (100, 1024, 1.024, 0.875, 5.0)
    assert r.weight_decay == pytest.approx(3.0517578125e-5)
