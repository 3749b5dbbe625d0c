"""Train a backbone for an objective: bf16, channels last, one CUDA graph a step; float32 on a CPU.

The images stay on the device as uint8 and a step is a single graph: it draws the augmentation,
runs the network forwards and backwards, and updates the weights. The host only launches graphs;
it looks at the loss once per epoch. Random numbers are seeded afresh at every epoch, so that a run
that goes on from a checkpoint equals one that was never interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fastfill.errors import TrainingError
from fastfill.features import Ints
from fastfill.lab.backbones import Backbone
from fastfill.lab.checkpoints import Checkpoint
from fastfill.lab.clock import OutOfTimeError
from fastfill.lab.data.augment import AUGMENTATIONS, moments, network_input
from fastfill.lab.data.image_sets import Pixels
from fastfill.lab.objectives import Objective
from fastfill.lab.recipes import Recipe

Report = Callable[[int, int, float, float], None]  # epoch, epochs, loss, images per second


@dataclass(frozen=True, eq=False)
class Feed:
    """Images on the device with what normalises them: built once, used by many runs."""

    pixels: Tensor  # (N, h, w, c) uint8
    mean: Tensor  # (c,)
    std: Tensor

    @classmethod
    def to_device(cls, pixels: Pixels, device: torch.device, rows: Ints | None = None) -> Feed:
        """Copy the images, or some rows, to the device in blocks; a mapped file is read once."""
        count = len(pixels) if rows is None else len(rows)
        resident = torch.empty((count, *pixels.shape[1:]), dtype=torch.uint8, device=device)
        for start in range(0, count, 16_384):
            wanted = slice(start, start + 16_384)
            block = np.array(pixels[wanted if rows is None else rows[wanted]])
            resident[start : start + len(block)] = torch.from_numpy(block).to(device)
        return cls(resident, *moments(resident))


@dataclass(frozen=True)
class Trained:
    """How a run went."""

    loss: float
    images_per_s: float
    seconds: float


def device_of(name: str | None) -> torch.device:
    """The device of that name; CUDA where there is one when no name is given."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def device_name(device: torch.device) -> str:
    """The device as results name it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _type(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def train(
    backbone: Backbone,
    objective: Objective,
    feed: Feed,
    rows: Ints,
    labels: Ints,
    recipe: Recipe,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    until: float | None = None,
    report: Report | None = None,
) -> Trained:
    """Train in place on the images `rows` (n,) of the feed with class numbers `labels` (n,).

    With a checkpoint file the run goes on from it, and leaves one when the clock
    (`time.monotonic`) passes `until` (`OutOfTimeError`) or on Ctrl-C.
    """
    step = _Step(backbone, objective, feed, rows, labels, recipe)
    keeper = Checkpoint(checkpoint, step.tensors())
    first = keeper.load()
    step.prepare()
    start, done, loss = time.monotonic(), first, float("nan")
    try:
        for epoch in range(first, recipe.epochs):
            if until is not None and time.monotonic() > until:
                raise OutOfTimeError(
                    f"Stopped after {done} of {recipe.epochs} epochs: time is over."
                )
            loss = step.epoch(epoch, seed)
            done = epoch + 1
            rate = (done - first) * step.images / max(time.monotonic() - start, 1e-9)
            if report is not None:
                report(done, recipe.epochs, loss, rate)
    except (OutOfTimeError, KeyboardInterrupt):
        keeper.save(done)
        raise
    keeper.remove()
    seconds = time.monotonic() - start
    return Trained(loss, (done - first) * step.images / max(seconds, 1e-9), seconds)


class _Step:
    """One optimisation step; on CUDA captured once as a graph and replayed."""

    def __init__(
        self, backbone: Backbone, objective: Objective, feed: Feed, rows: Ints, labels: Ints,
        recipe: Recipe,
    ) -> None:  # fmt: skip
        self.device = feed.pixels.device
        self.backbone = backbone.to(self.device).train()
        self.objective = objective.to(self.device).train()
        self.feed, self.recipe = feed, recipe
        self.rows = torch.as_tensor(rows, device=self.device)
        self.labels = torch.as_tensor(labels, device=self.device)
        self.batch = min(recipe.batch, len(rows))
        self.steps = len(rows) // self.batch  # what does not fill a batch waits for another epoch
        self.images = self.steps * self.batch * objective.views
        self.augment = AUGMENTATIONS[recipe.augment]
        self.at = torch.zeros(self.batch, dtype=torch.int64, device=self.device)
        self.lr = torch.zeros((), device=self.device)
        self.loss = torch.zeros((), device=self.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.optimiser = _sgd(backbone, objective, recipe, self.lr)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a run changes: weights, running moments, momentum."""
        named = {f"backbone.{k}": v for k, v in self.backbone.state_dict().items()}
        named |= {f"objective.{k}": v for k, v in self.objective.state_dict().items()}
        for number, parameter in enumerate(self._parameters()):
            state = self.optimiser.state[parameter]
            state.setdefault("momentum_buffer", torch.zeros_like(parameter))
            named[f"momentum.{number}"] = state["momentum_buffer"]
        return named

    def _parameters(self) -> Iterator[torch.nn.Parameter]:
        for group in self.optimiser.param_groups:
            yield from group["params"]

    def prepare(self) -> None:
        """Capture the step; the steps that warm up the capture leave no trace."""
        if self.device.type != "cuda":
            return
        torch.backends.cudnn.benchmark = True
        before = {name: value.clone() for name, value in self.tensors().items()}
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        self.optimiser.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()
        for name, value in self.tensors().items():
            value.copy_(before[name])
        self.loss.zero_()

    def _step(self) -> None:
        rows = self.rows[self.at]
        dtype = _type(self.device)
        views = [
            network_input(
                self.augment(self.feed.pixels, rows), self.feed.mean, self.feed.std, dtype
            )
            for _ in range(self.objective.views)
        ]
        features = self.backbone(torch.cat(views) if len(views) > 1 else views[0])
        loss = self.objective(features, self.labels[self.at], self.at)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        self.loss += loss.detach()

    def epoch(self, epoch: int, seed: int) -> float:
        """One pass over the rows in a fresh order; the mean loss."""
        torch.manual_seed(seed * 1_000_003 + epoch)  # also CUDA's generator
        order = torch.randperm(len(self.rows), device=self.device)
        rates = torch.tensor(
            [self.recipe.rate(epoch * self.steps + s, self.steps) for s in range(self.steps)],
            device=self.device,
        )
        self.loss.zero_()
        for number in range(self.steps):
            self.at.copy_(order[number * self.batch : (number + 1) * self.batch])
            self.lr.copy_(rates[number])
            if self.graph is None:
                self._step()
            else:
                self.graph.replay()
        loss = float(self.loss) / self.steps
        if not np.isfinite(loss):
            raise TrainingError(
                f"The loss became {loss} in epoch {epoch + 1}. Lower the learning rate "
                f"({self.recipe.lr}) or lengthen the warm-up ({self.recipe.warmup} epochs)."
            )
        return loss


def _sgd(backbone: Backbone, objective: Objective, recipe: Recipe, lr: Tensor) -> torch.optim.SGD:
    """SGD in one fused kernel per step; norms and biases, which are vectors, do not decay."""
    parameters = [*backbone.parameters(), *objective.parameters()]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(
        [group for group in groups if group["params"]], lr=lr, momentum=recipe.momentum,
        nesterov=recipe.nesterov, fused=True,
    )  # fmt: skip
