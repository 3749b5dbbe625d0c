"""Training the two networks: what a batch is, and what its loss is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fastfill.align import losses
from fastfill.align.methods import ridge_map
from fastfill.align.networks import BOUND, PaperNet, ResidualNet
from fastfill.align.options import FitOptions
from fastfill.align.task import Fitted, Task
from fastfill.align.training import PAPER, Schedule, pick_device, train
from fastfill.align.training_data import ResidentPairs
from fastfill.features import Matrix

WIDTH, DROPOUT = 768, 0.3
SMALL = Schedule(epochs=40, batch=64, rate=1e-3, weight_decay=1e-2, warmup_epochs=1, decoupled=True)
RESIDUAL_ROWS = 1_500_000  # looked at in all epochs together, where there are many pairs


def fit_paper(task: Task) -> Fitted:
    """The FCT network with FastFill's losses; eq. 5 trains map and uncertainty together."""
    device = pick_device(task.options.device)
    torch.manual_seed(task.options.seed)
    side_dim = task.x.shape[1] - task.old_dim
    variances = _variances(task) if task.loss.uncertainty else 0
    net = PaperNet(task.old_dim, task.y.shape[1], side_dim or None, variances).to(device)
    pairs = ResidentPairs(task, device)
    labels, head, y = pairs.labels, pairs.head, pairs.y
    old, side = pairs.old, pairs.side

    def batch_loss(rows: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            h, s = net(old[rows], None if side is None else side[rows])
        return _loss(task, h, s, y[rows], None if labels is None else labels[rows], head).mean()

    facts = train(
        net, batch_loss, len(task), _schedule(task, PAPER), seed=task.options.seed, device=device,
        before_epoch=pairs.show_view, report=task.options.report,
    )  # fmt: skip
    return Fitted(net.layers() | {"bound": _scalar(BOUND)}, facts)


def fit_residual(task: Task) -> Fitted:
    """A ridge map, then a network on what it leaves over, with a detached uncertainty head."""
    device = pick_device(task.options.device)
    torch.manual_seed(task.options.seed)
    base = ridge_map(task)
    mean, std = task.x.mean(0), task.x.std(0) + 1e-6 * np.float32(task.x.std())
    net = ResidualNet(task.x.shape[1], task.y.shape[1], _variances(task), WIDTH, DROPOUT)
    net.to(device)
    pairs = ResidentPairs(task, device)
    labels, head, y = pairs.labels, pairs.head, pairs.y
    on_device = (torch.from_numpy(a).to(device) for a in (mean, std, base.weight, base.bias))
    centre, unit, weight, bias = on_device
    z, base_h = torch.empty_like(pairs.x), torch.empty_like(y)

    def before_epoch(epoch: int) -> None:
        if pairs.show_view(epoch):
            torch.div(pairs.x - centre, unit, out=z)
            torch.addmm(bias, pairs.x, weight, out=base_h)

    def batch_loss(rows: Tensor) -> Tensor:
        h, s = net(z[rows], base_h[rows])
        picked = None if labels is None else labels[rows]
        plain = replace(task, loss=replace(task.loss, uncertainty=False))
        error = _loss(plain, h, None, y[rows], picked, head)
        if task.options.diagonal:
            doubt = losses.uncertain_diagonal((h - y[rows]).detach().square(), None, s)
        else:
            doubt = losses.uncertain(error.detach(), s[:, 0])
        return (error + doubt).mean()

    facts = train(
        net, batch_loss, len(task), _schedule(task, _residual_schedule(len(task))),
        seed=task.options.seed, device=device, before_epoch=before_epoch,
        report=task.options.report,
    )  # fmt: skip
    arrays = _standardising(net.layers(), mean, std)
    arrays["out.bias"] = arrays["out.bias"] + base.bias
    return Fitted(
        {**arrays, "base.weight": base.weight, "bound": _scalar(BOUND)}, facts | base.facts
    )


def _standardising(arrays: dict[str, Matrix], mean: Matrix, std: Matrix) -> dict[str, Matrix]:
    """The layers of a net for inputs as they are: standardisation is folded into the first."""
    first = arrays["hidden.0.weight"] / std[:, None]
    bias = arrays["hidden.0.bias"] - mean @ first
    return {**arrays, "hidden.0.weight": first, "hidden.0.bias": bias}


def _residual_schedule(rows: int) -> Schedule:
    """Many small steps where pairs are few; with more pairs larger batches and fewer epochs."""
    batch = 64 if rows < 2_000 else 128 if rows < 20_000 else 256
    return replace(SMALL, batch=batch, epochs=int(np.clip(RESIDUAL_ROWS // rows, 2, SMALL.epochs)))


def _schedule(task: Task, preset: Schedule) -> Schedule:
    asked = {key: getattr(task.options, key) for key in ("epochs", "batch", "rate", "weight_decay")}
    return replace(preset, **{key: value for key, value in asked.items() if value is not None})


def _variances(task: Task) -> int:
    return task.y.shape[1] if task.options.diagonal else 1


def _loss(
    task: Task,
    h: Tensor,
    s: Tensor | None,
    y: Tensor,
    labels: Tensor | None,
    head: Tensor | None,
) -> Tensor:
    """Eq. 3 or 5, per item, for the terms that the task names."""
    options = task.options
    l2 = losses.l2(h, y, options.reduction) if task.loss.l2 else None
    disc = None
    if task.loss.disc and head is not None and labels is not None:
        disc = _disc(options, h, labels, head)
    if s is not None and options.diagonal and l2 is not None:
        return losses.uncertain_diagonal((h - y).square(), disc, s, options.lam)
    terms = [term for term in (l2, disc) if term is not None]
    total = terms[0] if len(terms) == 1 else terms[0] + terms[1]
    return total if s is None else losses.uncertain(total, s.mean(1), options.lam)


def _disc(options: FitOptions, h: Tensor, labels: Tensor, head: Tensor) -> Tensor:
    """L_disc per item, by the loss that the options name."""
    if options.discriminative == "arcface":
        return losses.arcface(h, head, labels)
    if options.discriminative == "cosine":
        return losses.cosine(h, head, labels)
    return losses.cross_entropy(h, head, labels, options.smoothing)


def _scalar(value: float) -> Matrix:
    return np.array([value], dtype=np.float32)
