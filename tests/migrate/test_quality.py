"""Quality while a backfill runs: measured, against a forecast, and enough at some point."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfill.align import Alignment
from fastfill.errors import InputError, MigrationError, StoreError
from fastfill.features import Features, Matrix, Pairs
from fastfill.forecast import Forecast
from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Measured, Migration, Progress, QualityForecast, Status
from fastfill.migrate.ledger.sample_rows import SampleRows
from fastfill.migrate.quality import sample

ROWS, CLASSES, OLD, NEW = 400, 8, 6, 8
CENTRES = np.random.default_rng(1).standard_normal((CLASSES, NEW)).astype(np.float32)
VIEW = np.random.default_rng(2).standard_normal((NEW, OLD)).astype(np.float32)
START: dict[str, Any] = {"pairs": 100, "method": "ridge", "policy": "random"}
QUICK: dict[str, Any] = {"throttle": False, "batch": 10, "refit": None}
LABELLED: dict[str, Any] = {"metric": "map", "label": "kind"}


def new_vectors(numbers: Any) -> Matrix:
    """The new model: items lie near the centre of their class."""
    noise = [np.random.default_rng([7, int(n)]).standard_normal(NEW) for n in numbers]
    classes = np.array([int(n) % CLASSES for n in numbers])
    return np.asarray(CENTRES[classes] + 0.5 * np.stack(noise), dtype=np.float32)


def old_vectors(numbers: Any) -> Matrix:
    """The old model sees less, and sees it badly."""
    noise = [np.random.default_rng([8, int(n)]).standard_normal(OLD) for n in numbers]
    return np.asarray(new_vectors(numbers) @ VIEW + 2.5 * np.stack(noise), dtype=np.float32)


@pytest.fixture
def store() -> MemoryStore:
    """Four hundred items of eight kinds, two of which have none."""
    numbers = range(ROWS)
    kinds: list[Any] = [f"kind {n % CLASSES}" for n in numbers]
    kinds[5] = kinds[6] = None
    values = {
        "id": [*numbers],
        "text": [str(n) for n in numbers],
        "kind": kinds,
        "vector": old_vectors(numbers).tolist(),
    }
    return MemoryStore(values, distance="l2")


def started(store: MemoryStore, **options: Any) -> Migration:
    """A migration after its start."""
    migration = Migration(Gallery(store, input="text"), new_vectors, encoder_name="toy")
    migration.start(**{**START, **options})
    return migration


def obvious_map(store: MemoryStore) -> float:
    """Mean average precision of the first pairs in the gallery as it is, one by one."""
    rows = [row for row in store._rows.values() if row.get("vector_new") is not None]
    asked = set(SampleRows.of(store).queries)
    found = []
    for query in rows:
        if query["id"] not in asked or query["kind"] is None:
            continue
        others = [row for row in rows if row is not query]
        distances = [np.linalg.norm(row["vector_new"] - query["vector_new"]) for row in others]
        hits = [others[i]["kind"] == query["kind"] for i in np.argsort(distances)]
        precisions = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        found.append(precisions[np.array(hits)].mean())
    return float(np.mean(found))


def test_quality_is_measured_in_the_gallery_as_it_is(store: MemoryStore) -> None:
    """The metric is that of an obvious count over the vectors that serve now."""
    migration = started(store)
    for rows in (0, 120):
        if rows:
            [*migration.backfill(rows=rows, **QUICK)]
        state = migration._job.state
        seen = sample.read_sample(migration._job, state, "kind")
        assert len(seen.rows) == ROWS
        assert seen.measure("map", state) == pytest.approx(obvious_map(store), abs=1e-5)
        assert seen.fraction == pytest.approx((100 + rows) / ROWS)


def test_a_run_ends_when_quality_is_reached(store: MemoryStore) -> None:
    """`until` stops at the first measurement whose quality is enough, and says so."""
    migration = started(store)
    steps = [*migration.backfill(until=0.8, **LABELLED, **QUICK)]
    last = steps[-1]
    assert last.new < ROWS
    assert last.quality is not None
    assert last.quality.measured
    assert last.quality.value >= 0.8
    assert all(step.quality is None or step.quality.value < 0.8 for step in steps[:-3])
    assert "quality 8" in str(last)
    outcome = migration.history()[-1]["outcome"]
    assert outcome.endswith("in map reached")
    assert [*migration.backfill(until=0.8, **LABELLED, **QUICK)][-1].new == last.new


def test_the_quality_of_a_whole_gallery_is_one(store: MemoryStore) -> None:
    """When every row is new, what is measured counts alone, whatever was forecast."""
    migration = started(store)
    last = [*migration.backfill(until=1.0, **LABELLED, **QUICK)][-1]
    assert last.new == ROWS
    assert last.quality is not None
    assert last.quality.value == pytest.approx(1.0)
    assert last.quality.band == pytest.approx(0.0)


def test_forecast_and_measured_are_kept_in_the_store(store: MemoryStore) -> None:
    """Plan shows what to expect once there are pairs, status what has become of it."""
    migration = started(store)
    said = str(migration.plan(label="kind"))
    assert "map: 95 % of the new model at " in said
    assert "forecast from 100 pairs" in said
    [*migration.backfill(rows=100, **LABELLED, **QUICK)]
    expected = migration.status().forecast
    assert expected is not None
    assert [m.fraction for m in expected.measured] == sorted(m.fraction for m in expected.measured)
    assert expected.measured[-1].value == pytest.approx(obvious_map(store), abs=1e-5)
    assert "measured 0." in str(expected)
    again = QualityForecast.from_json(expected.to_json())
    assert str(again) == str(expected)
    migration.rollback()
    assert store.load("forecast") is None


def test_agreement_is_forecast_and_not_measured(store: MemoryStore) -> None:
    """Without labels the quality is that of the forecast, and reaches much only near the end."""
    migration = started(store)
    last = [*migration.backfill(rows=100, metric="agreement@10", **QUICK)][-1]
    assert last.quality is not None
    assert not last.quality.measured
    assert 0 < last.quality.value < 1
    assert "(forecast)" in str(last.quality)
    at, _ = migration.forecast().reached(0.99)
    assert at > 0.8


def test_an_alignment_of_elsewhere_gets_queries_by_chance(store: MemoryStore) -> None:
    """Where no pairs were embedded, random rows are, before quality is first measured."""
    numbers = range(1_000, 1_200)
    pairs = Pairs(Features(old_vectors(numbers)), Features(new_vectors(numbers)))
    migration = Migration(Gallery(store, input="text"), new_vectors, encoder_name="toy")
    migration.start(alignment=Alignment.fit(pairs, method="ridge", distance="l2"))
    [*migration.backfill(rows=80, **QUICK)]
    last = [*migration.backfill(rows=10, **LABELLED, **QUICK)][-1]
    queries = SampleRows.of(store).queries
    assert last.quality is not None
    assert len(queries) == 50
    assert last.new == 80 + 40 + 10  # a fifth of the rows was new, and so is of the queries


def test_the_sample_of_a_large_gallery_is_a_random_part(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above its size the sample holds new and aligned rows in the gallery's own proportion."""
    monkeypatch.setattr(sample, "MOST_OTHERS", 90)
    migration = started(store)
    [*migration.backfill(rows=100, **QUICK)]
    seen = sample.read_sample(migration._job, migration._job.state, "kind")
    assert len(seen.queries) == 100
    assert len(seen.others) == 90
    assert int(seen.new[seen.others].sum()) == 30  # a third of the other 300 rows is new


