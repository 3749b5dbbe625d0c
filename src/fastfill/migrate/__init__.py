"""The job: verbs of a migration, the work of a backfill, its quality, its documents."""

from fastfill.migrate.doctor import Diagnosis, diagnose
from fastfill.migrate.encoding import Encode, Encoder
from fastfill.migrate.events import EVENTS, Callback, hook
from fastfill.migrate.health import Balance, IndexHealth
from fastfill.migrate.ledger.leases import Leases
from fastfill.migrate.ledger.serving_record import ServingChoice
from fastfill.migrate.ledger.worker_reports import WorkerReport
from fastfill.migrate.migration import Migration
from fastfill.migrate.options import (
    DEFAULT_PAIRS,
    REFIT_EVERY,
    BackfillOptions,
    Prices,
    StartOptions,
    Target,
)
from fastfill.migrate.planning import Plan
from fastfill.migrate.progress import Progress, Quality, duration
from fastfill.migrate.quality.quality_forecast import LEVELS, Measured, QualityForecast
from fastfill.migrate.row_checks import Check
from fastfill.migrate.run.throttle import Reason, Signals, parse_hours, throttle
from fastfill.migrate.serving.query_set import QuerySet
from fastfill.migrate.settling import Settling
from fastfill.migrate.status import Status
from fastfill.migrate.verify import Verification
from fastfill.migrate.waits import Waits

__all__ = [
    "DEFAULT_PAIRS",
    "EVENTS",
    "LEVELS",
    "REFIT_EVERY",
    "BackfillOptions",
    "Balance",
    "Callback",
    "Check",
    "Diagnosis",
    "Encode",
    "Encoder",
    "IndexHealth",
    "Leases",
    "Measured",
    "Migration",
    "Plan",
    "Prices",
    "Progress",
    "Quality",
    "QualityForecast",
    "QuerySet",
    "Reason",
    "ServingChoice",
    "Settling",
    "Signals",
    "StartOptions",
    "Status",
    "Target",
    "Verification",
    "Waits",
    "WorkerReport",
    "diagnose",
    "duration",
    "hook",
    "parse_hours",
    "throttle",
]
