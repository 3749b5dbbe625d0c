"""How the map of a backfill is learned, and learned again from all pairs so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fastfill.align import Aligned, FitOptions, Reference, fit_alignment
from fastfill.features import Distance, Features, Ints, Matrix, Pairs


@dataclass(frozen=True, eq=False)
class LearnedMap:
    """The whole gallery aligned, and some pairs as a map that has not seen them aligns them."""

    aligned: Aligned
    reference: Reference | None = None  # None: it cannot serve together with the old model


Learn = Callable[[Ints], LearnedMap | Aligned]  # from the rows that are pairs so far


@dataclass(frozen=True, eq=False)
class Refits:
    """From how many random rows the first map is learned, and how it goes on."""

    pairs: int
    fit: FitOptions | None = None  # the first choice of a method is kept
    again: bool = True  # False: the first map stays
    learn: Learn | None = None  # instead of what `fit` says


def map_learner(old: Matrix, new: Matrix, distance: Distance, fit: FitOptions) -> Learn:
    """Learns maps of one gallery from some of its rows."""
    options = fit

    def learn(rows: Ints) -> LearnedMap:
        nonlocal options
        pairs = Pairs(Features(old[rows]), Features(new[rows]))
        alignment = fit_alignment(pairs, options, distance=distance)
        options = replace(options, method=alignment.method)
        return LearnedMap(alignment(old), alignment.reference)

    return learn
