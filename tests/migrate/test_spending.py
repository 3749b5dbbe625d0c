"""A run never spends more than its limit, and says what it has spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from migration_world import encode

from fastfill.errors import InputError, MigrationError
from fastfill.features import Matrix
from fastfill.gallery import MemoryStore
from fastfill.migrate import Migration
from fastfill.migrate.options import Prices
from fastfill.migrate.run.spending import GROWTH, Spending

PRICE = 0.01  # of a thousand tokens; an item has 10 signs
OF_A_ROW = PRICE * 10 / 4 / 1_000
Make = Callable[..., Migration]


class Counting:
    """The new model behind a service that counts tokens by other rules than we guess them."""

    def __init__(self, of_a_sign: float) -> None:
        self.of_a_sign = of_a_sign
        self.tokens_used = 0.0

    def __call__(self, texts: Sequence[Any]) -> Matrix:
        self.tokens_used += self.of_a_sign * sum(len(text) for text in texts)
        return encode(texts)


@pytest.mark.parametrize("prices", [{}, {"price_per_1k_tokens": 0.0}])
def test_a_limit_without_a_price_is_refused(migrate: Make, prices: dict[str, float]) -> None:
    """One sentence names the options that give a price, before anything is embedded."""
    migration = migrate()
    migration.start(pairs=60, method="ridge")
    with pytest.raises(InputError, match=r"needs a price.*--price-per-1k-tokens"):
        [*migration.backfill(cost=0.0001, **prices)]
    assert migration.status().progress.new == 60


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_as_many_rows_as_fit_are_embedded(migrate: Make, rows: int, workers: int) -> None:
    """Workers share one limit, and end with the last row that fits."""
    migration = migrate()
    migration.start(pairs=60, method="ridge")
    limit = (rows + 0.5) * OF_A_ROW
    steps = migration.backfill(cost=limit, price_per_1k_tokens=PRICE, workers=workers)
    last = [*steps][-1]
    assert last.written == rows
    assert last.cost == pytest.approx(rows * OF_A_ROW)


@pytest.mark.parametrize("of_a_sign", [0.01, 0.25, 2.0])
def test_what_a_service_counts_is_learned(migrate: Make, of_a_sign: float) -> None:
    """The first row tells what a sign costs, where the service counts tokens itself."""
    migration = migrate(Counting(of_a_sign))
    migration.start(pairs=60, method="ridge")
    limit = 40.5 * PRICE * 10 * of_a_sign / 1_000
    last = [*migration.backfill(cost=limit, price_per_1k_tokens=PRICE)][-1]
    assert last.written == 40
    assert last.cost <= limit


def test_a_row_that_costs_more_than_the_limit_is_refused(migrate: Make) -> None:
    """Nothing is embedded, and the sentence says what the row would cost."""
    migration = migrate()
    migration.start(pairs=60, method="ridge")
    with pytest.raises(MigrationError, match=r"about 2.5e-05, more than the limit of 1e-05"):
        [*migration.backfill(cost=1e-5, price_per_1k_tokens=PRICE)]
    assert migration.status().progress.new == 60


def test_without_a_limit_everything_is_embedded(store: MemoryStore, migrate: Make) -> None:
    """A price alone only counts."""
    migration = migrate()
    migration.start(pairs=60, method="ridge")
    last = [*migration.backfill(price_per_1k_tokens=PRICE)][-1]
    assert last.cost == pytest.approx(140 * OF_A_ROW)
    assert store.counts()[("new", migration._job.state.model)] == 200


def test_hours_are_counted_with_what_a_row_took() -> None:
    """Rows are not begun for which, at the speed so far, the time does not suffice."""
    now = 0.0
    spending = Spending(Prices(per_hour=3_600.0), limit=10.0, clock=lambda: now)
    assert spending.reserve([1.0] * 100) == 1
    now = 0.5
    spending.spend(1.0, guessed=1.0, rows=1, seconds=0.5)
    assert spending.reserve([1.0] * 100) == GROWTH
    now = 8.5
    spending.spend(16.0, guessed=16.0, rows=16, seconds=8.0)
    assert spending.reserve([1.0] * 100) == 3
    assert spending.cost == pytest.approx(8.5)
