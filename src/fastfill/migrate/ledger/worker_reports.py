"""`WorkerReports`: what each run says of itself now and then, for those who watch from elsewhere.

A run that is killed cannot take its report back. It is told by its age: see `WorkerReport.alive`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from fastfill.gallery import Documents, JsonDocument

SILENT = 60.0  # seconds without a report after which a run is no longer taken to be at work
FORGOTTEN = 3_600.0  # seconds after which the report of a run that died is dropped


@dataclass(frozen=True)
class WorkerReport:
    """How one run went when it last reported."""

    at: float  # seconds of the epoch
    written: int = 0  # rows, by this run
    rate: float = 0.0  # rows per second
    reason: str | None = None  # why it waits
    doing: str | None = None  # what it does, where that is not embedding

    def alive(self, now: float) -> bool:
        """Has it reported lately?"""
        return now - self.at < SILENT


@dataclass(frozen=True)
class WorkerReports(JsonDocument):
    """The latest report of each run, by the name of its process.

    >>> from fastfill.gallery import MemoryStore
    >>> store = MemoryStore({"id": [1], "vector": [[1.0]]})
    >>> WorkerReports.put(store, "ann", WorkerReport(at=100.0, rate=5.0))
    >>> WorkerReports.put(store, "bob", WorkerReport(at=130.0))
    >>> [name for name, report in WorkerReports.of(store).items() if report.alive(now=170.0)]
    ['bob']
    >>> WorkerReports.drop(store, "bob"); [*WorkerReports.of(store)]
    ['ann']
    """

    NAME: ClassVar[str] = "workers"

    reports: Mapping[str, WorkerReport] = field(default_factory=dict)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """The inverse of `to_json`."""
        return cls({who: WorkerReport(**report) for who, report in plain["reports"].items()})

    @classmethod
    def of(cls, documents: Documents) -> dict[str, WorkerReport]:
        """All reports in the store."""
        return dict((cls.load(documents) or cls()).reports)

    @classmethod
    def put(cls, documents: Documents, who: str, report: WorkerReport) -> None:
        """Replace the report of one run; those of runs that died long ago go."""

        def change(latest: WorkerReports | None) -> WorkerReports:
            before = (latest or cls()).reports
            kept = {name: one for name, one in before.items() if report.at - one.at < FORGOTTEN}
            return cls({**kept, who: report})

        cls.change(documents, change)

    @classmethod
    def drop(cls, documents: Documents, who: str) -> None:
        """A run that ends takes its report back."""

        def change(latest: WorkerReports | None) -> WorkerReports:
            before = (latest or cls()).reports
            return cls({name: one for name, one in before.items() if name != who})

        if who in cls.of(documents):
            cls.change(documents, change)
