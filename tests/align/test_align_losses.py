"""Each loss against a slow, obvious version of its equation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastfill.align import LOSSES, losses
from fastfill.align.losses import LossSpec
from fastfill.errors import InputError

N, D, CLASSES = 6, 5, 4


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """A few random vectors, a head and labels, in double precision."""
    rng = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    labels = torch.randint(0, CLASSES, (N,), generator=rng)
    return {"h": make(N, D), "new": make(N, D), "head": make(CLASSES, D), "labels": labels,
            "s": make(N), "s_diagonal": make(N, D)}  # fmt: skip


def softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    powers = [math.exp(x - top) for x in logits]
    return [p / sum(powers) for p in powers]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_l2_is_the_squared_distance(batch: dict[str, Any], reduction: Any) -> None:
    """l2 is the squared distance of each item, summed or averaged over its dimensions."""
    found = losses.l2(batch["h"], batch["new"], reduction)
    for i in range(N):
        squares = [(float(batch["h"][i, k]) - float(batch["new"][i, k])) ** 2 for k in range(D)]
        expected = sum(squares) / (D if reduction == "mean" else 1)
        assert float(found[i]) == pytest.approx(expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_cross_entropy_spreads_some_of_the_label(batch: dict[str, Any], smoothing: float) -> None:
    """Cross-entropy is −Σ q log p with 1 − ε on the label and ε spread over all classes."""
    found = losses.cross_entropy(batch["h"], batch["head"], batch["labels"], smoothing)
    h, head = batch["h"].numpy(), batch["head"].numpy()
    for i, label in enumerate(batch["labels"].tolist()):
        p = softmax([float(h[i] @ row) for row in head])
        q = [smoothing / CLASSES + (1 - smoothing) * (k == label) for k in range(CLASSES)]
        assert float(found[i]) == pytest.approx(-sum(q[k] * math.log(p[k]) for k in range(CLASSES)))


def obvious_arcface(h: Any, head: Any, label: int, margin: float, scale: float) -> float:
    cosines = [float(h @ row) / math.sqrt(float(h @ h) * float(row @ row)) for row in head]
    theta = math.acos(max(-1.0, min(1.0, cosines[label]))) + margin
    own = math.cos(theta) if theta <= math.pi else cosines[label] - margin * math.sin(margin)
    logits = [scale * c for c in cosines]
    logits[label] = scale * own
    return -math.log(softmax(logits)[label])


@pytest.mark.parametrize(("margin", "scale"), [(0.5, 64.0), (0.5, 4.0), (0.0, 10.0), (1.2, 4.0)])
def test_arcface_adds_an_angle(batch: dict[str, Any], margin: float, scale: float) -> None:
    """ArcFace adds the margin to the angle between an item and its class, then scales."""
    found = losses.arcface(batch["h"], batch["head"], batch["labels"], margin, scale)
    for i, label in enumerate(batch["labels"].tolist()):
        expected = obvious_arcface(
            batch["h"][i].numpy(), batch["head"].numpy(), label, margin, scale
        )
        assert float(found[i]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_cosine_is_arcface_without_margin(batch: dict[str, Any]) -> None:
    """The cosine term is the cross-entropy of scaled cosines, divided by the scale."""
    found = losses.cosine(batch["h"], batch["head"], batch["labels"], 8.0)
    for i, label in enumerate(batch["labels"].tolist()):
        expected = obvious_arcface(batch["h"][i].numpy(), batch["head"].numpy(), label, 0.0, 8.0)
        assert float(found[i]) == pytest.approx(expected / 8, rel=1e-6, abs=1e-9)


def test_arcface_goes_on_falling_beyond_pi() -> None:
    """Where the angle plus the margin passes π the loss goes on rising with the angle."""
    head = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    angles = torch.linspace(2.0, 3.1, 40, dtype=torch.float64)  # π − 0.5 is 2.64
    h = torch.stack([angles.cos(), -angles.sin()], dim=1)
    labels = torch.zeros(40, dtype=torch.long)
    found = losses.arcface(h, head, labels, 0.5, 8.0)
    expected = [obvious_arcface(row.numpy(), head.numpy(), 0, 0.5, 8.0) for row in h]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    beyond = found[angles > math.pi - 0.5]
    assert (beyond.diff() > 0).all()


@pytest.mark.parametrize("lam", [1.0, 0.25])
def test_uncertain_weighs_the_loss(batch: dict[str, Any], lam: float) -> None:
    """Eq. 4: ½·e^(−s)·L + ½·s/λ, item by item."""
    loss = losses.l2(batch["h"], batch["new"])
    found = losses.uncertain(loss, batch["s"], lam)
    for i in range(N):
        s = float(batch["s"][i])
        assert float(found[i]) == pytest.approx(0.5 * math.exp(-s) * float(loss[i]) + 0.5 * s / lam)


@given(loss=st.floats(0.01, 100.0), lam=st.floats(0.1, 10.0), away=st.floats(0.05, 3.0))
def test_uncertain_is_smallest_at_the_true_error(loss: float, lam: float, away: float) -> None:
    """The best σ² is λ·L: any other log-variance costs more."""
    at = lambda s: float(losses.uncertain(torch.tensor(loss), torch.tensor(s), lam))  # noqa: E731
    best = math.log(lam * loss)
    assert at(best) < at(best + away) + 1e-6
    assert at(best) < at(best - away) + 1e-6


@pytest.mark.parametrize("with_disc", [False, True])
def test_the_diagonal_has_a_variance_per_dimension(batch: dict[str, Any], with_disc: bool) -> None:
    """The footnote's covariance weighs each dimension by its own s, L_disc by their mean."""
    squares = (batch["h"] - batch["new"]).square()
    disc = losses.cross_entropy(batch["h"], batch["head"], batch["labels"]) if with_disc else None
    found = losses.uncertain_diagonal(squares, disc, batch["s_diagonal"], 0.5)
    for i in range(N):
        s = batch["s_diagonal"][i].tolist()
        e2 = squares[i].tolist()
        terms = [0.5 * (math.exp(-s[k]) * e2[k] + s[k] / 0.5) for k in range(D)]
        expected = sum(terms) / D
        if disc is not None:
            expected += 0.5 * math.exp(-sum(s) / D) * float(disc[i])
        assert float(found[i]) == pytest.approx(expected)


