"""Embedding with a frozen backbone: folded norms, blocks, the form that is used."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fastfill.lab.backbones import Backbone, Norm, build
from fastfill.lab.data.augment import network_input
from fastfill.lab.embedding import Embedder, FoldedBackbone, embed, fastest_form
from fastfill.lab.training import Feed


def frozen(name: str, shape: tuple[int, int, int]) -> Backbone:
    """A backbone whose norms have seen something."""
    torch.manual_seed(0)
    backbone = build(name, 24, shape)
    for module in backbone.modules():
        if isinstance(module, Norm):
            module.mean.normal_()
            module.var.uniform_(0.5, 2.0)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias)
    return backbone.eval()


@pytest.fixture
def feed() -> Feed:
    """30 noisy images."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    return Feed.to_device(pixels, torch.device("cpu"))


@pytest.mark.parametrize(("name", "side"), [("tiny", 8), ("resnet18", 72), ("resnet50", 16)])
def test_a_folded_backbone_gives_the_same_features(name: str, side: int) -> None:
    """Norms become a scale of the weights and a bias, also behind shortcuts and strided stems."""
    backbone = frozen(name, (side, side, 3))
    images = torch.randn(3, 3, side, side)
    with torch.inference_mode():
        expected, folded = backbone(images), FoldedBackbone(backbone, torch.float32)(images)
    torch.testing.assert_close(folded, expected, rtol=1e-4, atol=1e-4)


def test_a_cpu_runs_the_backbone_itself() -> None:
    """In float32, to the last bit."""
    backbone = frozen("tiny", (8, 8, 3))
    assert fastest_form(backbone, torch.zeros(2, 3, 8, 8)) == (backbone, torch.float32)


def test_features_are_those_of_the_network_whatever_the_blocks(feed: Feed) -> None:
    """All rows, in order, with blocks that do not divide their number."""
    backbone = frozen("tiny", (8, 8, 3))
    with torch.inference_mode():
        whole = backbone(network_input(feed.pixels, feed.mean, feed.std, torch.float32))
    np.testing.assert_allclose(embed(backbone, feed, batch=7), whole.numpy(), rtol=1e-5, atol=1e-6)


def test_an_embedder_shows_the_rows_as_it_is_told(feed: Feed) -> None:
    """Rows in the order given, drawn by any function of pixels and rows."""

    def upside_down(pixels: Tensor, rows: Tensor) -> Tensor:
        return pixels[rows].flip(1)

    embedder = Embedder(frozen("tiny", (8, 8, 3)), feed, batch=4)
    rows = torch.tensor([5, 2, 9, 2, 7])
    turned = embedder(rows, upside_down)
    again = embedder(rows, pixels=feed.pixels.flip(1))
    torch.testing.assert_close(turned, again)
    torch.testing.assert_close(turned[1], turned[3])
