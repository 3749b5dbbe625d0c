"""What a backbone is trained for: an objective holds the classifier and gives the loss.

Every objective is called with the features of a batch (views·b, d), the class numbers (b,) and the
rows (b,) of the training set that the batch consists of.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastfill.align.losses import arcface


class Objective(nn.Module):
    """A loss with what it needs to be computed; `views` differently augmented copies of a batch."""

    views = 1

    def forward(self, features: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """The loss of a batch, a scalar."""
        raise TypeError(f"{type(self).__name__} is no objective by itself.")

    @property
    def head(self) -> Tensor | None:
        """The bias-free classifier (classes, d), where there is one."""
        return None


class CrossEntropy(Objective):
    """Cross-entropy of a bias-free linear classifier, with label smoothing."""

    def __init__(self, classes: int, dim: int, smoothing: float = 0.1) -> None:
        super().__init__()
        self.classifier = nn.Parameter(torch.empty(classes, dim).normal_(std=dim**-0.5))
        self.smoothing = smoothing

    def forward(self, features: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        logits = features @ self.classifier.T  # (b, classes)
        return functional.cross_entropy(logits, labels, label_smoothing=self.smoothing)

    @property
    def head(self) -> Tensor:
        return self.classifier


class ArcFace(CrossEntropy):
    """ArcFace with the margin and scale of the paper; features are compared by angle."""

    def __init__(self, classes: int, dim: int, margin: float = 0.5, scale: float = 64.0) -> None:
        super().__init__(classes, dim)
        self.margin, self.scale = margin, scale

    def forward(self, features: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        return arcface(features, self.classifier, labels, self.margin, self.scale).mean()


def contrast(views: Tensor, temperature: float = 0.5) -> Tensor:
    """SimCLR's NT-Xent (Chen et al. 2020, eq. 1) for (2·b, d): row i and row i + b are one image.

    −log exp(z_i·z_j/τ) / Σ_{k≠i} exp(z_i·z_k/τ), averaged over all 2·b rows
    """
    z = functional.normalize(views)
    logits = z @ z.T / temperature  # (2b, 2b)
    own = torch.eye(len(z), device=z.device, dtype=torch.bool)
    partner = torch.arange(len(z), device=z.device).roll(len(z) // 2)
    return functional.cross_entropy(logits.masked_fill(own, -1e9), partner)


class SimCLR(Objective):
    """Two views of an image attract each other, behind a projection that is thrown away."""

    views = 2

    def __init__(self, dim: int, temperature: float = 0.5) -> None:
        super().__init__()
        self.projection = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.temperature = temperature

    def forward(self, features: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        return contrast(self.projection(features), self.temperature)
