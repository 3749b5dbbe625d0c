"""One training loop for every network, on CPU and on CUDA.

On CUDA the data are resident, and one CUDA graph holds a whole step: taking the batch, forward,
backward, the optimiser and the learning rate. The host only replays it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fastfill.align.options import Report
from fastfill.errors import InputError, TrainingError

SMALL_STEP = 500_000_000  # multiplications of a forward pass

BatchLoss = Callable[[Tensor], Tensor]  # row numbers of a batch → its mean loss


@dataclass(frozen=True)
class Schedule:
    """How long, how fast and in what portions to train."""

    epochs: int
    batch: int
    rate: float
    weight_decay: float
    warmup_epochs: float
    freeze_norm: bool = False  # batch norm keeps its statistics for the second half
    decoupled: bool = False  # AdamW instead of Adam with an L2 penalty
    clip: float = 1.0  # longest gradient: when batch norm is frozen, longer ones wreck the map

    def rates(self, steps: int) -> list[float]:
        """Learning rate of every step: linear warm-up, then half a cosine down to 0."""
        warm = min(self.warmup_epochs / max(self.epochs, 1), 0.5) * steps
        rates = []
        for step in range(steps):
            if step < warm:
                rates.append(self.rate * (step + 1) / math.ceil(warm))
            else:
                done = (step - warm) / max(steps - warm, 1)
                rates.append(self.rate * 0.5 * (1 + math.cos(math.pi * done)))
        return rates


PAPER = Schedule(
    epochs=80, batch=1024, rate=5e-4, weight_decay=2**-15, warmup_epochs=5, freeze_norm=True
)


def pick_device(name: str | None) -> torch.device:
    """`cuda` where there is one, else `cpu`; or the one asked for, if it is there."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("No CUDA device is available here: use --device cpu.")
    return device


def train(
    net: nn.Module,
    batch_loss: BatchLoss,
    rows: int,
    schedule: Schedule,
    *,
    seed: int,
    device: torch.device,
    before_epoch: Callable[[int], object] | None = None,
    report: Report | None = None,
) -> dict[str, Any]:
    """Train `net` in place; the facts (steps, seconds, final loss) are returned.

    `before_epoch` may change the data that `batch_loss` reads, in place: a CUDA graph goes on
    reading where it did when it was captured.
    """
    batch = min(schedule.batch, rows)
    steps = rows // batch
    generator = torch.Generator(device=device).manual_seed(seed)
    rates = schedule.rates(steps * schedule.epochs)
    loop = _GraphSteps if device.type == "cuda" else _EagerSteps
    runner = loop(net, batch_loss, schedule, rates, batch, steps)
    began = time.perf_counter()
    loss = math.nan
    with one_thread(_is_small(net, batch, device)):
        for epoch in range(schedule.epochs):
            if before_epoch is not None:
                before_epoch(epoch)
            net.train()
            if schedule.freeze_norm and epoch >= schedule.epochs // 2:
                _freeze_norms(net)
            order = torch.randperm(rows, generator=generator, device=device)[: steps * batch]
            loss = runner.epoch(order.view(steps, batch))
            if not math.isfinite(loss):
                raise TrainingError(
                    f"The loss became {loss} in epoch {epoch + 1} of {schedule.epochs}. Lower the "
                    "learning rate, or look for outliers among the vectors."
                )
            if report is not None:
                report(epoch + 1, schedule.epochs, loss)
    net.eval()
    return {
        "epochs": schedule.epochs,
        "steps": steps * schedule.epochs,
        "seconds": round(time.perf_counter() - began, 2),
        "loss": loss,
        "device": device.type,
    }


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """One thread for small steps on a CPU: several would mostly wait for each other."""
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_small(net: nn.Module, batch: int, device: torch.device) -> bool:
    products = batch * sum(p.numel() for p in net.parameters())
    return device.type == "cpu" and products < SMALL_STEP


def _freeze_norms(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()


def _optimiser(net: nn.Module, schedule: Schedule, rate: float | Tensor) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if schedule.decoupled else torch.optim.Adam
    cuda = next(net.parameters()).is_cuda
    return kind(
        net.parameters(), lr=rate, weight_decay=schedule.weight_decay, fused=True, capturable=cuda
    )


class _EagerSteps:
    """Steps one after the other, launched by the host."""

    def __init__(
        self,
        net: nn.Module,
        batch_loss: BatchLoss,
        schedule: Schedule,
        rates: list[float],
        batch: int,
        steps: int,
    ) -> None:
        self.net, self.batch_loss, self.clip = net, batch_loss, schedule.clip
        self.rates: Iterator[float] = iter(rates)
        self.optimiser = _optimiser(net, schedule, schedule.rate)

    def epoch(self, batches: Tensor) -> float:
        total = torch.zeros(())
        for rows in batches:
            for group in self.optimiser.param_groups:
                group["lr"] = next(self.rates)
            loss = self.batch_loss(rows)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
            self.optimiser.step()
            total += loss.detach()
        return float(total) / len(batches)


class _GraphSteps:
    """A whole step as one CUDA graph, captured anew when batch norm is frozen."""

    def __init__(
        self,
        net: nn.Module,
        batch_loss: BatchLoss,
        schedule: Schedule,
        rates: list[float],
        batch: int,
        steps: int,
    ) -> None:
        self.net, self.batch_loss, self.clip = net, batch_loss, schedule.clip
        self.batches = torch.zeros(steps, batch, dtype=torch.long, device="cuda")
        self.rates = torch.tensor(rates, device="cuda")
        self.step = torch.zeros(1, dtype=torch.long, device="cuda")  # since the beginning
        self.row = torch.zeros(1, dtype=torch.long, device="cuda")  # within the epoch
        self.rate = torch.tensor(schedule.rate, device="cuda")
        self.total = torch.zeros((), device="cuda")
        self.optimiser = _optimiser(net, schedule, self.rate)
        self.graphs: dict[bool, torch.cuda.CUDAGraph] = {}

    def epoch(self, batches: Tensor) -> float:
        self.batches.copy_(batches)
        self.row.zero_()
        self.total.zero_()
        frozen = not all(m.training for m in self.net.modules())
        if frozen not in self.graphs:
            self.graphs[frozen] = self._capture()
        for _ in range(len(batches)):
            self.graphs[frozen].replay()
        return float(self.total) / len(batches)

    def _one(self) -> None:
        self.rate.copy_(self.rates.index_select(0, self.step)[0])
        loss = self.batch_loss(self.batches.index_select(0, self.row)[0])
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimiser.step()
        self.total += loss.detach()
        self.step += 1
        self.row += 1

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record one step. Warm-up runs change weights, so their effects are undone after."""
        saved = [t.detach().clone() for t in self._state()]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._one()
        torch.cuda.current_stream().wait_stream(side)
        first = not self.graphs
        graph = torch.cuda.CUDAGraph()
        self.optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self._one()
        with torch.no_grad():
            for tensor, value in zip(self._state(), saved, strict=False):
                tensor.copy_(value)
            if first:  # the optimiser had no state before the warm-up: it starts from zero
                for state in self.optimiser.state.values():
                    for value in state.values():
                        value.zero_()
        return graph

    def _state(self) -> list[Tensor]:
        """Everything that a step changes, the optimiser's moments last."""
        moments = [v for s in self.optimiser.state.values() for v in s.values()]
        own = [self.step, self.row, self.total, self.rate]
        return [*self.net.state_dict().values(), *own, *moments]
