"""Augmentation on the device: from resident uint8 pixels to normalised network inputs.

A batch is gathered, cropped, flipped and normalised in one expression of a few kernels that never
visits the host. All random numbers come from the device's default generator, so that a CUDA graph
of a training step draws fresh ones at every replay.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Augment = Callable[[Tensor, Tensor], Tensor]  # (pixels (N, h, w, c), rows (b,)) → (b, h, w, c)


def plain(pixels: Tensor, rows: Tensor) -> Tensor:
    """The images as they are."""
    return pixels[rows]


def shifted(pixels: Tensor, rows: Tensor, pad: int = 4, flip: bool = True) -> Tensor:
    """Random crop of the image padded by `pad` black pixels, and a random mirror image."""
    count, (height, width) = len(rows), pixels.shape[1:3]
    device = pixels.device
    offset = torch.randint(-pad, pad + 1, (2, count, 1), device=device)
    y = torch.arange(height, device=device) + offset[0]  # (b, h)
    x = torch.arange(width, device=device).expand(count, width)  # (b, w)
    if flip:
        mirrored = torch.rand((count, 1), device=device) < 0.5
        x = torch.where(mirrored, width - 1 - x, x)
    x = x + offset[1]
    inside = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    crops = pixels[rows[:, None, None], y[:, :, None], x[:, None, :]]  # (b, h, w, c)
    return crops * inside[..., None]


def nudged(pixels: Tensor, rows: Tensor) -> Tensor:
    """Shifts by one pixel and no mirror: for digits, whose meaning changes in a mirror."""
    return shifted(pixels, rows, pad=1, flip=False)


def rescaled(pixels: Tensor, rows: Tensor, area: tuple[float, float] = (0.35, 1.0)) -> Tensor:
    """Random part of the image, of random aspect 3:4 to 4:3, stretched to full size, mirrored."""
    images = pixels[rows].permute(0, 3, 1, 2).float()  # (b, c, h, w)
    count, device = len(rows), pixels.device
    share = torch.empty(count, device=device).uniform_(*area)
    aspect = torch.empty(count, device=device).uniform_(-0.2877, 0.2877).exp()
    height = (share / aspect).sqrt().clamp(max=1)
    width = (share * aspect).sqrt().clamp(max=1)
    mirror = torch.where(torch.rand(count, device=device) < 0.5, -1.0, 1.0)
    offset = torch.rand((2, count), device=device) * 2 - 1
    ys = _centres(images.shape[2], device) * height[:, None] + (offset[0] * (1 - height))[:, None]
    xs = _centres(images.shape[3], device) * (width * mirror)[:, None]
    xs = xs + (offset[1] * (1 - width))[:, None]  # (b, w)
    grid = torch.stack([xs[:, None, :].expand(-1, ys.shape[1], -1),
                        ys[:, :, None].expand(-1, -1, xs.shape[1])], 3)  # fmt: skip
    crops = functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    return crops.permute(0, 2, 3, 1)


def _centres(count: int, device: torch.device) -> Tensor:
    """Centres of so many pixels on an axis from −1 to 1."""
    return (2 * torch.arange(count, device=device) + 1) / count - 1


def distorted(pixels: Tensor, rows: Tensor) -> Tensor:
    """The views of SimCLR: a random part from 20 % of the area, colours jittered, grey one in 5."""
    images = rescaled(pixels, rows, area=(0.2, 1.0)) / 255
    shape, device = (len(rows), 1, 1, 1), images.device
    strength = torch.empty((3, *shape), device=device).uniform_(0.6, 1.4)
    jitter = torch.rand(shape, device=device) < 0.8
    strength = torch.where(jitter, strength, 1.0)
    images = images * strength[0]  # brightness
    middle = images.mean((1, 2, 3), keepdim=True)
    images = middle + (images - middle) * strength[1]  # contrast
    grey = images.mean(3, keepdim=True)
    images = grey + (images - grey) * strength[2]  # saturation
    tint = torch.empty((len(rows), 1, 1, images.shape[3]), device=device).uniform_(0.9, 1.1)
    images = images * torch.where(jitter, tint, 1.0)  # stands in for the shift of hue
    grey = images.mean(3, keepdim=True).expand_as(images)
    images = torch.where(torch.rand(shape, device=device) < 0.2, grey, images)
    return images.clamp(0, 1) * 255


AUGMENTATIONS: dict[str, Augment] = {
    "plain": plain,
    "shifted": shifted,
    "nudged": nudged,
    "rescaled": rescaled,
    "distorted": distorted,
}


def moments(pixels: Tensor, sample: int = 4096) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel over an even sample of the images, (c,) each."""
    step = max(1, len(pixels) // sample)
    values = pixels[::step].reshape(-1, pixels.shape[3]).float()
    return values.mean(0), values.std(0) + 1e-3


def network_input(images: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype) -> Tensor:
    """(b, h, w, c) pixels → normalised (b, c, h, w), channels last in memory."""
    return ((images - mean) / std).to(dtype).permute(0, 3, 1, 2)
