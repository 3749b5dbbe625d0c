"""Orders that were tried beside those of `fastfill.order`: from `PolicyInput` to scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Matrix, normalised
from fastfill.order import Policy, PolicyInput

Scores = NDArray[np.float64]

STEP = 0.05  # of the gallery is taken between two chances to learn again
REGIONS = 100
SEEN = 1_000  # of the pairs, at most, that a determinantal order keeps away from


def softened(known: PolicyInput) -> Scores:
    """σ² with Gumbel noise: an item is drawn with a chance in proportion to its σ²."""
    noise = np.random.default_rng(known.seed).gumbel(size=len(known))
    return _positive(np.log(np.maximum(known.aligned.variance, 1e-12)) + noise)


def random_first(known: PolicyInput, share: float, then: Policy) -> Scores:
    """At random until `share` of the gallery is new, then by another policy."""
    assert known.pairs_old is not None
    done = len(known.pairs_old) / (len(known.pairs_old) + len(known))
    drawn = np.random.default_rng(known.seed + 1).random(len(known))
    first = drawn < (share - done) / (1 - done)
    rest = then(known)
    return np.asarray(np.where(first, rest.max() + 1 + drawn, rest))


def strata(known: PolicyInput) -> Scores:
    """The worst item of every region of the old space, then the second worst, and so on."""
    old = _old(known)
    rng = np.random.default_rng(known.seed)
    centres = old[rng.permutation(len(old))[:REGIONS]]
    region = (np.square(centres).sum(1) - 2 * old @ centres.T).argmin(1)
    order = np.lexsort((-known.aligned.variance, region))
    first = np.searchsorted(region[order], region[order])
    turn = np.empty(len(old))
    turn[order] = np.arange(len(old)) - first  # place within the region
    return _positive(-turn + 0.5 * _ranks(known.aligned.variance))


def determinantal(known: PolicyInput) -> Scores:
    """The greedy most likely set of a determinantal point process, as many as one step takes.

    The kernel is σ_i·k(x_i, x_j)·σ_j, given the pairs: an item is chosen for its error, and for
    lying away from the pairs and from what has been chosen. The others follow by σ².
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert known.pairs_old is not None
    old, pairs = _old(known), known.pairs_old
    if known.distance == "cosine":
        pairs = normalised(pairs, "pairs")
    pairs = pairs[np.random.default_rng(known.seed).permutation(len(pairs))[:SEEN]]
    gamma = 1 / float(np.square(old - old.mean(0)).sum(1).mean())
    x, z = (torch.tensor(part, device=device) for part in (old, pairs))
    sigma = torch.tensor(np.sqrt(known.aligned.variance), device=device, dtype=torch.float32)

    def k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.exp(-gamma * torch.cdist(a, b) ** 2)

    lower = torch.linalg.cholesky(k(z, z) + 1e-3 * torch.eye(len(z), device=device))
    seen = torch.linalg.solve_triangular(lower, k(z, x), upper=False)  # (pairs, n)
    left = (1 - (seen * seen).sum(0)).clamp_min(0) * sigma**2
    wanted = min(round(STEP * (len(old) + len(known.pairs_old))), len(old))
    rows = torch.zeros(wanted, len(old), device=device)
    chosen: list[int] = []
    for t in range(wanted):
        j = int(left.argmax())
        column = (k(x, x[j : j + 1])[:, 0] - seen.T @ seen[:, j]) * sigma * sigma[j]
        column -= rows[:t].T @ rows[:t, j]
        rows[t] = column / left[j].clamp_min(1e-9).sqrt()
        left = (left - rows[t] ** 2).clamp_min(0)
        left[j] = -1.0
        left[torch.tensor(chosen, dtype=torch.long, device=device)] = -1.0
        chosen.append(j)
    scores = _ranks(known.aligned.variance)
    scores[chosen] = 2 + np.arange(len(chosen), 0, -1)
    return scores


def _old(known: PolicyInput) -> Matrix:
    assert known.old is not None
    return normalised(known.old, "old") if known.distance == "cosine" else known.old


def _ranks(values: NDArray[np.float32]) -> Scores:
    """From 0 for the smallest to nearly 1."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values)) / len(values)
    return ranks


def _positive(scores: Scores) -> Scores:
    return np.asarray(scores - scores.min())
