"""What a study compares: orders of an aligned gallery, or of one that is aligned again and again.

Each is served in some way; `in_each_way` makes candidates of several ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fastfill.align import Aligned, Reference, ServingOption
from fastfill.evaluate.refits import Refits
from fastfill.features import Array, Matrix
from fastfill.order import Order


class _Ordered:
    """What can be told by the name of a policy."""

    policy: str | Order

    @property
    def drawn(self) -> bool:
        """Whether its order is drawn at random, and so differs from seed to seed."""
        return self._bare == "random"

    @property
    def cheats(self) -> bool:
        """Whether its order looks at the new vectors: it shows what there is to win."""
        return self._bare == "oracle"

    @property
    def _bare(self) -> str:
        """The policy without its traffic; an order has none."""
        return self.policy.removeprefix("traffic:") if isinstance(self.policy, str) else ""


@dataclass(frozen=True, eq=False)
class Candidate(_Ordered):
    """One order of one aligned gallery, under the name that tables and legends show."""

    name: str
    aligned: Aligned
    policy: str | Order
    alignment: str = ""  # candidates of the same alignment share its σ²
    head: Matrix | None = None  # (classes, d_new)
    pairs_old: Matrix | None = None  # (m, d_old)
    shown: Array | None = None  # (n,)
    predicts: bool = True  # whether the variance is a prediction, and not a stand-in
    serving: ServingOption = "aligned"
    reference: Reference | None = None  # of the alignment: both models are fused by them

    @property
    def names(self) -> tuple[str, ...]:
        """What its curves are called."""
        return (self.name,)


@dataclass(frozen=True, eq=False)
class RefitCandidate(_Ordered):
    """One order of a gallery whose map is learned again on the way, served in several ways."""

    policy: str
    refits: Refits
    servings: Mapping[str, ServingOption]  # by the names that tables and legends show
    head: Matrix | None = None  # (classes, d_new)
    shown: Array | None = None  # (n,)

    @property
    def names(self) -> tuple[str, ...]:
        """What its curves are called."""
        return tuple(self.servings)


def in_each_way(
    candidates: Sequence[Candidate], servings: Sequence[ServingOption]
) -> list[Candidate]:
    """The candidates, each served in each of these ways.

    >>> import numpy as np
    >>> aligned = Aligned(np.zeros((2, 2)), np.zeros(2))
    >>> orders = [Candidate(name, aligned, name) for name in ("sigma", "random")]
    >>> [one.name for one in in_each_way(orders, ["old", "aligned", "both"])]
    ['old', 'sigma aligned', 'sigma both', 'random aligned', 'random both']
    """
    named = serving_names([one.name for one in candidates], servings)
    return [
        replace(one, name=name, serving=way)
        for one, ways in zip(candidates, named, strict=True)
        for name, way in ways.items()
    ]


def serving_names(
    names: Sequence[str], servings: Sequence[ServingOption]
) -> list[dict[str, ServingOption]]:
    """What the curves of each candidate are called, by candidate, when it is served in these ways.

    The old search does not depend on orders: only the first candidate has it.

    >>> serving_names(["sigma", "random"], ["old", "both"])
    [{'old': 'old', 'sigma': 'both'}, {'random': 'both'}]
    >>> serving_names(["sigma"], ["aligned", "both"])
    [{'aligned': 'aligned', 'both': 'both'}]
    """
    changing = [way for way in servings if way != "old"]
    by_way = len(names) == 1 and len(servings) > 1
    plain = len(changing) == 1
    named: list[dict[str, ServingOption]] = []
    for name in names:
        ways: dict[str, ServingOption] = {}
        if "old" in servings and not named:
            ways["old"] = "old"
        for way in changing:
            ways[way if by_way else name if plain else f"{name} {way}"] = way
        named.append(ways)
    return named
