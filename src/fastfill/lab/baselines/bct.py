"""BCT, backward-compatible training (Shen et al. 2020): the old classifier judges new features.

    L(φ_new, κ_new) + L(φ_new, κ_old)

The second term, the influence loss, runs the frozen old classifier on the new features, so that
they come to lie where the old model would have put them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fastfill.lab.objectives import CrossEntropy


def influence(features: Tensor, old_classifier: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy of the frozen old classifier (classes, d) on new features (b, d)."""
    return functional.cross_entropy(features @ old_classifier.T, labels, label_smoothing=smoothing)


def pseudo_classifier(
    old_head: Tensor, old_classes: Tensor, old_features: Tensor, labels: Tensor
) -> Tensor:
    """The old classifier with a row for every class: (classes, d).

    A class that the old model was trained on (row i of the head is class `old_classes[i]`) keeps
    its row. Any other gets the mean of its old features, as Shen et al. do; since our classifier
    has no bias, the mean over all items is subtracted first, and the row is given the typical
    length of a trained one.
    """
    count = int(labels.max()) + 1
    sums = torch.zeros((count, old_features.shape[1])).index_add(0, labels, old_features)
    means = sums / torch.bincount(labels, minlength=count).clamp(min=1)[:, None]
    rows: Tensor = functional.normalize(means - old_features.mean(0)) * old_head.norm(dim=1).mean()
    rows[old_classes] = old_head
    return rows


class BCT(CrossEntropy):
    """The new model's own loss plus the influence loss."""

    def __init__(
        self, classes: int, old_classifier: Tensor, smoothing: float = 0.1, weight: float = 1.0
    ) -> None:
        super().__init__(classes, old_classifier.shape[1], smoothing)
        self.weight = weight
        self.old_classifier: Tensor
        self.register_buffer("old_classifier", old_classifier, persistent=False)

    def forward(self, features: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        own = super().forward(features, labels, rows)
        return own + self.weight * influence(features, self.old_classifier, labels, self.smoothing)
