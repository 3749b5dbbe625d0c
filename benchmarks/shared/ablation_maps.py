"""Maps that were tried beside the plain kernel map: each changes one that was learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fastfill.align import Aligned, Alignment
from fastfill.align.apply import kernel_values
from fastfill.features import Matrix

Rows = NDArray[np.int64]
Wide = NDArray[np.float64]

MOST = 4_000  # pairs that a change is learned from
SMOOTH = 200  # places in the old space at which the ratio of densities is learned
CLIP = (0.2, 5.0)  # least and greatest weight of a pair
NEIGHBOURS, OTHERS = 5, 20
TEMPERATURE = {"l2": 1.0, "neighbours": 0.2, "contrastive": 0.5}
MARGIN = 0.1  # of the ranking loss, in squared lengths of a new vector
STEPS, RATE = 150, 0.02
NETWORK_STEPS, NETWORK_RATE, HIDDEN = 60, 1e-3, 512


def plain(
    alignment: Alignment, old: Matrix, new: Matrix, rows: Rows, *, device: str | None
) -> Aligned:
    """The map as it is."""
    return alignment(old)


def weighted(
    alignment: Alignment, old: Matrix, new: Matrix, rows: Rows, *, device: str | None
) -> Aligned:
    """The same kernel map, each pair weighted by how many of the items left are like it.

    The ratio of the two densities is learned in closed form (unconstrained least squares on
    Gaussian bumps), so nothing need be known of how the pairs were picked.
    """
    rest = np.setdiff1d(np.arange(len(old)), rows)
    k = kernel_values(alignment.arrays, _inputs(alignment, old[rows])).astype(np.float64)
    kz, lam = _between(alignment), alignment.facts["training"]["lambda"]
    weight = density_ratio(_inputs(alignment, old[rows]), _inputs(alignment, old[rest]))
    y = alignment.scaling.targets(new[rows]) - alignment.arrays["out.bias"]
    gram = (k * weight[:, None]).T @ k + lam * kz
    solved = np.linalg.solve(gram + 1e-6 * np.eye(len(gram)), (k * weight[:, None]).T @ y)
    arrays = alignment.all_arrays() | {"out.weight": solved.astype(np.float32)}
    return Alignment.from_parts(arrays, alignment.document())(old)


def density_ratio(seen: Matrix, left: Matrix) -> Wide:
    """How many of `left` there are for each of `seen`, where it lies; 1 in the mean, clipped."""
    rng = np.random.default_rng(0)
    centres = left[rng.permutation(len(left))[:SMOOTH]].astype(np.float64)
    gamma = 1 / float(np.square(left - left.mean(0)).sum(1).mean())

    def bumps(x: Matrix) -> Wide:
        far = np.square(x).sum(1)[:, None] - 2 * x @ centres.T + np.square(centres).sum(1)
        return np.asarray(np.exp(-gamma * np.maximum(far, 0)))

    a, b = bumps(seen), bumps(left).mean(0)
    solved = np.linalg.solve(a.T @ a / len(a) + 0.01 * np.eye(len(b)), b)
    ratio = np.maximum(a @ solved, 0)
    ratio = np.clip(ratio / max(ratio.mean(), 1e-12), *CLIP)
    return np.asarray(ratio / ratio.mean())


def reweighted(
    alignment: Alignment, old: Matrix, new: Matrix, rows: Rows, *, loss: str,
    device: str | None, network: bool = False,
) -> Aligned:  # fmt: skip
    """h changed by what a loss says about pairs as they were predicted without themselves.

    Either one scale for each principal direction of the new space, or a network of two layers.
    """
    held = np.random.default_rng(0).permutation(len(rows))[:MOST]
    h, y = left_out(alignment, old[rows], new[rows])[held], new[rows][held]
    change = learn_change(h, y, loss, network, device)
    aligned = alignment(old)
    return alignment.penalised(change(aligned.h), aligned.variance)


def left_out(alignment: Alignment, old: Matrix, new: Matrix) -> Matrix:
    """The pairs' vectors, each predicted without itself, in the new model's units."""
    from scipy.linalg import cholesky, solve_triangular

    k = kernel_values(alignment.arrays, _inputs(alignment, old)).astype(np.float64)
    lam = alignment.facts["training"]["lambda"]
    gram = k.T @ k + lam * _between(alignment)
    lower = cholesky(gram + 1e-6 * np.eye(len(gram)), lower=True)
    leverage = np.square(solve_triangular(lower, k.T, lower=True)).sum(0)
    y = alignment.scaling.targets(new)
    residuals = y - (k @ alignment.arrays["out.weight"] + alignment.arrays["out.bias"])
    residuals /= np.maximum(1 - leverage, 1e-6)[:, None]
    return alignment.scaling.outputs((y - residuals).astype(np.float32))


def learn_change(h: Matrix, y: Matrix, loss: str, network: bool, device: str | None) -> Any:
    """A function of vectors, learned so that new queries find what they should among h."""
    torch.manual_seed(0)
    device = device or "cpu"
    unit = float(np.sqrt(np.square(y, dtype=np.float64).sum(1).mean()))
    seen, new = (torch.tensor(part / unit, device=device) for part in (h, y))
    model = (_Network if network else _Scales)(new).to(device)
    rate = NETWORK_RATE if network else RATE
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    judge = _Judge(new, loss)
    for _ in range(NETWORK_STEPS if network else STEPS):
        out = model(seen)
        value = judge(out) + model.penalty()
        optimiser.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    def change(vectors: Matrix) -> Matrix:
        with torch.no_grad():
            changed = model(torch.tensor(vectors / unit, device=device)) * unit
        return np.asarray(changed.cpu().numpy(), dtype=np.float32)

    return change


class _Scales(torch.nn.Module):
    """One factor along each principal direction of the new vectors."""

    def __init__(self, new: torch.Tensor) -> None:
        super().__init__()
        self.axes = torch.linalg.eigh(new.T @ new)[1]
        self.logs = torch.nn.Parameter(torch.zeros(new.shape[1], device=new.device))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return _same_length((h @ self.axes * self.logs.exp()) @ self.axes.T, h)

    def penalty(self) -> torch.Tensor:
        return 1e-3 * self.logs.square().sum()


class _Network(torch.nn.Module):
    """h and what two layers add to it, at first nothing."""

    def __init__(self, new: torch.Tensor) -> None:
        super().__init__()
        d = new.shape[1]
        self.first, self.second = torch.nn.Linear(d, HIDDEN), torch.nn.Linear(HIDDEN, d)
        torch.nn.init.zeros_(self.second.weight)
        torch.nn.init.zeros_(self.second.bias)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        inner = functional.gelu(self.first(h * h.shape[1] ** 0.5))
        return _same_length(h + self.second(inner), h)

    def penalty(self) -> torch.Tensor:
        return 1e-2 * self.second.weight.square().sum()


class _Judge:
    """The loss of aligned vectors that are searched by their own new vectors."""

    def __init__(self, new: torch.Tensor, loss: str) -> None:
        self.new, self.loss, self.temperature = new, loss, TEMPERATURE.get(loss, 1.0)
        self.own = torch.eye(len(new), dtype=torch.bool, device=new.device)
        self.far = (torch.cdist(new, new) ** 2).masked_fill_(self.own, torch.inf)
        self.near, self.nearest = self.far.topk(NEIGHBOURS, largest=False)
        self.chance = torch.softmax(-self.far / self.temperature, 1)

    def __call__(self, h: torch.Tensor) -> torch.Tensor:
        if self.loss == "l2":
            return (h - self.new).square().sum(1).mean()
        distances = torch.cdist(self.new, h) ** 2
        if self.loss == "contrastive":
            own = torch.arange(len(h), device=h.device)
            return functional.cross_entropy(-distances / self.temperature, own)
        if self.loss == "neighbours":
            logs = (-distances / self.temperature).masked_fill(self.own, -1e9).log_softmax(1)
            return -(self.chance * logs).sum(1).mean()
        other = torch.randint(0, len(h), (len(h), OTHERS), device=h.device)
        farther = self.far.gather(1, other) > self.near[:, -1:]
        gap = distances.gather(1, self.nearest)[:, :, None] - distances.gather(1, other)[:, None]
        return ((MARGIN + gap).clamp_min(0) * farther[:, None]).mean()


def _same_length(vectors: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    length: torch.Tensor = like.norm(dim=1, keepdim=True) / vectors.norm(dim=1, keepdim=True)
    return vectors * length


def _inputs(alignment: Alignment, old: Matrix) -> Matrix:
    return alignment.scaling.inputs(old, None)


def _between(alignment: Alignment) -> Wide:
    """The kernel among the landmarks."""
    landmarks = alignment.arrays["landmarks"][:-2]
    gamma = alignment.facts["training"]["gamma"]
    z = landmarks.T / (2 * gamma) + alignment.arrays["x.mean"]
    return kernel_values(alignment.arrays, z.astype(np.float32)).astype(np.float64)