def test_one_variance_for_all_dimensions_is_the_simple_case(batch: dict[str, Any]) -> None:
    """With the same s everywhere the diagonal loss equals eq. 4 with the mean l2."""
    squares = (batch["h"] - batch["new"]).square()
    same = batch["s"][:, None].expand(N, D)
    np.testing.assert_allclose(
        losses.uncertain_diagonal(squares, None, same),
        losses.uncertain(losses.l2(batch["h"], batch["new"]), batch["s"]),
    )


def test_gradients_are_finite_in_the_corners() -> None:
    """Gradients are finite at zero error, angles 0 and π, zero vectors and extreme variances."""
    head = torch.eye(3)
    labels = torch.tensor([0, 0, 0, 1])
    h = torch.stack([head[0], -head[0], torch.zeros(3), 1e4 * head[1]]).requires_grad_()
    for name, loss in {
        "l2": losses.l2(h, h.detach()),
        "cross-entropy": losses.cross_entropy(h, head, labels),
        "arcface": losses.arcface(h, head, labels),
        "cosine": losses.cosine(h, head, labels),
    }.items():
        s = torch.tensor([-12.0, 12.0, 0.0, 5.0], requires_grad=True)
        total = losses.uncertain(loss, s).sum()
        for gradient in torch.autograd.grad(total, [h, s], retain_graph=True):
            assert torch.isfinite(gradient).all(), name


def test_losses_are_the_six_of_the_ablation() -> None:
    """The names are the paper's table, and each is read back as it was written."""
    assert LOSSES == (
        "l2", "l2+uncertainty", "disc", "disc+uncertainty", "l2+disc", "l2+disc+uncertainty",
    )  # fmt: skip
    assert [str(LossSpec.parse(name)) for name in LOSSES] == list(LOSSES)


@pytest.mark.parametrize("name", ["", "l1", "disc+l2", "uncertainty", "l2+uncertainty+disc"])
def test_unknown_losses_are_named(name: str) -> None:
    """A loss that is none of the six is refused with the list of those that are."""
    with pytest.raises(InputError, match=r"Unknown loss .*: use one of l2, l2\+uncertainty, disc"):
        LossSpec.parse(name)
