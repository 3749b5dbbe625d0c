"""The losses of the baselines against slow, obvious versions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fastfill.lab.baselines.bct import BCT, influence, pseudo_classifier
from fastfill.lab.baselines.ract import RACT, ract
from fastfill.lab.objectives import ArcFace, CrossEntropy, SimCLR, contrast


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    """New features, old features and labels of twelve items."""
    generator = torch.Generator().manual_seed(3)
    new, old = torch.rand((2, 12, 5), generator=generator, dtype=torch.float64)
    return new, old, torch.arange(12) % 4


def smooth_cross_entropy(logits: Tensor, label: int, smoothing: float) -> float:
    """−Σ_k q_k log p_k, q = 1 − ε on the label plus ε spread over all classes."""
    exps = [math.exp(float(value)) for value in logits]
    logs = [math.log(value / sum(exps)) for value in exps]
    return -(1 - smoothing) * logs[label] - smoothing * sum(logs) / len(logs)


def test_influence_is_the_cross_entropy_of_the_old_classifier(
    batch: tuple[Tensor, Tensor, Tensor],
) -> None:
    """The influence loss equals the obvious sum over items of smoothed cross-entropies."""
    new, _, labels = batch
    head = torch.randn(4, 5, dtype=torch.float64)
    rows = [smooth_cross_entropy(head @ x, int(y), 0.1) for x, y in zip(new, labels, strict=True)]
    assert float(influence(new, head, labels, 0.1)) == pytest.approx(sum(rows) / len(rows))


def test_bct_adds_the_influence_to_the_new_models_loss(
    batch: tuple[Tensor, Tensor, Tensor],
) -> None:
    """BCT's loss is the sum of the two cross-entropies, and only the new head is trained."""
    new, _, labels = batch
    head = torch.randn(4, 5)
    objective = BCT(4, head)
    own = CrossEntropy(4, 5)
    own.classifier = objective.classifier
    rows = torch.arange(12)
    expected = own(new.float(), labels, rows) + influence(new.float(), head, labels, 0.1)
    torch.testing.assert_close(objective(new.float(), labels, rows), expected)
    assert [p.shape for p in objective.parameters()] == [(4, 5)]


def test_pseudo_classifier_keeps_trained_rows_and_makes_the_rest_from_means(
    batch: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Trained rows stay; another class's row points from the overall mean to its own mean."""
    _, old, labels = batch
    old = old.float()
    head = torch.randn(2, 5)
    rows = pseudo_classifier(head, torch.tensor([0, 2]), old, labels)
    assert torch.equal(rows[[0, 2]], head)
    length = float(head.norm(dim=1).mean())
    for label in (1, 3):
        mean = torch.stack([x for x, y in zip(old, labels, strict=True) if y == label]).mean(0)
        direction = mean - old.mean(0)
        torch.testing.assert_close(rows[label], direction / direction.norm() * length)


def slow_ract(new: Tensor, old: Tensor, labels: Tensor, temperature: float) -> float:
    """The softmax written out item by item."""
    total = 0.0
    unit = [[x / x.norm() for x in side] for side in (new, old)]
    for i, n in enumerate(unit[0]):
        positive = math.exp(float(n @ unit[1][i]) / temperature)
        negatives = sum(
            math.exp(float(n @ unit[1][j]) / temperature)
            + math.exp(float(n @ unit[0][j]) / temperature)
            for j in range(len(labels))
            if labels[j] != labels[i]
        )
        total -= math.log(positive / (positive + negatives))
    return total / len(labels)


@pytest.mark.parametrize("temperature", [0.5, 0.1])
def test_ract_equals_the_softmax_written_out(
    batch: tuple[Tensor, Tensor, Tensor], temperature: float
) -> None:
    """Positives are own old features; negatives are old and new features of other labels only."""
    new, old, labels = batch
    expected = slow_ract(new, old, labels, temperature)
    assert float(ract(new, old, labels, temperature)) == pytest.approx(expected)


def test_ract_looks_up_the_old_features_of_its_rows(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """A batch of some rows is contrasted with the old features of just these rows."""
    new, old, labels = (x.float() if x.is_floating_point() else x for x in batch)
    own = CrossEntropy(4, 5)
    objective = RACT(own, old)
    rows = torch.tensor([7, 2, 9, 4])
    expected = own(new[:4], labels[rows], rows) + ract(new[:4], old[rows], labels[rows], 0.5)
    torch.testing.assert_close(objective(new[:4], labels[rows], rows), expected)


def test_contrast_equals_the_softmax_written_out(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """NT-Xent: the other view of the same image against all other views."""
    views, _, _ = batch
    unit = [x / x.norm() for x in views]
    total = 0.0
    for i, z in enumerate(unit):
        exps = [math.exp(float(z @ other) / 0.5) for other in unit]
        total -= math.log(exps[(i + 6) % 12] / (sum(exps) - exps[i]))
    assert float(contrast(views, 0.5)) == pytest.approx(total / 12)


def test_objectives_offer_the_classifier_they_train() -> None:
    """All but SimCLR have a head of one row per class; RACT that of the loss it stands on."""
    own = ArcFace(4, 5)
    for objective in (CrossEntropy(4, 5), own, RACT(own, torch.rand(9, 5))):
        assert objective.head is not None
        assert objective.head.shape == (4, 5)
    assert SimCLR(5).head is None


def test_arcface_ignores_lengths(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Only directions matter to ArcFace: longer features give the same loss."""
    new, _, labels = batch
    objective = ArcFace(4, 5)
    rows = torch.arange(12)
    one, two = (objective(new.float() * k, labels, rows) for k in (1, 7))
    torch.testing.assert_close(one, two)
