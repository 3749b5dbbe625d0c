"""Batch norm, residual and ReLU in as few passes over the memory as training allows (Triton).

A convolution network at 32 pixels is bound by memory: what surrounds its convolutions costs more
than they do. For activations y (m, c), m = batch·height·width, channels last, training-mode batch
norm followed by ReLU needs

    forward    Σy, Σy²                        read y
               z = relu(a·y + b [+ residual])  read y [, residual], write z
    backward   Σg, Σg·ŷ  with g = dz·[z > 0]    read dz, y   (g is written where it is used twice)
               dy = A·g + B·y + D               read g, y, write dy

and nothing else: no mask is stored, the sum of the two gradients of a block's output is taken
while it is read, sums are made in a fixed order, so that a step can be repeated bit by bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_ROWS, _COLUMNS, _WARPS = 64, 64, 4  # tile of a pass, and the warps that work on it
_PROGRAMS = 1024  # programs of a reduction: enough to fill a large chip several times


@triton.jit
def _forward_sums(y, sums, m, c, chunk, splits, ROWS: tl.constexpr, COLS: tl.constexpr):
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    split = tl.program_id(1)
    keep = cols < c
    first = tl.zeros((ROWS, COLS), tl.float32)
    second = tl.zeros((ROWS, COLS), tl.float32)
    start = split * chunk
    stop = tl.minimum(start + chunk, m)
    for row in range(start, stop, ROWS):
        rows = row + tl.arange(0, ROWS)
        at = rows.to(tl.int64)[:, None] * c + cols[None, :]
        inside = (rows < stop)[:, None] & keep[None, :]
        value = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
        first += value
        second += value * value
    tl.store(sums + split * c + cols, tl.sum(first, 0), mask=keep)
    tl.store(sums + (splits + split) * c + cols, tl.sum(second, 0), mask=keep)


@triton.jit
def _forward_factors(
    sums, weight, bias, running_mean, running_var, factors,
    m, c, splits, eps, momentum, SPLITS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    keep = cols < c
    first = tl.zeros((COLS,), tl.float32)
    second = tl.zeros((COLS,), tl.float32)
    for split in range(0, splits, SPLITS):
        at = split + tl.arange(0, SPLITS)
        inside = (at < splits)[:, None] & keep[None, :]
        place = at[:, None] * c + cols[None, :]
        first += tl.sum(tl.load(sums + place, mask=inside, other=0.0), 0)
        second += tl.sum(tl.load(sums + splits * c + place, mask=inside, other=0.0), 0)
    mean = first / m
    var = tl.maximum(second / m - mean * mean, 0.0)
    rstd = 1.0 / tl.sqrt(var + eps)
    scale = tl.load(weight + cols, mask=keep, other=0.0) * rstd
    shift = tl.load(bias + cols, mask=keep, other=0.0) - mean * scale
    tl.store(factors + cols, mean, mask=keep)
    tl.store(factors + c + cols, rstd, mask=keep)
    tl.store(factors + 2 * c + cols, scale, mask=keep)
    tl.store(factors + 3 * c + cols, shift, mask=keep)
    old_mean = tl.load(running_mean + cols, mask=keep, other=0.0)
    old_var = tl.load(running_var + cols, mask=keep, other=0.0)
    unbiased = var * (m / (m - 1.0))
    tl.store(running_mean + cols, old_mean + momentum * (mean - old_mean), mask=keep)
    tl.store(running_var + cols, old_var + momentum * (unbiased - old_var), mask=keep)


@triton.jit
def _forward_apply(
    y, residual, z, factors, m, c,
    RELU: tl.constexpr, RESIDUAL: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(c, COLS)
    cols = tl.program_id(0) % blocks * COLS + tl.arange(0, COLS)
    rows = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    keep = cols < c
    at = rows.to(tl.int64)[:, None] * c + cols[None, :]
    inside = (rows < m)[:, None] & keep[None, :]
    scale = tl.load(factors + 2 * c + cols, mask=keep, other=0.0)
    shift = tl.load(factors + 3 * c + cols, mask=keep, other=0.0)
    value = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    value = value * scale[None, :] + shift[None, :]
    if RESIDUAL:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(z + at, value.to(z.dtype.element_ty), mask=inside)


@triton.jit
def _backward_sums(
    dz, dz2, y, z, g, factors, sums, m, c, chunk, splits,
    RELU: tl.constexpr, RESIDUAL: tl.constexpr, FORKED: tl.constexpr, KEEP_G: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    split = tl.program_id(1)
    keep = cols < c
    mean = tl.load(factors + cols, mask=keep, other=0.0)
    rstd = tl.load(factors + c + cols, mask=keep, other=0.0)
    scale = tl.load(factors + 2 * c + cols, mask=keep, other=0.0)
    shift = tl.load(factors + 3 * c + cols, mask=keep, other=0.0)
    first = tl.zeros((ROWS, COLS), tl.float32)
    second = tl.zeros((ROWS, COLS), tl.float32)
    start = split * chunk
    stop = tl.minimum(start + chunk, m)
    for row in range(start, stop, ROWS):
        rows = row + tl.arange(0, ROWS)
        at = rows.to(tl.int64)[:, None] * c + cols[None, :]
        inside = (rows < stop)[:, None] & keep[None, :]
        grad = tl.load(dz + at, mask=inside, other=0.0).to(tl.float32)
        if FORKED:
            grad += tl.load(dz2 + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            if RESIDUAL:
                on = tl.load(z + at, mask=inside, other=0.0).to(tl.float32) > 0.0
            else:
                on = value * scale[None, :] + shift[None, :] > 0.0
            grad = tl.where(on, grad, 0.0)
        if KEEP_G:
            tl.store(g + at, grad.to(g.dtype.element_ty), mask=inside)
        first += grad
        second += grad * ((value - mean[None, :]) * rstd[None, :])
    tl.store(sums + split * c + cols, tl.sum(first, 0), mask=keep)
    tl.store(sums + (splits + split) * c + cols, tl.sum(second, 0), mask=keep)


@triton.jit
def _backward_factors(
    sums, factors, dweight, dbias, out, m, c, splits, SPLITS: tl.constexpr, COLS: tl.constexpr
):
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    keep = cols < c
    first = tl.zeros((COLS,), tl.float32)
    second = tl.zeros((COLS,), tl.float32)
    for split in range(0, splits, SPLITS):
        at = split + tl.arange(0, SPLITS)
        inside = (at < splits)[:, None] & keep[None, :]
        place = at[:, None] * c + cols[None, :]
        first += tl.sum(tl.load(sums + place, mask=inside, other=0.0), 0)
        second += tl.sum(tl.load(sums + splits * c + place, mask=inside, other=0.0), 0)
    tl.store(dbias + cols, first, mask=keep)
    tl.store(dweight + cols, second, mask=keep)
    mean = tl.load(factors + cols, mask=keep, other=0.0)
    rstd = tl.load(factors + c + cols, mask=keep, other=0.0)
    scale = tl.load(factors + 2 * c + cols, mask=keep, other=0.0)
    slope = -scale * rstd * second / m
    tl.store(out + cols, scale, mask=keep)
    tl.store(out + c + cols, slope, mask=keep)
    tl.store(out + 2 * c + cols, -scale * first / m - slope * mean, mask=keep)


@triton.jit
def _backward_apply(
    g, y, dy, factors, slopes, m, c,
    MASK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(c, COLS)
    cols = tl.program_id(0) % blocks * COLS + tl.arange(0, COLS)
    rows = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    keep = cols < c
    at = rows.to(tl.int64)[:, None] * c + cols[None, :]
    inside = (rows < m)[:, None] & keep[None, :]
    grad = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    if MASK:
        scale = tl.load(factors + 2 * c + cols, mask=keep, other=0.0)
        shift = tl.load(factors + 3 * c + cols, mask=keep, other=0.0)
        grad = tl.where(value * scale[None, :] + shift[None, :] > 0.0, grad, 0.0)
    a = tl.load(slopes + cols, mask=keep, other=0.0)
    b = tl.load(slopes + c + cols, mask=keep, other=0.0)
    d = tl.load(slopes + 2 * c + cols, mask=keep, other=0.0)
    value = a[None, :] * grad + b[None, :] * value + d[None, :]
    tl.store(dy + at, value.to(dy.dtype.element_ty), mask=inside)


def _splits(m: int, c: int) -> tuple[int, int, int]:
    """Column blocks, row splits and rows per split of a reduction over the rows of (m, c)."""
    blocks = triton.cdiv(c, _COLUMNS)
    splits = max(1, min(triton.cdiv(m, _ROWS), _PROGRAMS // blocks))
    chunk = triton.cdiv(triton.cdiv(m, splits), _ROWS) * _ROWS
    return blocks, triton.cdiv(m, chunk), chunk


class _FusedNorm(torch.autograd.Function):
    """z = relu(batch_norm(y) + residual); z twice where two branches read it (`forked`)."""

    @staticmethod
    def forward(
        ctx, y: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor,
        running: tuple[Tensor, Tensor], momentum: float, eps: float, relu: bool, forked: bool,
    ) -> tuple[Tensor, ...] | Tensor:  # fmt: skip
        c = y.shape[1]
        m = y.numel() // c
        blocks, splits, chunk = _splits(m, c)
        sums = torch.empty((2, splits, c), device=y.device)
        factors = torch.empty((4, c), device=y.device)  # mean, 1/std, scale, shift
        z = torch.empty_like(y)
        _forward_sums[(blocks, splits)](
            y, sums, m, c, chunk, splits, ROWS=_ROWS, COLS=_COLUMNS, num_warps=_WARPS
        )
        _forward_factors[(blocks,)](
            sums, weight, bias, *running, factors, m, c, splits, eps, momentum,
            SPLITS=32, COLS=_COLUMNS,
        )  # fmt: skip
        _forward_apply[(blocks * triton.cdiv(m, _ROWS),)](
            y, residual, z, factors, m, c,
            RELU=relu, RESIDUAL=residual is not None,
            ROWS=_ROWS, COLS=_COLUMNS, num_warps=_WARPS,
        )  # fmt: skip
        ctx.save_for_backward(y, z if relu and residual is not None else None, factors)
        ctx.relu, ctx.residual = relu, residual is not None
        return (z, z.detach()) if forked else z

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor) -> tuple[Any, ...]:
        y, z, factors = ctx.saved_tensors
        c = y.shape[1]
        m = y.numel() // c
        blocks, splits, chunk = _splits(m, c)
        grads = tuple(grad.contiguous(memory_format=torch.channels_last) for grad in grads)
        forked = len(grads) == 2
        keep = forked or ctx.residual
        g = torch.empty_like(y) if keep else grads[0]
        sums = torch.empty((2, splits, c), device=y.device)
        slopes = torch.empty((3, c), device=y.device)
        dweight, dbias = torch.empty((2, c), device=y.device)
        dy = torch.empty_like(y)
        _backward_sums[(blocks, splits)](
            grads[0], grads[-1], y, z, g, factors, sums, m, c, chunk, splits,
            RELU=ctx.relu, RESIDUAL=ctx.residual, FORKED=forked, KEEP_G=keep,
            ROWS=_ROWS, COLS=_COLUMNS, num_warps=_WARPS,
        )  # fmt: skip
        _backward_factors[(blocks,)](
            sums, factors, dweight, dbias, slopes, m, c, splits, SPLITS=32, COLS=_COLUMNS
        )
        _backward_apply[(blocks * triton.cdiv(m, _ROWS),)](
            g, y, dy, factors, slopes, m, c,
            MASK=ctx.relu and not keep, ROWS=_ROWS, COLS=_COLUMNS, num_warps=_WARPS,
        )  # fmt: skip
        return dy, g if ctx.residual else None, dweight, dbias, None, None, None, None, None


def norm_act(
    y: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor],
    momentum: float,
    eps: float,
    *,
    relu: bool,
    forked: bool = False,
) -> tuple[Tensor, Tensor]:
    """Training-mode batch norm of y (n, c, h, w), + residual, ReLU; the result twice if forked.

    The running mean and variance are updated in place, as PyTorch does.
    """
    out = _FusedNorm.apply(  # type: ignore[no-untyped-call]
        y, residual, weight, bias, running, momentum, eps, relu, forked
    )
    return out if forked else (out, out)
