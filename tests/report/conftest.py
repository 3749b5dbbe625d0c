"""Findings with every part, and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import numpy as np
import pytest
from chromium import Chromium
from report_samples import FRACTIONS, curves

from fastfill.align import Aligned
from fastfill.evaluate import Comparison, timeline
from fastfill.features import Features
from fastfill.report import Findings, FlipLines, GroupLines, Series, Setting, Sigma


@pytest.fixture
def findings() -> Findings:
    """Everything that a report can show."""
    lines = {
        name: [
            Series("few", "map", FRACTIONS, 0.2 + 0.1 * FRACTIONS),
            Series("many", "map", FRACTIONS, 0.3 + 0.1 * FRACTIONS),
        ]
        for name in ("sigma", "random")
    }
    won = [Series(name, "cmc@1", FRACTIONS, 0.2 * FRACTIONS) for name in lines]
    lost = [Series(name, "cmc@1", FRACTIONS, 0.1 * FRACTIONS) for name in lines]
    variance = np.random.default_rng(0).gamma(2.0, size=200)
    means = [curve for curve in curves(1) if curve.metric == "map"]
    return Findings(
        "Gallery <1> & co",
        curves(),
        {"cmc@1": {"new/new": 0.7, "old/old": 0.45}, "map": {"new/new": 0.5, "old/old": 0.05}},
        FlipLines(won, lost),
        GroupLines({"map": lines}, [Series(n, "map", FRACTIONS, 0.1 * FRACTIONS) for n in lines],
                   {n: [Series("few", "served", FRACTIONS, FRACTIONS)] for n in lines}),
        {"mine": Sigma(variance, {"l2": variance**2, "disc": np.zeros(200)}, {"l2": 1.0, "disc": 0},
                       np.arange(200))},
        [Comparison("map", "sigma", "random", 0.02, 0.01, 0.03, 0.95, 0.0005)],
        timelines=[timeline(means, old=0.1, items=1, per_item=30, unit="days")],
        command="fastfill curve 'a b' -o out",
        facts={"gallery": "200 items"},
    )  # fmt: skip


@pytest.fixture
def setting() -> Setting:
    """A small gallery of four classes, the old model weaker than the new."""
    rng = np.random.default_rng(1)
    labels = np.arange(48) % 4
    new = (rng.normal(size=(48, 6)) + 2 * np.eye(6)[labels]).astype(np.float32)
    old = (new @ rng.normal(size=(6, 5)) + rng.normal(size=(48, 5))).astype(np.float32)
    groups = np.where(labels == 0, "few", "many")
    return Setting(Features(new), labels, Features(old), groups=groups, points=5, seeds=2)


@pytest.fixture
def aligned(setting: Setting) -> Aligned:
    """The gallery with errors of known size."""
    rng = np.random.default_rng(2)
    error = rng.normal(size=setting.new.vectors.shape) * rng.gamma(1.0, size=(48, 1))
    return Aligned(
        (setting.new.vectors + error).astype(np.float32),
        (error**2).sum(axis=1).astype(np.float32),
    )


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A headless browser, where one is installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on this machine: install it to test the page in a real browser")
    browser = Chromium(program, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()
