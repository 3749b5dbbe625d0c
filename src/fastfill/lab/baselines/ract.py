"""RACT, regression-alleviating compatible training (Zhang et al. 2022).

    L(φ_new, κ_new) + λ·L_ract

For an item, its own old feature is the positive; old features *and* new features of items of
other labels are negatives. The new-to-new part is what alleviates negative flips.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fastfill.lab.objectives import CrossEntropy, Objective


def ract(new: Tensor, old: Tensor, labels: Tensor, temperature: float = 0.5) -> Tensor:
    """Contrast of normalised new (b, d) with old (b, d) features of the same items.

    −log exp(n_i·o_i/τ) / (exp(n_i·o_i/τ) + Σ_{j: y_j≠y_i} [exp(n_i·o_j/τ) + exp(n_i·n_j/τ)])
    """
    new, old = functional.normalize(new), functional.normalize(old)
    same = labels[:, None] == labels[None, :]
    to_old = (new @ old.T / temperature).masked_fill(same, -1e9)  # (b, b)
    to_new = (new @ new.T / temperature).masked_fill(same, -1e9)
    positive = (new * old).sum(1, keepdim=True) / temperature  # (b, 1)
    logits = torch.cat([positive, to_old, to_new], dim=1)
    return (logits.logsumexp(1) - positive[:, 0]).mean()


class RACT(Objective):
    """The new model's own loss plus the contrast with the old features of the training set."""

    def __init__(
        self, own: CrossEntropy, old_features: Tensor, temperature: float = 0.5, weight: float = 1.0
    ) -> None:
        super().__init__()
        self.own, self.temperature, self.weight = own, temperature, weight
        self.old_features: Tensor
        self.register_buffer("old_features", old_features, persistent=False)

    def forward(self, features: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        contrast = ract(features, self.old_features[rows], labels, self.temperature)
        own: Tensor = self.own(features, labels, rows)
        return own + self.weight * contrast

    @property
    def head(self) -> Tensor:
        return self.own.head
