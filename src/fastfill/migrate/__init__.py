"""The job: state machine, batches, leases, throttle, progress, verify."""

from fastfill.migrate.encoding import Encode, Encoder
from fastfill.migrate.health import Balance, IndexHealth
from fastfill.migrate.hooks import EVENTS, hook
from fastfill.migrate.leases import Leases
from fastfill.migrate.limits import Limits
from fastfill.migrate.migration import DEFAULT_PAIRS, Migration, Status
from fastfill.migrate.outlook import Measured, Outlook
from fastfill.migrate.plan import Plan
from fastfill.migrate.progress import Progress, Quality, duration
from fastfill.migrate.refit import REFIT_EVERY
from fastfill.migrate.settle import Settling
from fastfill.migrate.throttle import Reason, Signals, parse_hours, throttle
from fastfill.migrate.verify import Verification

__all__ = [
    "DEFAULT_PAIRS",
    "EVENTS",
    "REFIT_EVERY",
    "Balance",
    "Encode",
    "Encoder",
    "IndexHealth",
    "Leases",
    "Limits",
    "Measured",
    "Migration",
    "Outlook",
    "Plan",
    "Progress",
    "Quality",
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
