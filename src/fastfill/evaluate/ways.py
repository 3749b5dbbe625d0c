"""`Way`: a way to serve, and for both models how much of the old score they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Fusion, Serving
from fastfill.evaluate.evidence import Evidence, choose_keep

Values = NDArray[np.float64]  # (q,) of the same queries in the same order


class Way(NamedTuple):
    """A way to serve, and for both models the share of the old score, if not the fusion's own."""

    serving: Serving
    keep: float | None = None

    def fused_by(self, fusion: Fusion | None) -> Fusion | None:
        """The fusion with this share."""
        return fusion if self.keep is None or fusion is None else fusion.keeping(self.keep)


def ways_to_judge(keeps: Sequence[float]) -> list[Way]:
    """Every way, both models with each share of the old score."""
    return [Way("old"), Way("aligned"), *(Way("both", keep) for keep in keeps)]


def judged_evidence(metric: str, measured: Mapping[Way, Values]) -> tuple[Evidence, float | None]:
    """Evidence of the three ways, both models with the share that these queries choose; the share.

    None where no share was measured: then both models keep what their fusion says.

    >>> old, better = np.array([0.5, 0.5, 0.5]), np.array([0.6, 0.55, 0.6])
    >>> ways = {Way("old"): old, Way("aligned"): old, Way("both", 0.5): old, Way("both", 2): better}
    >>> judged_evidence("map", ways)
    (Evidence(map of 3 queries: old 0.500, aligned 0.500, both 0.583), 2)
    """
    shares = {way.keep: each for way, each in measured.items() if way.keep is not None}
    keep = choose_keep(shares) if shares else None
    ways: dict[Serving, Way] = {
        "old": Way("old"),
        "aligned": Way("aligned"),
        "both": Way("both", keep),
    }
    return Evidence.of(metric, {serving: measured[way] for serving, way in ways.items()}), keep