def test_rows_that_are_deleted_leave_the_sample(store: MemoryStore) -> None:
    """Quality is measured with what is still there."""
    migration = started(store)
    migration.forecast(label="kind")
    store.delete([*range(0, ROWS, 4)])
    state = migration._job.state
    seen = sample.read_sample(migration._job, state, "kind")
    assert len(seen.rows) == 0.75 * ROWS
    assert 50 <= len(seen.queries) < 100
    assert seen.measure("map", state) == pytest.approx(obvious_map(store), abs=1e-5)


def test_a_sample_that_is_gone_is_chosen_again_by_a_backfill(store: MemoryStore) -> None:
    """Where hardly any of its queries is left, others are drawn, before quality is measured."""
    migration = started(store)
    gone = SampleRows.of(store).queries[:90]
    store.delete(gone)
    [*migration.backfill(rows=10, **LABELLED, **QUICK)]
    seen = sample.read_sample(migration._job, migration._job.state, "kind")
    assert len(seen.queries) >= 50
    assert not set(seen.rows.ids) & set(gone)


def test_measuring_never_embeds(store: MemoryStore) -> None:
    """A forecast or a look at the sample calls no encoder, even where no random row is new."""
    numbers = range(1_000, 1_200)
    pairs = Pairs(Features(old_vectors(numbers)), Features(new_vectors(numbers)))
    calls: list[int] = []

    def counting(texts: Any) -> Any:
        calls.append(len(texts))
        return new_vectors(texts)

    migration = Migration(Gallery(store, input="text"), counting, encoder_name="toy")
    migration.start(alignment=Alignment.fit(pairs, method="ridge", distance="l2"))
    calls.clear()
    with pytest.raises(MigrationError, match="no random row is new"):
        migration.forecast(label="kind")
    migration.status()
    assert calls == []


