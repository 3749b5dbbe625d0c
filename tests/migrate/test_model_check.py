"""An encoder that is no longer the model of the new rows is noticed before it does harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from migration_world import encode, serving

from fastfill.errors import EncoderBusyError, MigrationError
from fastfill.features import Matrix
from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration
from fastfill.migrate.model_check import ROWS

Make = Callable[..., Migration]


class Drifting:
    """A model of one name that may become another."""

    def __init__(self) -> None:
        self.now: Any = encode
        self.items: list[str] = []

    def __call__(self, texts: Any) -> Matrix:
        self.items += texts
        return np.asarray(self.now(texts), dtype=np.float32)


@pytest.fixture
def model() -> Drifting:
    """As it is at first."""
    return Drifting()


@pytest.fixture
def migration(migrate: Make, model: Drifting) -> Migration:
    """Started by the model as it is at first."""
    begun = migrate(model, encoder_name="drifting")
    begun.start(pairs=60, method="ridge")
    return begun


def reversed_vectors(texts: Any) -> Matrix:
    """Of the same dimensions, and all wrong."""
    return encode(texts)[:, ::-1]


def fill(migration: Migration, **options: Any) -> Any:
    """All that is left, or so many rows."""
    return [*migration.backfill(throttle=False, refit=None, **options)][-1]


def test_a_backfill_by_another_model_is_refused(
    migration: Migration, model: Drifting, store: MemoryStore
) -> None:
    """Nothing is written by it, and with the model restored the work goes on."""
    before = serving(store)
    model.now = reversed_vectors
    with pytest.raises(MigrationError, match=r"8 of 8 new rows .* drifting makes") as refused:
        fill(migration)
    assert "Restore the model" in str(refused.value)
    assert {key: row[1] for key, row in serving(store).items()} == {
        key: row[1] for key, row in before.items()
    }
    model.now = encode
    assert fill(migration).fraction == 1


def test_few_rows_are_embedded_again(migration: Migration, model: Drifting) -> None:
    """Eight, whatever the size of the gallery, before the rows that are wanted."""
    model.items.clear()
    fill(migration, rows=10)
    assert len(model.items) == ROWS + 10


def test_rounding_is_no_other_model(migration: Migration, model: Drifting) -> None:
    """Other hardware, or batches of another size, change the last digits."""
    rng = np.random.default_rng(0)
    model.now = lambda texts: encode(texts) * (1 + 0.003 * rng.normal(size=encode(texts).shape))
    assert fill(migration).fraction == 1
    migration.complete()


def test_edited_rows_are_no_sign_of_another_model(migration: Migration, store: MemoryStore) -> None:
    """What the application has changed since is embedded again, and no reason to refuse."""
    new = [key for key, row in serving(store).items() if row[1] == "new"]
    store.upsert({"id": new, "text": [f"{9_000 + n:05d} edited" for n in range(len(new))]})
    assert fill(migration).fraction == 1


def test_rows_of_another_model_are_not_completed(
    migration: Migration, model: Drifting, store: MemoryStore
) -> None:
    """Rows that a model gone wrong has written are found, unless the encoder is left out."""
    steps = migration.backfill(throttle=False, refit=None, batch=10)
    next(steps)
    model.now = reversed_vectors
    list(steps)
    model.now = encode
    with pytest.raises(MigrationError, match="complete --no-encoder"):
        migration.complete()
    assert migration.status().phase == "started"
    Migration(Gallery(store)).complete()
    assert migration.status().phase == "complete"


def test_the_first_rows_tell_what_the_model_was(migration: Migration, model: Drifting) -> None:
    """A model that went wrong in the middle of a run is no more right for having written most."""
    steps = migration.backfill(throttle=False, refit=None, batch=10, rows=130)
    next(steps)
    model.now = reversed_vectors
    list(steps)
    with pytest.raises(MigrationError, match="new rows that were embedded again"):
        fill(migration)


@pytest.mark.parametrize("error", [OSError("gone"), EncoderBusyError("busy")])
def test_an_end_without_a_check_is_said(migrate: Make, model: Drifting, error: Exception) -> None:
    """Where the encoder cannot be asked any more, a migration can end all the same."""
    told: list[str] = []

    def listen(event: str, details: dict[str, Any]) -> None:
        if event == "unchecked":
            told.append(details["reason"])

    migration = migrate(model, encoder_name="drifting", callback=listen)
    migration.start(pairs=60, method="ridge")
    fill(migration)

    def fail(texts: Any) -> Any:
        raise error

    model.now = fail
    migration.complete()
    assert migration.status().phase == "complete"
    assert len(told) == 1
    assert "No new row was embedded again" in told[0]
