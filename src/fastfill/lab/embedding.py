"""Images to features with a frozen backbone, as fast as the device allows.

On CUDA the norms are folded into the convolutions, which run in half precision, channels last, each
with its bias, its skip connection and its ReLU in one cuDNN kernel. A CPU runs the backbone itself.
Whatever form is used has given the backbone's own features on a sample first.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastfill.features import Matrix
from fastfill.lab.backbones import Backbone, Conv, Norm, ResidualBlock
from fastfill.lab.data.augment import Augment, network_input, plain
from fastfill.lab.training import Feed

PIXELS = {"cuda": 2_560_000, "cpu": 256_000}  # in one block: 2,500 images of 32×32 on a GPU
SAMPLE = 64  # images on which the forms of a network are compared
TOLERANCE = 0.02  # relative; bfloat16 itself is off by about 0.01


class FoldedConv(nn.Module):
    """A convolution with the norm behind it folded in: x → relu(conv(x) + bias + skip).

    With running mean μ and variance v, γ·(w∗x − μ)/√(v + ε) + β is a convolution by w·γ/√(v + ε)
    plus a bias.
    """

    def __init__(self, conv: Conv, norm: Norm, dtype: torch.dtype, fused: bool) -> None:
        super().__init__()
        self.stride, self.padding, self.relu, self.fused = (
            conv.stride, conv.padding, norm.relu, fused and norm.relu,
        )  # fmt: skip
        scale = norm.weight / (norm.var + norm.eps).sqrt()
        weight = conv.weight * scale[:, None, None, None]
        self.spare = -weight.shape[1] % 8 if weight.is_cuda else 0  # tensor cores read eights
        weight = functional.pad(weight, (0, 0, 0, 0, 0, self.spare)).to(dtype)
        self.weight = weight.detach().contiguous(memory_format=torch.channels_last)
        self.bias = (norm.bias - norm.mean * scale).to(dtype).detach()

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        if self.spare:
            x = functional.pad(x, (0, 0, 0, 0, 0, self.spare))
            x = x.contiguous(memory_format=torch.channels_last)
        if self.fused:
            return self._in_one_kernel(x, skip)
        y = functional.conv2d(x, self.weight, self.bias, self.stride, self.padding)
        y = y if skip is None else y.add_(skip)
        return y.relu_() if self.relu else y

    def _in_one_kernel(self, x: Tensor, skip: Tensor | None) -> Tensor:
        stride, padding = [self.stride] * 2, [self.padding] * 2
        if skip is None:
            return torch.cudnn_convolution_relu(
                x, self.weight, self.bias, stride, padding, [1, 1], 1
            )
        return torch.cudnn_convolution_add_relu(
            x, self.weight, skip, 1.0, self.bias, stride, padding, [1, 1], 1
        )


class FoldedBlock(nn.Module):
    """A residual block of folded convolutions."""

    def __init__(self, block: ResidualBlock, dtype: torch.dtype, fused: bool) -> None:
        super().__init__()
        folded = [
            FoldedConv(conv, norm, dtype, fused)  # type: ignore[arg-type]
            for conv, norm in zip(block.convs, block.norms, strict=True)
        ]
        self.body, self.last = nn.ModuleList(folded[:-1]), folded[-1]
        self.shortcut: FoldedConv | None = None
        if block.shortcut is not None:
            conv, norm = block.shortcut
            self.shortcut = FoldedConv(conv, norm, dtype, fused)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        skip = x if self.shortcut is None else self.shortcut(x)
        for conv in self.body:
            x = conv(x)
        out: Tensor = self.last(x, skip)
        return out


class FoldedBackbone(nn.Module):
    """A frozen backbone without norms: images (b, c, h, w) of the given type → (b, d) float32."""

    def __init__(self, backbone: Backbone, dtype: torch.dtype, fused: bool = False) -> None:
        super().__init__()
        conv, norm = backbone.stem
        self.stem = FoldedConv(conv, norm, dtype, fused)  # type: ignore[arg-type]
        self.pool = backbone.pool
        self.blocks = nn.Sequential(
            *(FoldedBlock(block, dtype, fused) for block in backbone.blocks)  # type: ignore[arg-type]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.pool:
            x = functional.max_pool2d(x, 3, stride=2, padding=1)
        y: Tensor = self.blocks(x)
        return y.float().mean((2, 3))


Network = Callable[[Tensor], Tensor]  # normalised images (b, c, h, w) → (b, d)


def fastest_form(backbone: Backbone, images: Tensor) -> tuple[Network, torch.dtype]:
    """The fastest form of a frozen backbone that agrees with it, tried on a block (b, c, h, w).

    cuDNN may lack a fused kernel for a shape, and half precision may overflow: such a form is left
    out, in the end for the backbone itself.
    """
    if not images.is_cuda:
        return backbone, torch.float32
    torch.backends.cudnn.benchmark = False  # no search for kernels for a few images
    wanted = backbone(images[:SAMPLE])
    forms = []
    for fused in (True, False):
        network, block = FoldedBackbone(backbone, torch.float16, fused), images.half()
        # Fused kernels may be compiled when they are first tried: cuDNN's first choice is taken.
        torch.backends.cudnn.benchmark = not fused
        try:
            difference = network(block)[:SAMPLE] - wanted
            if float(difference.norm()) <= TOLERANCE * float(wanted.norm()):  # false for NaN
                forms.append((_seconds(network, block), network))
        except RuntimeError:
            continue
    if not forms:
        return backbone, torch.bfloat16
    return min(forms, key=lambda form: form[0])[1], torch.float16


def _seconds(network: Network, block: Tensor) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    network(block)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def _block_size(backbone: Backbone, feed: Feed) -> int:
    """Images in a block; a stem that pools makes them 16 times smaller at once."""
    height, width = feed.pixels.shape[1:3]
    pixels = PIXELS.get(feed.pixels.device.type, PIXELS["cpu"]) * (16 if backbone.pool else 1)
    return max(1, pixels // (height * width))


class Embedder:
    """A frozen backbone with the images of a feed: rows → features."""

    def __init__(self, backbone: Backbone, feed: Feed, batch: int | None = None) -> None:
        self.feed = feed
        self.device = feed.pixels.device
        self.batch = batch or _block_size(backbone, feed)
        self.dim = backbone.dim
        frozen = backbone.to(self.device).eval()
        with torch.inference_mode():
            block = feed.pixels[: self.batch if self.device.type == "cuda" else 1]
            images = network_input(block, feed.mean, feed.std, torch.float32)
            self.network, self.dtype = fastest_form(frozen, images)

    def __call__(self, rows: Tensor, draw: Augment = plain, pixels: Tensor | None = None) -> Tensor:
        """Features (n, d) of rows of the feed, or of other `pixels`, as `draw` shows them."""
        images = self.feed.pixels if pixels is None else pixels
        out = torch.empty((len(rows), self.dim), device=self.device)
        with torch.inference_mode():
            for start in range(0, len(rows), self.batch):
                block = rows[start : start + self.batch]
                count = len(block)
                x = draw(images, self._filled(block, rows))
                x = network_input(x, self.feed.mean, self.feed.std, self.dtype)
                out[start : start + count] = self.network(x)[:count]
        return out

    def _filled(self, block: Tensor, rows: Tensor) -> Tensor:
        """On CUDA the last block is filled up: another size would cost a search for kernels."""
        missing = min(self.batch, len(rows)) - len(block)
        return block if self.device.type != "cuda" else torch.cat([block, rows[:missing]])


def embed(
    backbone: Backbone, feed: Feed, pixels: Tensor | None = None, batch: int | None = None
) -> Matrix:
    """Features (n, d) of all images of the feed, or of others normalised like them."""
    return embed_all(Embedder(backbone, feed, batch), pixels)


def embed_all(embedder: Embedder, pixels: Tensor | None = None) -> Matrix:
    """The same with an embedder that is there already."""
    images = embedder.feed.pixels if pixels is None else pixels
    rows = torch.arange(len(images), device=embedder.device)
    return embedder(rows, pixels=images).cpu().numpy()
