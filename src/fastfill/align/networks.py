"""The networks that learn a map and its uncertainty, as torch modules, for training only.

After training they are exported as plain matrices (`layers`): batch norm is folded into the linear
layer before it, so that applying a map is products, biases and ReLU in NumPy.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fastfill.features import Matrix

BOUND = 12.0  # |log σ²| stays below: σ² between e^-12 and e^12 of the mean squared norm


def bounded(log_variance: Tensor) -> Tensor:
    """log σ² squeezed into (−BOUND, BOUND), almost unchanged near 0."""
    return BOUND * torch.tanh(log_variance / BOUND)


class DenseBlock(nn.Module):
    """Linear without bias, batch norm, ReLU."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_in, d_out, bias=False)
        self.norm = nn.BatchNorm1d(d_out)

    def forward(self, x: Tensor) -> Tensor:
        """(n, d_in) → (n, d_out)."""
        return torch.relu(self.norm(self.linear(x)))

    def folded(self, name: str) -> dict[str, Matrix]:
        """One weight and one bias that do the same, with the norm's statistics as they are."""
        mean, variance = self.norm.running_mean, self.norm.running_var
        assert mean is not None  # noqa: S101 - statistics are tracked
        assert variance is not None  # noqa: S101
        gain = self.norm.weight / torch.sqrt(variance + self.norm.eps)
        bias = self.norm.bias - mean * gain
        return _named(name, (self.linear.weight * gain[:, None]).T, bias)


class PaperNet(nn.Module):
    """The network of FCT (Ramanujan et al. 2022) with FastFill's linear uncertainty head.

    Two branches, old → 2·d_old → 2·d_new and side → 2·d_side → 2·d_new, are concatenated and go
    through 4·d_new → 2048 → 2048 → d_new. Without side-information the second branch reads the old
    feature too. log σ² is one linear layer on the output.
    """

    def __init__(self, old: int, new: int, side: int | None, variances: int, width: int = 2048):
        super().__init__()
        second = old if side is None else side
        self.first_branch = nn.Sequential(DenseBlock(old, 2 * old), DenseBlock(2 * old, 2 * new))
        self.second_branch = nn.Sequential(
            DenseBlock(second, 2 * second), DenseBlock(2 * second, 2 * new)
        )
        self.trunk = nn.Sequential(DenseBlock(4 * new, width), DenseBlock(width, width))
        self.out = nn.Linear(width, new)
        self.log_variance = nn.Linear(new, variances) if variances else None

    def forward(self, x: Tensor, side: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """h (n, d_new) and log σ² (n, variances), both in scaled units."""
        second = x if side is None else side
        both = torch.cat([self.first_branch(x), self.second_branch(second)], dim=1)
        h = self.out(self.trunk(both)).float()
        s = None if self.log_variance is None else bounded(self.log_variance(h).float())
        return h, s

    def layers(self) -> dict[str, Matrix]:
        """Folded weights, (d_in, d_out) and (d_out,), by name."""
        arrays = _dense("out", self.out)
        for name in ("first_branch", "second_branch", "trunk"):
            for i, block in enumerate(getattr(self, name)):
                arrays |= block.folded(f"{name}.{i}")
        return arrays | (_dense("log_variance", self.log_variance) if self.log_variance else {})


class ResidualNet(nn.Module):
    """What a linear map leaves over: two hidden layers, the last one starting at zero.

    log σ² reads the hidden state and does not disturb it: its gradient stops there.
    """

    def __init__(self, d_in: int, new: int, variances: int, width: int, dropout: float):
        super().__init__()
        self.first = nn.Linear(d_in, width)
        self.second = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(width, new)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.log_variance = nn.Linear(width, variances)

    def forward(self, z: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """h = base + correction (n, d_new), and log σ² (n, variances)."""
        hidden = torch.relu(self.second(self.drop(torch.relu(self.first(z)))))
        return base + self.out(self.drop(hidden)), bounded(self.log_variance(hidden.detach()))

    def layers(self) -> dict[str, Matrix]:
        """Weights (d_in, d_out) and (d_out,), by name."""
        arrays = _dense("hidden.0", self.first) | _dense("hidden.1", self.second)
        return arrays | _dense("out", self.out) | _dense("log_variance", self.log_variance)


def _dense(name: str, layer: nn.Linear) -> dict[str, Matrix]:
    return _named(name, layer.weight.T, layer.bias)


def _named(name: str, weight: Tensor, bias: Tensor) -> dict[str, Matrix]:
    """Weight (d_in, d_out) and bias (d_out,) as NumPy arrays."""
    parts = {f"{name}.weight": weight, f"{name}.bias": bias}
    return {k: np.ascontiguousarray(t.detach().float().cpu().numpy()) for k, t in parts.items()}
