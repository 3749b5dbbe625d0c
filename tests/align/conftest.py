"""A small real problem: handwritten digits, an old encoder of five classes, a new one of ten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fastfill.align import held_out
from fastfill.features import Features, Pairs, pairwise


@dataclass(frozen=True)
class Upgrade:
    """Digits under both encoders, as pairs to learn from and a gallery to retrieve from."""

    old: np.ndarray  # (1797, 24)
    new: np.ndarray  # (1797, 32)
    head: np.ndarray  # (10, 32), the new encoder's classifier
    labels: np.ndarray
    train: np.ndarray  # row numbers
    test: np.ndarray

    def pairs(self, old_factor: float = 1.0, new_factor: float = 1.0) -> Pairs:
        """The training pairs, each space multiplied by a number."""
        old, new = self.old[self.train] * old_factor, self.new[self.train] * new_factor
        return Pairs(Features(old), Features(new, labels=self.labels[self.train]))

    def retrieval(self, gallery: np.ndarray) -> tuple[float, float]:
        """top-1 and mAP in % of new test queries on this test gallery, the query left out."""
        d = pairwise(self.new[self.test], np.asarray(gallery, dtype=np.float32), "l2")
        np.fill_diagonal(d, np.inf)
        y = self.labels[self.test]
        relevant = y[d.argsort(1)[:, :-1]] == y[:, None]
        precision = relevant.cumsum(1) / np.arange(1, relevant.shape[1] + 1)
        average = (precision * relevant).sum(1) / relevant.sum(1)
        return 100 * float(relevant[:, 0].mean()), 100 * float(average.mean())


def encoder(images: Any, labels: Any, dim: int) -> tuple[Any, Any]:
    """A small network trained as those of the shared data: bias-free head, smoothed labels."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, dim), nn.ReLU())
    head = nn.Linear(dim, int(labels.max()) + 1, bias=False)
    both = nn.Sequential(body, head)
    optimiser = torch.optim.AdamW(both.parameters(), lr=3e-3, weight_decay=0.05)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(20):
        for rows in torch.randperm(len(x)).split(64):
            loss = cross_entropy(both(x[rows]), y[rows], label_smoothing=0.1)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return body, head


@pytest.fixture(scope="session")
def digits() -> Upgrade:
    """The whole problem, made once; tests of it are skipped where there is no torch."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:1000], order[1000:]
    half = train[labels[train] < 5]
    old_body, _ = encoder(images[half], labels[half], 24)
    new_body, new_head = encoder(images[train], labels[train], 32)
    with torch.no_grad():
        old, new = (body(torch.from_numpy(images)).numpy() for body in (old_body, new_body))
        head = new_head.weight.numpy().copy()
    return Upgrade(old, new, head, labels, train, test)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of small width: the same code, sooner."""
    pytest.importorskip("torch", reason="torch is not installed")
    from fastfill.align import training_tasks
    from fastfill.align.networks import PaperNet

    monkeypatch.setattr(training_tasks, "PaperNet", lambda *args: PaperNet(*args, width=256))
    monkeypatch.setattr(training_tasks, "WIDTH", 128)


@pytest.fixture
def one_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some pairs are held out once, as where pairs are many, instead of all in turn."""
    monkeypatch.setattr(held_out, "FOLDS_BELOW", 100)
