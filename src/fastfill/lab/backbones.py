"""ResNet-18 and ResNet-50 with a given embedding width, and small networks for small images.

The last block outputs the embedding; ReLU and average pooling follow, so features are not
negative. The classifier belongs to the training objective, not to the backbone. Images of up to
64 pixels get a 3×3 stem without pooling, larger ones the 7×7 stem of He et al. (2016).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastfill.errors import InputError


class Conv(nn.Module):
    """Convolution without bias; float32 weights are cast to the type of the activations."""

    products: ClassVar[bool] = False  # 1×1 convolutions as matrix products

    def __init__(self, inside: int, outside: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.padding = stride, kernel // 2
        weight = torch.empty(outside, inside, kernel, kernel)
        nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu")
        self.weight = nn.Parameter(weight.to(memory_format=torch.channels_last))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.to(x.dtype)
        if self.products and self.stride == 1 and self.padding == 0:
            flat = x.permute(0, 2, 3, 1) @ weight[:, :, 0, 0].T  # (b, h, w, c)
            return flat.permute(0, 3, 1, 2)
        if x.is_cuda and x.shape[1] % 8:  # tensor cores read channels in eights
            spare = -x.shape[1] % 8
            x, weight = (
                functional.pad(x, (0, 0, 0, 0, 0, spare)),
                functional.pad(weight, (0, 0, 0, 0, 0, spare)),
            )
            x = x.contiguous(memory_format=torch.channels_last)
            weight = weight.contiguous(memory_format=torch.channels_last)
        return functional.conv2d(x, weight, stride=self.stride, padding=self.padding)


class Norm(nn.Module):
    """Batch norm, then the residual is added, then ReLU; fused on CUDA while training."""

    fused: ClassVar[bool] = True

    def __init__(self, channels: int, relu: bool = True, zero: bool = False) -> None:
        super().__init__()
        self.relu, self.momentum, self.eps = relu, 0.1, 1e-5
        self.weight = nn.Parameter(torch.full((channels,), 0.0 if zero else 1.0))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.mean: Tensor
        self.var: Tensor
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(
        self, y: Tensor, residual: Tensor | None = None, forked: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The result twice: for the branch that computes and for the branch that skips."""
        if y.is_cuda and self.training and self.fused:
            from fastfill.lab.norm_kernels import norm_act

            return norm_act(
                y, residual, self.weight, self.bias, (self.mean, self.var), self.momentum,
                self.eps, relu=self.relu, forked=forked,
            )  # fmt: skip
        z = functional.batch_norm(
            y, self.mean, self.var, self.weight, self.bias, self.training, self.momentum, self.eps
        )
        z = z if residual is None else z + residual
        z = functional.relu(z) if self.relu else z
        return z, z


class ResidualBlock(nn.Module):
    """Convolutions with norms around a shortcut; the last norm starts at zero (v1.5)."""

    def __init__(self, inside: int, widths: list[tuple[int, int, int]]) -> None:
        """`widths`: (channels, kernel, stride) of each convolution."""
        super().__init__()
        channels = [inside, *(width for width, _, _ in widths)]
        last = len(widths) - 1
        self.convs = nn.ModuleList(
            Conv(channels[i], width, kernel, step) for i, (width, kernel, step) in enumerate(widths)
        )
        self.norms = nn.ModuleList(
            Norm(width, zero=i == last) for i, (width, _, _) in enumerate(widths)
        )
        stride = max(step for _, _, step in widths)
        self.shortcut: nn.ModuleList | None = None
        if stride > 1 or inside != channels[-1]:
            self.shortcut = nn.ModuleList(
                [Conv(inside, channels[-1], 1, stride), Norm(channels[-1], relu=False)]
            )

    def forward(self, x: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        if self.shortcut is not None:
            conv, norm = self.shortcut
            skip, _ = norm(conv(skip))
        steps = list(zip(self.convs, self.norms, strict=True))
        for conv, norm in steps[:-1]:
            x, _ = norm(conv(x))
        conv, norm = steps[-1]
        x, skip = norm(conv(x), skip, forked=True)
        return x, skip


class Backbone(nn.Module):
    """Stem, blocks, average pooling: images (b, c, h, w) → embeddings (b, d)."""

    def __init__(
        self, stem: nn.ModuleList, pool: bool, blocks: list[ResidualBlock], dim: int
    ) -> None:
        super().__init__()
        self.stem, self.pool, self.blocks, self.dim = stem, pool, nn.ModuleList(blocks), dim

    def forward(self, x: Tensor) -> Tensor:
        conv, norm = self.stem
        x, skip = norm(conv(x), forked=not self.pool)
        if self.pool:
            x = skip = functional.max_pool2d(x, 3, stride=2, padding=1)
        for block in self.blocks:
            x, skip = block(x, skip)
        return x.float().mean((2, 3))


def _basic(inside: int, width: int, outside: int, stride: int) -> ResidualBlock:
    return ResidualBlock(inside, [(width, 3, stride), (outside, 3, 1)])


def _bottleneck(inside: int, width: int, outside: int, stride: int) -> ResidualBlock:
    return ResidualBlock(
        inside, [(width, 1, 1), (width, 3, stride), (outside, 1, 1)]
    )  # stride as in v1.5


def _resnet(
    depths: tuple[int, ...], bottleneck: bool, dim: int, shape: tuple[int, ...]
) -> Backbone:
    """ResNet; stages of 64, 128, 256, 512 channels, four times as many out of a bottleneck."""
    small = shape[0] <= 64
    stem = [Conv(shape[2], 64, 3 if small else 7, 1 if small else 2), Norm(64)]
    make, factor = (_bottleneck, 4) if bottleneck else (_basic, 1)
    blocks, inside = [], 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for number in range(depth):
            last = stage == len(depths) - 1 and number == depth - 1
            outside = dim if last else width * factor
            stride = 2 if number == 0 and stage > 0 else 1
            blocks.append(make(inside, width, outside, stride))
            inside = outside
    return Backbone(nn.ModuleList(stem), not small, blocks, dim)


def _tiny(width: int, dim: int, shape: tuple[int, ...]) -> Backbone:
    """Two blocks at 8×8 and 4×4: enough for digits, quick on a CPU."""
    stem = nn.ModuleList([Conv(shape[2], width, 3), Norm(width)])
    blocks = [_basic(width, width, 2 * width, 2), _basic(2 * width, 2 * width, dim, 1)]
    return Backbone(stem, False, blocks, dim)


BACKBONES: dict[str, Callable[[int, tuple[int, ...]], Backbone]] = {
    "resnet18": functools.partial(_resnet, (2, 2, 2, 2), False),
    "resnet50": functools.partial(_resnet, (3, 4, 6, 3), True),
    "tiny": functools.partial(_tiny, 16),
    "tiny-small": functools.partial(_tiny, 8),
}


def build(name: str, dim: int, shape: tuple[int, ...]) -> Backbone:
    """A freshly initialised backbone for images of shape (h, w, c).

    >>> build("tiny", 16, (8, 8, 1))(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 16])
    """
    if name not in BACKBONES:
        raise InputError(f"Unknown backbone {name!r}: use one of {', '.join(BACKBONES)}.")
    return BACKBONES[name](dim, shape)
