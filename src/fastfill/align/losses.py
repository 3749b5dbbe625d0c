"""The losses of the paper, one pure function per term. Per item: (n, …) in, (n,) out.

Vectors are in units of the new space's root mean square (see `align.scaling`), except where a
classifier head reads them: it sees the space that it was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fastfill.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Reduction = Literal["mean", "sum"]
Discriminative = Literal["cross-entropy", "arcface", "cosine"]


def l2(h: Tensor, new: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Eq. 3, first term: ‖φ_new(x) − h(φ_old(x))‖², as the mean or the sum over dimensions."""
    squares = (h - new).square()
    return squares.mean(1) if reduction == "mean" else squares.sum(1)


def cross_entropy(h: Tensor, head: Tensor, labels: Tensor, smoothing: float = 0.1) -> Tensor:
    """L_disc for a classifier trained by cross-entropy: −Σ_k q_k log softmax(κ_new h)_k.

    q puts 1 − ε on the label and spreads ε evenly over all classes (label smoothing).
    """
    from torch.nn.functional import cross_entropy as torch_cross_entropy

    logits = h @ head.T  # (n, classes)
    return torch_cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")


def arcface(
    h: Tensor, head: Tensor, labels: Tensor, margin: float = 0.5, scale: float = 64.0
) -> Tensor:
    """L_disc for a classifier trained by ArcFace (Deng et al. 2019).

    −log softmax(s·[cos(θ_y + m), cos θ_j…])_y, θ_j being the angle between h and class row j.
    """
    import math

    import torch
    from torch.nn import functional

    cosine = functional.normalize(h) @ functional.normalize(head).T  # (n, classes)
    limit = 1 - 1e-6  # the derivative of arccos is infinite at ±1
    own = cosine.gather(1, labels[:, None]).clamp(-limit, limit)  # (n, 1)
    theta = torch.acos(own) + margin
    # cos is no longer falling beyond π: go on linearly there, as the authors do
    beyond = own - margin * math.sin(margin)
    shifted = torch.where(theta <= math.pi, torch.cos(theta), beyond)
    logits = scale * cosine.scatter(1, labels[:, None], shifted)
    return functional.cross_entropy(logits, labels, reduction="none")


def cosine(h: Tensor, head: Tensor, labels: Tensor, scale: float = 64.0) -> Tensor:
    """ArcFace without its margin, in units of its scale: −1/s · log softmax(s·cos θ_j)_y.

    The margin asks h for more than the new vectors themselves give, and the scale makes this term
    many times as steep as l2 on the unit sphere, where l2 = 2 − 2·cos.
    """
    return arcface(h, head, labels, margin=0.0, scale=scale) / scale


def uncertain(loss: Tensor, log_variance: Tensor, lam: float = 1.0) -> Tensor:
    """Eq. 4 and 5 with s = log σ²: ½·e^(−s)·L + ½·s/λ, smallest where σ² = λ·L."""
    return 0.5 * ((-log_variance).exp() * loss + log_variance / lam)


def uncertain_diagonal(
    squares: Tensor, disc: Tensor | None, log_variance: Tensor, lam: float = 1.0
) -> Tensor:
    """The footnote's diagonal covariance: one s per dimension; L_disc is weighed by their mean.

    `squares` are the squared errors per dimension and `log_variance` has the same shape (n, d).
    """
    terms = 0.5 * ((-log_variance).exp() * squares + log_variance / lam)
    total = terms.mean(1)
    if disc is None:
        return total
    return total + 0.5 * (-log_variance.mean(1)).exp() * disc


@dataclass(frozen=True)
class LossSpec:
    """Which terms are summed, and whether the error is learned along.

    >>> LossSpec.parse("l2+disc+uncertainty")
    LossSpec(l2=True, disc=True, uncertainty=True)
    """

    l2: bool
    disc: bool
    uncertainty: bool

    @classmethod
    def parse(cls, text: str) -> LossSpec:
        """From the names of the paper's ablation: l2, disc, l2+disc, each with +uncertainty."""
        if text not in LOSSES:
            raise InputError(f"Unknown loss {text!r}: use one of {', '.join(LOSSES)}.")
        terms = text.split("+")
        return cls("l2" in terms, "disc" in terms, "uncertainty" in terms)

    def __str__(self) -> str:
        names = ("l2", "disc", "uncertainty")
        return "+".join(name for name in names if getattr(self, name))


LOSSES = tuple(
    f"{terms}{extra}" for terms in ("l2", "disc", "l2+disc") for extra in ("", "+uncertainty")
)