def test_a_wrong_label_costs_nothing_where_the_map_is_of_elsewhere(store: MemoryStore) -> None:
    """The label column is looked at before random rows are embedded to measure on."""
    numbers = range(1_000, 1_200)
    pairs = Pairs(Features(old_vectors(numbers)), Features(new_vectors(numbers)))
    migration = Migration(Gallery(store, input="text"), new_vectors, encoder_name="toy")
    migration.start(alignment=Alignment.fit(pairs, method="ridge", distance="l2"))
    for label, error in (("text", InputError), ("nothing", StoreError)):
        with pytest.raises(error, match=label):
            [*migration.backfill(until=0.9, label=label, **QUICK)]
    assert migration.status().progress.new == 0


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"until": 0.99}, "reaches 0.99 only near the end"),
        ({"until": 99, **LABELLED}, "not 99"),
        ({"until": 0.9, "metric": "map"}, "--label"),
        ({"until": 0.9, "metric": "beauty", "label": "kind"}, "beauty"),
        ({"until": 0.9, "label": "text"}, "no two rows have the same value in column 'text'"),
    ],
)
def test_what_cannot_be_measured_is_said_first(
    store: MemoryStore, wanted: dict[str, Any], words: str
) -> None:
    """A wrong target is one sentence, and no row has been embedded."""
    migration = started(store)
    with pytest.raises(InputError, match=words):
        [*migration.backfill(**wanted, **QUICK)]
    assert migration.status().progress.new == 100


def test_a_label_column_must_exist(store: MemoryStore) -> None:
    """A column that is not there is named by the store."""
    with pytest.raises(StoreError, match="'nothing'"):
        [*started(store).backfill(until=0.9, label="nothing", **QUICK)]


def test_the_last_row_may_be_the_only_one_with_its_label(store: MemoryStore) -> None:
    """A label is judged by rows that are new as well, where hardly any others are left."""
    migration = started(store)
    [*migration.backfill(**LABELLED, **{**QUICK, "batch": 299}, rows=299)]
    assert migration.status().progress.new == ROWS - 1
    [*migration.backfill(**LABELLED, **QUICK)]
    assert migration.status().progress.new == ROWS


def a_forecast(end: float, measured: Measured | None = None) -> QualityForecast:
    """A straight forecast from 0.4 to `end` with draws around it."""
    fractions = np.linspace(0, 1, 11)
    values = 0.4 + (end - 0.4) * fractions
    draws = values + np.linspace(-0.02, 0.02, 21)[:, None]
    forecast = Forecast("map", fractions, values, values - 0.02, values + 0.02, 100, 20, draws)
    expected = QualityForecast(forecast, "kind", "random", 0.1)
    return expected if measured is None else expected.with_measured(measured)


@given(end=st.floats(0.5, 1), at=st.floats(0.2, 1), value=st.floats(0.3, 1))
def test_a_corrected_forecast_begins_at_what_was_measured(
    end: float, at: float, value: float
) -> None:
    """It starts there, ends at forecast plus f·δ, and its band closes as the end comes near."""
    expected = a_forecast(end, Measured(at, at, value))
    corrected = expected.corrected()
    off = value - (0.4 + (end - 0.4) * at)
    assert corrected.fractions[0] == at
    assert corrected.values[0] == pytest.approx(value)
    assert corrected.values[-1] == pytest.approx(end + at * off)
    assert corrected.upper[-1] - corrected.lower[-1] <= 0.04 * (1 - at) + 1e-9
    quality = expected.quality(at)
    assert quality.value == pytest.approx(value / (end + at * off))


@given(fraction=st.floats(0.1, 1))
def test_fractions_of_sample_and_gallery_belong_together(fraction: float) -> None:
    """From the gallery to the sample and back is the same fraction."""
    expected = a_forecast(0.8)
    assert expected.of_gallery(expected.of_sample(fraction)) == pytest.approx(fraction)


def test_progress_shows_the_quality() -> None:
    """The line of a progress has the quality after the fraction."""
    quality = a_forecast(0.8, Measured(0.5, 0.5, 0.7)).quality(0.5)
    progress = replace(Progress(total=1_000, new=500, aligned=500), quality=quality)
    assert str(progress).startswith("500/1,000  50.0 %  quality 82.4 ± ")
    assert progress.to_json()["quality"]["measured"] is True


def test_a_complete_gallery_has_the_new_models_quality() -> None:
    """What was measured before counts until every row is new and the old vectors serve no more."""
    expected = a_forecast(0.8, Measured(0.9, 0.9, 0.9))
    shown = {
        (phase, new): Status(phase, Progress(10, new=new), None, forecast=expected).quality
        for phase in ("started", "complete")
        for new in (9, 10)
    }
    done = shown.pop(("complete", 10))
    assert done is not None
    assert str(done) == "quality 100.0 ± 0.0 %"
    assert all(quality == expected.quality(1.0) for quality in shown.values())


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (0.5, 0.6, "map: 95 % of the new model at "),
        (0.9, 0.85, "map: 95 % of the new model is reached, 99 % at "),
        (0.99, 0.9, "map: 99 % of the new model is reached; measured 0.900 at 99.0 %"),
    ],
)
def test_what_is_reached_is_said(at: float, value: float, said: str) -> None:
    """A level that a measurement has passed is no longer expected at some fraction."""
    assert str(a_forecast(0.8, Measured(at, at, value))).startswith(said)
