"""Curves that the tests of tables, figures and pages share."""

from __future__ import annotations

import numpy as np

from fastfill.evaluate import Curve

FRACTIONS = np.linspace(0, 1, 11)


def curves(seeds: int = 3) -> list[Curve]:
    """Two orders under two metrics; the random one has seeds."""
    found = []
    for metric, start, end in (("cmc@1", 0.5, 0.7), ("map", 0.3, 0.5)):
        rise = end - start
        found.append(Curve(metric, FRACTIONS, start + rise * np.sqrt(FRACTIONS), name="sigma"))
        for seed in range(seeds):
            values = start + rise * FRACTIONS ** (1 + 0.1 * seed)
            found.append(Curve(metric, FRACTIONS, values, name="random"))
    return found
