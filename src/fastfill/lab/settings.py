"""What a call of the laboratory may choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunSettings:
    """Which data, which seeds, how long to train, and where the cache is."""

    data: str  # NAME or NAME=DIR
    seeds: int = 5
    first_seed: int = 0
    device: str | None = None
    effort: float = 1.0  # share of the recipes' epochs
    map_epochs: int | None = None
    views: int = 20  # of each training image that maps are learned from; 0: fixed features
    minutes: float | None = None  # stop in time, to go on in another call
    without: tuple[str, ...] = ()  # 'bct', 'ract': rows of `main` and `top5` alone
    work: Path = Path(".lab")

    @property
    def seed_numbers(self) -> range:
        """The seeds to run.

        >>> RunSettings("digits", seeds=2, first_seed=3).seed_numbers
        range(3, 5)
        """
        return range(self.first_seed, self.first_seed + self.seeds)


def portable(words: Sequence[str]) -> str:
    """A command as it can be shown to others: absolute paths, which mean nothing there, are DIR.

    >>> portable(["fastfill", "lab", "run", "main", "--data", "cifar100=/home/me/images"])
    'fastfill lab run main --data cifar100=DIR'
    """
    shown = []
    for word in words:
        name, equals, value = word.rpartition("=")
        shown.append(f"{name}{equals}DIR" if Path(value).is_absolute() else word)
    return " ".join(shown)
