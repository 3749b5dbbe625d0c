"""`FitOptions`: how a map is learned, checked before anything is done, kept as plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, get_args

from fastfill.align.losses import LOSSES, Discriminative, Reduction
from fastfill.align.methods import METHOD_NAMES
from fastfill.align.penalty import check_share
from fastfill.errors import InputError, unknown_choice
from fastfill.features import check_positive

Report = Callable[[int, int, float], None]  # epoch, epochs, loss

DEVICE = re.compile(r"(cpu|cuda|mps)(:\d+)?")
# Migrations that version 0.1.0 has begun: what is called differently, what is no option of a fit.
RENAMED = {"setback": "penalty"}
KEPT_ELSEWHERE = ("head",)  # with the alignment


@dataclass(frozen=True)
class FitOptions:
    """How a map is learned from pairs: see `Alignment.fit` for what each option means.

    >>> FitOptions(method="ridge").to_json()
    {'method': 'ridge'}
    >>> FitOptions(method="rigde")
    Traceback (most recent call last):
    ...
    fastfill.errors.InputError: Unknown method 'rigde': did you mean 'ridge'? Use one of auto,
    ridge, procrustes, kernel, residual, paper.
    """

    method: str = "auto"
    loss: str | None = None  # None: all that the pairs allow
    seed: int = 0
    penalty: float | None = None  # share of the predicted error; None: as measured to be best
    # What only networks know; None: as the method has it.
    epochs: int | None = None
    batch: int | None = None
    rate: float | None = None
    weight_decay: float | None = None
    reduction: Reduction = "mean"  # of the l2 term over dimensions; the paper writes the sum
    discriminative: Discriminative = "cross-entropy"
    smoothing: float = 0.1
    lam: float = 1.0  # λ of eq. 4 and 5
    diagonal: bool = False  # one σ² per dimension instead of one per item
    pair_distance: bool | None = None  # may σ² use it? None: yes, except where as published
    device: str | None = None  # None: cuda where there is one
    report: Report | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._check_choices()
        if not isinstance(self.seed, int):
            raise InputError(f"seed must be a whole number, got {self.seed!r}.")
        check_share(self.penalty)
        if self.epochs is not None:
            check_positive(self.epochs, "epochs")
        if self.batch is not None and self.batch < 2:  # batch norm needs two
            raise InputError(f"batch must be at least 2, got {self.batch}.")
        for name in ("rate", "lam"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} must be a positive number, got {value}.")
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay must be 0 or more, got {self.weight_decay}.")
        if not 0 <= self.smoothing < 1:
            raise InputError(f"smoothing must be from 0 to below 1, got {self.smoothing}.")

    def _check_choices(self) -> None:
        """Refuse a name that does not exist, and say which do."""
        choices = {
            "method": METHOD_NAMES,
            "loss": LOSSES,
            "reduction": get_args(Reduction),
            "discriminative": get_args(Discriminative),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed and not (name == "loss" and value is None):
                raise InputError(unknown_choice(name, value, allowed))
        if self.device is not None and not DEVICE.fullmatch(self.device):
            raise InputError(f"Unknown device {self.device!r}: use cpu or cuda.")

    def to_json(self) -> dict[str, Any]:
        """As plain values what differs from the defaults, to be kept; without the callback."""
        values = {each.name: (getattr(self, each.name), each.default) for each in _stored()}
        return {name: value for name, (value, default) in values.items() if value != default}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> FitOptions:
        """The inverse of `to_json`; a key or value that means nothing is refused.

        >>> FitOptions.from_json({"method": "kernel", "setback": 0.5})
        FitOptions(method='kernel', loss=None, seed=0, penalty=0.5, ...)
        """
        values = {
            RENAMED.get(key, key): value
            for key, value in plain.items()
            if key not in KEPT_ELSEWHERE
        }
        names = [each.name for each in _stored()]
        for name in values:
            if name not in names:
                raise InputError(unknown_choice("option of a fit", name, names))
        try:
            return cls(**values)
        except TypeError as error:  # a text in the place of a number
            raise InputError(f"The options of a fit cannot be read: {error}.") from None


def _stored() -> list[Field[Any]]:
    """The options that are data."""
    return [each for each in fields(FitOptions) if each.name != "report"]
