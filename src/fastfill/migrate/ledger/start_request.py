"""`StartRequest`: what a start was asked for, kept until it has ended.

A start that was killed goes on by the same command without its options: what is not given then is
as it was asked for the first time. What the state keeps itself (encoder, columns, distance, policy,
layout) is not here, nor are files: those are read and kept soon, and named until they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from fastfill.align import ServingOption
from fastfill.gallery import JsonDocument


@dataclass(frozen=True)
class StartRequest(JsonDocument):
    """None: not asked for.

    >>> first = StartRequest(pairs=100, label="album", given=("--queries FILE",))
    >>> first.updated(StartRequest(pairs=200))
    StartRequest(pairs=200, fit=None, index=None, serving=None, label='album', allow_trigger=False,
    given=('--queries FILE',))
    """

    NAME: ClassVar[str] = "asked"

    pairs: int | None = None
    fit: Mapping[str, Any] | None = None  # options of the fit, as plain values
    index: bool | None = None
    serving: ServingOption | None = None
    label: str | None = None
    allow_trigger: bool = False
    given: tuple[str, ...] = ()  # options whose files or models are not kept yet

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """The inverse of `to_json`."""
        return cls(**{**plain, "given": tuple(plain["given"])})

    def updated(self, later: StartRequest) -> StartRequest:
        """What is asked for now goes before what was asked for then."""
        return StartRequest(
            pairs=self.pairs if later.pairs is None else later.pairs,
            fit=self.fit if later.fit is None else later.fit,
            index=self.index if later.index is None else later.index,
            serving=self.serving if later.serving is None else later.serving,
            label=self.label if later.label is None else later.label,
            allow_trigger=self.allow_trigger or later.allow_trigger,
            given=later.given or self.given,
        )

    def without(self, *names: str) -> StartRequest:
        """These options need not be given again."""
        kept = (option for option in self.given if option.split()[0] not in names)
        return replace(self, given=tuple(kept))
