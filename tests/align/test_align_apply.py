"""Applying with NumPy equals the torch network, also after saving; linear maps need no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fastfill.align import apply, training_tasks
from fastfill.align.losses import LossSpec
from fastfill.align.methods import METHODS
from fastfill.align.networks import BOUND, PaperNet, bounded
from fastfill.align.options import FitOptions
from fastfill.align.task import Fitted, Task

OLD, NEW, SIDE = 7, 5, 3


def task(loss: str = "l2+uncertainty", side: int = 0, rows: int = 60, **options: Any) -> Task:
    """Random scaled pairs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, OLD + side)).astype(np.float32)
    y = np.tanh(x[:, :NEW] + x[:, -NEW:]).astype(np.float32)
    chosen = {"epochs": 2, "device": "cpu", **options}
    return Task(x, y, OLD, None, None, LossSpec.parse(loss), FitOptions(**chosen))


def lived_in(net: nn.Module) -> nn.Module:
    """A network whose batch norms have statistics, gains and offsets of all sizes."""
    torch.manual_seed(1)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_()
                module.running_var.uniform_(0.1, 4)
                module.weight.uniform_(-2, 2)
                module.bias.normal_()
    return net.eval()


@pytest.mark.parametrize("side", [None, SIDE], ids=["alone", "side"])
@pytest.mark.parametrize("variances", [0, 1, NEW], ids=["no σ", "σ", "diagonal"])
def test_the_papers_network_is_exported_exactly(side: int | None, variances: int) -> None:
    """Folded weights in NumPy give what the network gives in torch, map and log-variance."""
    net = lived_in(PaperNet(OLD, NEW, side, variances, width=64))
    assert isinstance(net, PaperNet)
    x = torch.randn(20, OLD + (side or 0))
    with torch.no_grad():
        h, s = net(x[:, :OLD], x[:, OLD:] if side else None)
    arrays = net.layers() | {"bound": np.float32([BOUND])}
    found, score = apply.paper(arrays, x.numpy())
    np.testing.assert_allclose(found, h, rtol=1e-4, atol=1e-4)
    if s is None:
        assert not score.any()
    else:
        np.testing.assert_allclose(score, s.exp().mean(1).log(), rtol=1e-3, atol=1e-4)


def test_the_papers_network_has_the_papers_shape() -> None:
    """Two branches to 2·d and 2·d_new, a trunk 4·d_new → 2048 → 2048, biases only at the end."""
    net = PaperNet(OLD, NEW, SIDE, 1)
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters() if p.ndim == 2}
    assert list(shapes.values()) == [
        (2 * OLD, OLD), (2 * NEW, 2 * OLD), (2 * SIDE, SIDE), (2 * NEW, 2 * SIDE),
        (2048, 4 * NEW), (2048, 2048), (NEW, 2048), (1, NEW),
    ]  # fmt: skip
    linear_biases = [m.bias is not None for m in net.modules() if isinstance(m, nn.Linear)]
    assert linear_biases == [False] * 6 + [True, True]


def test_log_variance_is_bounded() -> None:
    """Whatever comes in, log σ² stays within ±12, and is almost unchanged near 0."""
    s = bounded(torch.tensor([-1e9, -1.0, 0.0, 0.5, 1e9]))
    np.testing.assert_allclose(s, [-BOUND, -1.0, 0.0, 0.5, BOUND], atol=5e-3)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The networks that were trained since."""
    nets: list[nn.Module] = []
    train = training_tasks.train

    def spy(net: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nets.append(net)
        return train(net, *args, **kwargs)

    monkeypatch.setattr(training_tasks, "train", spy)
    return nets


@pytest.mark.parametrize("side", [0, SIDE])
@pytest.mark.parametrize("diagonal", [False, True])
def test_the_residual_network_is_exported_exactly(
    trained: list[nn.Module], side: int, diagonal: bool
) -> None:
    """Standardisation and the ridge map are folded in: NumPy gives ridge + network."""
    t = task(side=side, diagonal=diagonal)
    fitted = METHODS["residual"].fit(t)
    (net,) = trained
    base = METHODS["ridge"].fit(t).arrays
    z = (t.x - t.x.mean(0)) / (t.x.std(0) + 1e-6 * t.x.std())
    with torch.no_grad():
        h, s = net.eval()(
            torch.from_numpy(z), torch.from_numpy(t.x @ base["out.weight"] + base["out.bias"])
        )
    found, score = apply.residual(fitted.arrays, t.x)
    assert not np.allclose(h, t.x @ base["out.weight"] + base["out.bias"], atol=1e-3)  # it learned
    np.testing.assert_allclose(found, h, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(score, s.exp().mean(1).log(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("side", [0, SIDE])
@pytest.mark.parametrize("loss", ["l2", "l2+uncertainty"])
def test_what_was_trained_is_what_is_applied(
    trained: list[nn.Module], side: int, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After training, batch norms included, the exported map is the network in eval mode."""
    narrow = lambda *args: PaperNet(*args, width=32)  # noqa: E731
    monkeypatch.setattr(training_tasks, "PaperNet", narrow)
    t = task(loss, side=side)
    fitted = METHODS["paper"].fit(t)
    (net,) = trained
    x = torch.from_numpy(t.x)
    with torch.no_grad():
        h, _ = net.eval()(x[:, :OLD], x[:, OLD:] if side else None)
    np.testing.assert_allclose(apply.paper(fitted.arrays, t.x)[0], h, rtol=1e-3, atol=1e-4)


def test_the_residual_starts_as_the_linear_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first step the residual map is the ridge map."""
    monkeypatch.setattr(training_tasks, "train", lambda *args, **kwargs: {})
    t = task()
    fitted: Fitted = METHODS["residual"].fit(t)
    base = METHODS["ridge"].fit(t).arrays
    np.testing.assert_allclose(
        apply.residual(fitted.arrays, t.x)[0], apply.linear(base, t.x)[0], atol=1e-5
    )


BLOCKED = """
import sys
sys.modules["torch"] = None  # any import of torch fails
import numpy as np
from fastfill import Alignment
aligned = Alignment.load(sys.argv[1])(np.load(sys.argv[2]))
np.savez(sys.argv[3], vectors=aligned.vectors, variance=aligned.variance)
"""


@pytest.mark.parametrize("method", METHODS)
def test_maps_are_loaded_and_applied_without_torch(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in which torch cannot be imported loads and applies any saved map."""
    from fastfill import Alignment, Features, Pairs

    narrow = lambda *args: PaperNet(*args, width=32)  # noqa: E731
    monkeypatch.setattr(training_tasks, "PaperNet", narrow)
    t = task()
    options = {"epochs": 1} if method in ("residual", "paper") else {}
    alignment = Alignment.fit(Pairs(Features(t.x), Features(t.y)), method=method, **options)
    alignment.save(tmp_path / "a.safetensors")
    np.save(tmp_path / "old.npy", t.x)
    files = [str(tmp_path / name) for name in ("a.safetensors", "old.npy", "out.npz")]
    subprocess.run(
        [sys.executable, "-c", BLOCKED, *files], check=True, env=environment(), timeout=60
    )
    here = alignment(t.x)
    with np.load(tmp_path / "out.npz") as there:
        np.testing.assert_allclose(there["vectors"], here.vectors, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(there["variance"], here.variance, rtol=1e-5)


def environment() -> dict[str, str]:
    """The environment of this process, finding the package that is under test."""
    import os

    import fastfill

    return {**os.environ, "PYTHONPATH": str(Path(fastfill.__file__).parents[1])}
