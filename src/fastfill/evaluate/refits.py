"""How the map of a backfill is learned, and learned again from all pairs so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fastfill.align import Aligned, FitOptions, Reference, fit_alignment
from fastfill.features import Distance, Features, Ints, Matrix, Pairs


@dataclass(frozen=True, eq=False)
class LearnedMap:
    """The whole gallery aligned, and some pairs as a map that has not seen them aligns them."""

    aligned: Aligned
    reference: Reference | None = None  # None: it cannot serve together with the old model


ASK_AGAIN = 2  # `auto` is slow: it is asked again when there are so many times the pairs

Learn = Callable[[Ints], LearnedMap | Aligned]  # from the rows that are pairs so far


@dataclass(frozen=True, eq=False)
class Refits:
    """From how many random rows the first map is learned, and how it goes on."""

    pairs: int
    fit: FitOptions | None = None  # `auto` is asked again when the pairs have doubled
    again: bool = True  # False: the first map stays
    learn: Learn | None = None  # instead of what `fit` says


def map_learner(old: Matrix, new: Matrix, distance: Distance, fit: FitOptions, drawn: int) -> Learn:
    """Learns maps of one gallery from some of its rows, the first `drawn` of them random ones."""
    chosen, asked = fit.method, 0  # what `auto` chose, and on how many pairs

    def learn(rows: Ints) -> LearnedMap:
        nonlocal chosen, asked
        random = np.arange(len(rows)) < drawn
        pairs = Pairs(Features(old[rows]), Features(new[rows]), drawn=random)
        again = len(rows) >= ASK_AGAIN * asked
        options = fit if again else replace(fit, method=chosen)
        alignment = fit_alignment(pairs, options, distance=distance)
        chosen, asked = alignment.method, len(rows) if again else asked
        return LearnedMap(alignment(old), alignment.reference)

    return learn
