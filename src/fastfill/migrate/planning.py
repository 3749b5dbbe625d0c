"""Planning: what a migration would do and cost. Changes nothing."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastfill.errors import MigrationError
from fastfill.features import Distance
from fastfill.gallery import LayoutChoice, load_state, where_text
from fastfill.migrate.as_started import check_as_started
from fastfill.migrate.drawing import draw_to_embed
from fastfill.migrate.encoding import check_tells_apart
from fastfill.migrate.ended import check_not_ended
from fastfill.migrate.job import Job
from fastfill.migrate.opening import check_alone, check_ids, check_not_empty
from fastfill.migrate.options import Prices
from fastfill.migrate.progress import duration
from fastfill.migrate.quality.quality_forecast import QualityForecast

MARK_BYTES = 64  # generation, model, variance, priority, fingerprint of a row
TRIED = 32  # items on which the encoder is timed


@dataclass(frozen=True)
class Plan:
    """Rows, dimensions, bytes, cost and time of re-embedding everything."""

    store: str
    rows: int
    old_dim: int
    new_dim: int
    distance: Distance
    added_columns: tuple[str, ...]
    added_bytes: int
    encoder: str
    items_per_second: float
    seconds: float
    tokens: int
    cost: float | None
    forecast: QualityForecast | None = None  # once there are pairs
    where: str = ""  # the part of the rows; empty: all
    layout: str = ""  # where what is added would be kept, and why
    prompts: str = ""  # what the encoder puts before texts, where it tells

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        forecast = None if self.forecast is None else self.forecast.to_json()
        return {**asdict(replace(self, forecast=None)), "forecast": forecast}

    def __str__(self) -> str:
        part = f" where {self.where}" if self.where else ""
        lines = [
            f"{self.store}: {self.rows:,} rows{part}, {self.old_dim} → {self.new_dim} dimensions, "
            f"distance {self.distance}",
            f"adds {', '.join(self.added_columns)}: about {size(self.added_bytes)}",
            *([self.layout] if self.layout else []),
            f"encoder {self.encoder}: {self.items_per_second:,.1f} items/s measured on "
            f"{min(TRIED, self.rows)}; all rows take {duration(self.seconds)}, about "
            f"{self.tokens:,} tokens",
            *([f"the encoder {self.prompts}"] if self.prompts else []),
        ]
        if self.cost is not None:
            lines.append(f"re-embedding everything costs about {self.cost:,.2f}")
        if self.forecast is not None:
            lines.append(str(self.forecast))
        return "\n".join(lines)


@dataclass(frozen=True)
class _Trial:
    """The encoder on a few items."""

    dim: int
    items_per_second: float
    tokens_per_item: float


def make_plan(job: Job, prices: Prices, chosen: LayoutChoice) -> Plan:
    """Look, time the encoder on a few items, and do sums."""
    check_alone(job)
    state = load_state(job.store)
    if state is not None and not job.follows(state):
        check_not_ended(job.store.name, state)
        if job.open:
            check_as_started(job, state)
    job.store.bind(replace(job.store.columns, layout=chosen.layout))
    description = job.store.describe()
    check_not_empty(job)
    if not job.open:
        check_ids(job)
    trial = _try_encoder(job)
    tokens = int(trial.tokens_per_item * description.rows)
    seconds = description.rows / trial.items_per_second
    return Plan(
        store=job.store.name,
        where=where_text(job.store.columns.where),
        rows=description.rows,
        old_dim=description.old_dim,
        new_dim=trial.dim,
        distance=job.gallery.distance,
        added_columns=job.store.added,
        added_bytes=description.rows * (4 * trial.dim + MARK_BYTES),
        encoder=job.encoder_name,
        items_per_second=trial.items_per_second,
        seconds=seconds,
        tokens=tokens,
        cost=prices.cost(tokens, seconds) if prices.known else None,
        layout="" if chosen.only else str(chosen),
        prompts=job.identity.prompts,
    )


def _try_encoder(job: Job) -> _Trial:
    encoder = job.encoder()
    state = job.state if job.open else None
    same = state is not None and not job.identity.differences(state)
    rows = job.store.read(draw_to_embed(job, TRIED, 0, state.model if state and same else None))
    if not len(rows) and job.open:
        _refuse_done(job)
    if not len(rows):
        raise MigrationError(
            f"{job.store.name}: no row has both an old vector and an input in column "
            f"'{job.store.columns.input}'. Name the input column with --input."
        )
    began = time.perf_counter()
    encoded = encoder(rows.ids.tolist(), rows.inputs.tolist())
    speed = len(rows) / max(time.perf_counter() - began, 1e-9)
    if not encoded.good.any():
        raise MigrationError(
            f"The encoder failed on every item: {next(iter(encoded.errors.values()))}"
        )
    check_tells_apart(job.encoder_name, rows.inputs.tolist(), encoded)
    return _Trial(encoder.dim or 0, speed, encoded.tokens / len(rows))


def _refuse_done(job: Job) -> None:
    """Where nothing is left to embed there is nothing to plan, but something to do next."""
    state = job.state
    rows = job.store.counts()
    new, total = rows.get(("new", state.model), 0), sum(rows.values())
    if not new:
        return
    done = "all" if new == total else f"{new:,} of"
    rest = "" if new == total else ", the others have no old vector or no input"
    follows = {"started": "complete" if new == total else "backfill"}.get(state.phase, "status")
    raise MigrationError(
        f"{job.store.name} is {state.phase}: {done} {total:,} rows are new by {state.encoder}{rest}"
        f", so that there is nothing to plan. Next: fastfill {follows}."
    )


def size(count: float) -> str:
    """Bytes for people.

    >>> size(1_600_000_000)
    '1.6 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.3g} {unit}"
        count /= 1_000
    return f"{count:.3g} TB"
