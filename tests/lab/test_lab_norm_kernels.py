"""The fused norm against PyTorch, where there is a GPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("triton") is None,
    reason="the kernels need CUDA and Triton",
)


def tensors(shape: tuple[int, int, int, int]) -> list[Tensor]:
    """Activations, residual, weight, bias."""
    generator = torch.Generator("cuda").manual_seed(0)
    y, r = (
        torch.randn(shape, device="cuda", generator=generator)
        .to(memory_format=torch.channels_last)
        .requires_grad_()
        for _ in range(2)
    )
    w, b = torch.randn((2, shape[1]), device="cuda", generator=generator)
    return [y, r, w.requires_grad_(), b.requires_grad_()]


@pytest.mark.parametrize("shape", [(8, 64, 16, 16), (4, 128, 5, 7), (3, 24, 4, 4), (2, 8, 1, 1)])
@pytest.mark.parametrize(
    ("relu", "residual", "forked"),
    [(True, True, True), (True, False, False), (False, False, False), (True, False, True)],
)
def test_norm_residual_and_relu_equal_pytorch(
    shape: tuple[int, int, int, int], relu: bool, residual: bool, forked: bool
) -> None:
    """Values, all gradients and the running moments agree with the separate operations."""
    from fastfill.lab.norm_kernels import norm_act

    y, r, w, b = tensors(shape)
    k1, k2 = torch.randn_like(y), torch.randn_like(y)
    states = [
        (torch.zeros(shape[1], device="cuda"), torch.ones(shape[1], device="cuda"))
        for _ in range(2)
    ]
    given = [y, w, b, *([r] if residual else [])]
    z, z2 = norm_act(
        y, r if residual else None, w, b, states[0], 0.1, 1e-5, relu=relu, forked=forked
    )
    found = torch.autograd.grad((z * k1).sum() + (z2 * k2).sum(), given)
    want = functional.batch_norm(y, *states[1], w, b, True, 0.1, 1e-5)
    want = want + r if residual else want
    want = functional.relu(want) if relu else want
    expected = torch.autograd.grad((want * (k1 + k2)).sum(), given)
    for a, e in zip((z, *found, *states[0]), (want, *expected, *states[1]), strict=True):
        torch.testing.assert_close(a, e, rtol=2e-3, atol=2e-3)


def test_two_steps_are_equal_bit_by_bit() -> None:
    """Sums are made in a fixed order."""
    from fastfill.lab.norm_kernels import norm_act

    y, r, w, b = tensors((16, 64, 16, 16))
    runs = []
    for _ in range(2):
        state = (torch.zeros(64, device="cuda"), torch.ones(64, device="cuda"))
        z, _ = norm_act(y, r, w, b, state, 0.1, 1e-5, relu=True)
        runs.append([z, *torch.autograd.grad(z.square().sum(), [y, r, w, b])])
    for one, two in zip(*runs, strict=True):
        assert torch.equal(one, two)
