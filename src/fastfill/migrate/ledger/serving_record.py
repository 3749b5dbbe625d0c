"""`ServingRecord`: what each way to serve has measured so far, and what was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fastfill.align import Serving, check_serving
from fastfill.evaluate import Evidence
from fastfill.gallery import Documents, JsonDocument
from fastfill.metrics import as_metric

MOST = 100  # measurements that are kept: the latest
LEAST_ASKED, HARDLY = 100, 1.5  # pairs, and times chance, for an agreement that says something
WORDS: Mapping[Serving, str] = {
    "old": "the old model",
    "aligned": "the new model",
    "both": "both models",
}


@dataclass(frozen=True)
class ServingChoice:
    """One measurement: the evidence, and the way to serve that was chosen by it.

    >>> evidence = Evidence("ndcg@10", 300, {"old": 0.52, "aligned": 0.261, "both": 0.532})
    >>> print(ServingChoice(0.05, "both", evidence))
    serve with: both models (old 52.0, aligned 26.1, both 53.2 nDCG@10 on 300 queries)
    """

    fraction: float  # of the rows that were new
    serving: Serving
    evidence: Evidence | None = None  # None: it was told, or nothing could be measured
    asked: str = "queries"  # what the evidence was measured on
    label: str | None = None  # the column that told which answers are right
    keep: float | None = None  # share of the old score of both models, where it was measured

    @property
    def single(self) -> Serving:
        """The better one of the two models for those who can ask only one."""
        if self.serving != "both" or self.evidence is None:
            return "old" if self.serving == "old" else "aligned"
        values = self.evidence.values
        return "aligned" if values["aligned"] >= values["old"] else "old"

    @property
    def worse_alone(self) -> bool:
        """Did the new model alone measure worse than the old search, by answers that are right?

        >>> ServingChoice(1.0, "old", Evidence("map", 90, {"old": 0.6, "aligned": 0.5})).worse_alone
        True
        """
        if self.evidence is None or as_metric(self.evidence.metric).family == "agreement":
            return False
        return self.evidence.values["aligned"] < self.evidence.values["old"]

    @property
    def by_chance(self) -> bool:
        """Do the models find hardly more of the same neighbours among pairs than chance has it?

        >>> evidence = Evidence("agreement@10", 300, {"old": 0.04, "aligned": 0.1, "both": 0.1})
        >>> ServingChoice(0.1, "both", evidence, asked="pairs").by_chance
        True
        """
        if self.evidence is None or self.asked != "pairs":
            return False
        metric, pairs = as_metric(self.evidence.metric), self.evidence.queries
        if metric.family != "agreement" or pairs < LEAST_ASKED:
            return False
        return self.evidence.values["old"] < HARDLY * metric.k / (pairs - 1)

    def __str__(self) -> str:
        if self.evidence is None:
            return f"serve with: {WORDS[self.serving]} (not measured)"
        return f"serve with: {WORDS[self.serving]} ({self.measured})"

    @property
    def measured(self) -> str:
        """What was measured, in words; empty where nothing was."""
        if self.evidence is None:
            return ""
        values = ", ".join(f"{way} {100 * v:.1f}" for way, v in self.evidence.values.items())
        metric = self.evidence.metric.replace("ndcg", "nDCG").replace("map", "mAP")
        by_label = "" if self.label is None else f", right by their '{self.label}'"
        return f"{values} {metric} on {self.evidence.queries:,} {self.asked}{by_label}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "fraction": self.fraction,
            "serving": self.serving,
            "evidence": None if self.evidence is None else self.evidence.to_json(),
            "asked": self.asked,
            "label": self.label,
            "keep": self.keep,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        evidence = plain["evidence"]
        return cls(
            plain["fraction"],
            check_serving(plain["serving"]),
            None if evidence is None else Evidence.from_json(evidence),
            plain["asked"],
            plain.get("label"),
            plain.get("keep"),
        )


@dataclass(frozen=True)
class ServingRecord(JsonDocument):
    """All choices, the latest last."""

    NAME: ClassVar[str] = "serving"

    choices: Sequence[ServingChoice] = ()

    @property
    def latest(self) -> ServingChoice | None:
        """The choice that serves."""
        return self.choices[-1] if self.choices else None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"choices": [choice.to_json() for choice in self.choices]}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """The inverse of `to_json`."""
        return cls(tuple(ServingChoice.from_json(choice) for choice in plain["choices"]))

    @classmethod
    def add(cls, documents: Documents, choice: ServingChoice) -> ServingRecord:
        """One more choice."""

        def change(before: ServingRecord | None) -> ServingRecord:
            kept = () if before is None else before.choices
            return cls((*kept, choice)[-MOST:])

        return cls.change(documents, change)
