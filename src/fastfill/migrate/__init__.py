"""The job: state machine, batches, leases, throttle, progress, verify."""

from fastfill.migrate.backfill import Limits
from fastfill.migrate.encoding import Encode, Encoder
from fastfill.migrate.health import Balance, IndexHealth
from fastfill.migrate.hooks import EVENTS, hook
from fastfill.migrate.leases import Leases
from fastfill.migrate.migration import DEFAULT_PAIRS, Migration, Status
from fastfill.migrate.plan import Plan
from fastfill.migrate.progress import Progress, duration
from fastfill.migrate.settle import Settling
from fastfill.migrate.throttle import Reason, Signals, parse_hours, throttle
from fastfill.migrate.verify import Verification

__all__ = [
    "DEFAULT_PAIRS",
    "EVENTS",
    "Balance",
    "Encode",
    "Encoder",
    "IndexHealth",
    "Leases",
    "Limits",
    "Migration",
    "Plan",
    "Progress",
    "Reason",
    "Settling",
    "Signals",
    "Status",
    "Verification",
    "duration",
    "hook",
    "parse_hours",
    "throttle",
]
