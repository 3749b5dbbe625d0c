"""Learning the map again while a backfill runs: kept if better, and never half-way."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from migration_world import encode, gallery_values, new_vector, old_vector, serving

from fastfill.align import Alignment
from fastfill.errors import InputError
from fastfill.features import Features, Pairs
from fastfill.gallery import Columns, Description, Gallery, MemoryStore, State, load_state
from fastfill.migrate import Migration, Progress
from fastfill.migrate.ledger.alignments import Alignments
from fastfill.migrate.ledger.sample_rows import SampleRows
from fastfill.migrate.run import map_trial
from fastfill.migrate.run.refitting import Refitter, rows_until_refit

ROWS = 600
START: dict[str, Any] = {"pairs": 30, "method": "ridge", "policy": "random"}
QUICK: dict[str, Any] = {"throttle": False, "batch": 20}


class SmallBlocks(MemoryStore):
    """A store that likes to be given few rows at once, so that re-aligning takes many steps."""

    def describe(self) -> Description:
        return replace(super().describe(), batch=40)


@pytest.fixture
def small() -> SmallBlocks:
    """Six hundred items in memory."""
    return SmallBlocks(gallery_values(ROWS), distance="l2")


def migration_of(store: MemoryStore, **options: Any) -> Migration:
    """A migration of the store."""
    return Migration(Gallery(store, input="text"), encode, **options)


def current(store: MemoryStore) -> tuple[State, Alignment]:
    """The state and its alignment, as the store has them."""
    state = load_state(store)
    assert state is not None
    document = store.load(f"alignment/{state.alignment}")
    assert document is not None
    return state, Alignment.from_bytes(document.value)


def check_aligned_rows(store: MemoryStore) -> int:
    """Every aligned row, one by one: its vector and error are those of the present map."""
    state, alignment = current(store)
    checked = 0
    for row in store._rows.values():
        if row["ff_vector_generation"] == "aligned":
            expected = alignment(np.array([row["vector"]], dtype=np.float32))
            assert row["ff_vector_model"] == state.alignment
            np.testing.assert_allclose(row["vector_new"], expected.vectors[0], atol=1e-4)
            assert row["ff_vector_variance"] == pytest.approx(float(expected.variance[0]), rel=1e-2)
            checked += 1
    return checked


def events(migration: Migration) -> Counter[str]:
    """How often each event is in the audit trail."""
    return Counter(event["event"] for event in migration.history())


def elsewhere(pairs: int, noise: float = 0.0) -> Alignment:
    """A map learned from other items of the same models."""
    texts = [f"elsewhere {n}" for n in range(pairs)]
    new = np.stack([new_vector(text) for text in texts])
    new = new + noise * np.random.default_rng(0).standard_normal(new.shape).astype(np.float32)
    old = np.array([old_vector(text) for text in texts])
    return Alignment.fit(Pairs(Features(old), Features(new)), method="ridge", distance="l2")


def begun(store: MemoryStore) -> Migration:
    """A migration with a map so bad that the first refit is better for certain."""
    migration = migration_of(store)
    migration.start(alignment=elsewhere(40, noise=20.0), policy="random")
    return migration


def test_after_a_refit_every_aligned_row_is_of_the_present_map(small: SmallBlocks) -> None:
    """Vectors, errors and marks are those of the map that was learned last, without exception."""
    migration = migration_of(small)
    migration.start(**START)
    first = current(small)[0].alignment
    [*migration.backfill(rows=300, refit=0.1, **QUICK)]
    state = current(small)[0]
    assert state.alignment != first
    assert state.refits >= 1
    assert check_aligned_rows(small) == ROWS - 330
    assert migration.verify().good
    assert small.names("alignment/") == [f"alignment/{state.alignment}"]
    assert small.names("learned-from/") == [f"learned-from/{state.alignment}"]


def test_more_pairs_make_a_better_map(small: SmallBlocks) -> None:
    """The rows that are left are nearer to their new vectors than the first map put them."""
    migration = migration_of(small)
    migration.start(**START)
    first = current(small)[1]
    [*migration.backfill(rows=300, refit=0.1, **QUICK)]
    left = [row for row in serving(small).values() if row[1] == "aligned"]
    truth = np.stack([new_vector(text) for text, _, _ in left])
    before = first(np.array([old_vector(text) for text, _, _ in left])).vectors
    now = np.stack([vector for _, _, vector in left])
    assert np.square(now - truth).mean() < 0.97 * np.square(before - truth).mean()


def test_progress_tells_of_learning_and_re_aligning(small: SmallBlocks) -> None:
    """The bar shows which of how many refits it is, and how far the re-aligning is."""
    said = [str(step) for step in begun(small).backfill(rows=150, refit=0.1, **QUICK)]
    assert any("learning the map again (1 of 10)" in line for line in said)
    assert any("re-aligning (40 of " in line for line in said)


def test_never_means_never(small: SmallBlocks) -> None:
    """Without a step the map stays as it was."""
    migration = migration_of(small)
    migration.start(**START)
    first = current(small)[0].alignment
    [*migration.backfill(rows=400, refit=None, **QUICK)]
    assert current(small)[0].alignment == first
    assert not {"refitted", "refit thrown away"} & set(events(migration))


def test_a_refit_that_is_no_better_is_thrown_away(small: SmallBlocks) -> None:
    """A map from thousands of pairs of elsewhere survives one of some dozen; the trail says so."""
    migration = migration_of(small)
    good = elsewhere(5_000)
    migration.start(alignment=good, policy="random")
    first = current(small)[0].alignment
    [*migration.backfill(rows=90, refit=0.15, **QUICK)]
    steps = [*migration.backfill(rows=30, refit=0.15, **QUICK)]
    thrown = [e for e in migration.history() if e["event"] == "refit thrown away"]
    assert current(small)[0].alignment == first
    assert len(thrown) == 1
    assert thrown[0]["after"] <= thrown[0]["before"]
    assert thrown[0]["pairs"] == 90
    assert steps[-1].stale == 0
    assert check_aligned_rows(small) == ROWS - 120


def test_a_bad_map_of_elsewhere_is_replaced(small: SmallBlocks) -> None:
    """An alignment that was given is refitted too where that helps."""
    migration = migration_of(small)
    migration.start(alignment=elsewhere(40, noise=20.0), policy="random")
    [*migration.backfill(rows=150, refit=0.15, **QUICK)]
    refitted = [e for e in migration.history() if e["event"] == "refitted"]
    assert refitted
    assert refitted[0]["after"] > refitted[0]["before"]
    assert len(refitted[0]["alignment"]) == 64
    assert check_aligned_rows(small) == ROWS - 150


def stop_while_re_aligning(migration: Migration, **limits: Any) -> Progress:
    """End a run in the middle of a re-align."""
    for step in migration.backfill(refit=0.1, **QUICK, **limits):
        if step.doing and step.doing.startswith("re-aligning"):
            migration.stop.set()
    migration.stop.clear()
    return step


def test_stopped_while_re_aligning_it_goes_on(small: SmallBlocks) -> None:
    """Rows of the map before count as aligned and serve; the next run aligns them again."""
    migration = begun(small)
    last = stop_while_re_aligning(migration)
    state = current(small)[0]
    assert last.stale > 0
    assert last.new + last.aligned == ROWS
    assert len(state.stale) == 1
    assert len(small.names("alignment/")) == 2
    found = migration.verify()
    assert found.good
    assert found.stale == last.stale
    assert all(np.isfinite(vector).all() for _, _, vector in serving(small).values())
    again = [*migration.backfill(rows=20, refit=0.1, **QUICK)]
    assert any((step.doing or "").startswith("re-aligning") for step in again)
    assert again[-1].stale == 0
    assert current(small)[0].alignment == state.alignment
    assert check_aligned_rows(small) == again[-1].aligned
    assert len(small.names("alignment/")) == 1


def test_a_run_without_refits_still_re_aligns(small: SmallBlocks) -> None:
    """What an interrupted refit has left behind is settled by any run."""
    migration = begun(small)
    stop_while_re_aligning(migration)
    last = [*migration.backfill(rows=20, refit=None, **QUICK)][-1]
    assert last.stale == 0
    check_aligned_rows(small)


def test_a_pause_holds_while_re_aligning(small: SmallBlocks) -> None:
    """A pause takes effect between two blocks of a re-align, the rate does not."""
    migration = begun(small)
    reasons: list[str] = []
    for step in migration.backfill(refit=0.1, rows=150, rate=100_000, **QUICK):
        if (step.doing or "").startswith("re-aligning"):
            if step.reason:
                reasons.append(step.reason)
                migration.resume()
            elif not reasons:
                migration.pause()
    assert reasons == ["paused"]
    check_aligned_rows(small)


@pytest.mark.usefixtures("rows_done_alone")
def test_only_one_of_several_workers_refits(small: SmallBlocks) -> None:
    """Four workers embed every item once, and each step of the rows has one refit at most."""
    seen: list[str] = []
    busy, together = threading.Lock(), []

    def counting(texts: Any) -> Any:
        seen.extend(texts)
        return encode(texts)

    migration = Migration(Gallery(small, input="text"), counting, encoder_name="counting")
    migration.start(**START)
    seen.clear()
    fit = map_trial.fit_alignment

    def alone(*arguments: Any, **options: Any) -> Alignment:
        together.append(busy.acquire(blocking=False))
        try:
            return fit(*arguments, **options)
        finally:
            if together[-1]:
                busy.release()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(map_trial, "fit_alignment", alone)
        last = [*migration.backfill(workers=4, refit=0.1, throttle=False, batch=7)][-1]
    assert last.fraction == 1.0
    assert len(set(seen)) == 570
    assert len(seen) <= 570 + 4 * 7  # a batch read while its rows were re-aligned is done again
    assert together
    assert all(together)
    found = events(migration)
    assert 1 <= found["refitted"] + found["refit thrown away"] <= 10


def test_a_worker_that_waited_for_its_turn_knows_the_present_map(
    small: SmallBlocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refit that another ended while this worker waited for the lease has taken its map away."""
    migration = begun(small)
    claim, others = Refitter._claim, iter([migration_of(small)])

    def late(refitter: Refitter) -> bool:
        for other in others:
            [*other.backfill(rows=150, refit=0.1, **QUICK)]
            refitter._run.job.alignments = Alignments(small)  # which remember the latest one
        return claim(refitter)

    monkeypatch.setattr(Refitter, "_claim", late)
    assert [*migration.backfill(refit=0.1, **QUICK)][-1].fraction == 1.0
    assert current(small)[0].refits >= 1


def test_a_worker_goes_on_with_the_map_of_another(small: SmallBlocks) -> None:
    """A run that meets rows of a map that it did not learn embeds them like all others."""
    migration = begun(small)
    slow = migration_of(small).backfill(refit=None, **QUICK)
    next(slow)
    [*migration.backfill(rows=150, refit=0.1, **QUICK)]
    assert current(small)[0].refits >= 1
    assert [*slow][-1].fraction == 1.0


def test_quarantined_items_are_not_tried_again_by_a_refit(small: SmallBlocks) -> None:
    """Another map is no change of the item: poison stays where it is, and is re-aligned."""
    calls: list[str] = []

    def picky(texts: Any) -> Any:
        if "00010 text" in texts:
            if len(texts) == 1:
                calls.append(texts[0])
            raise ValueError("cannot read this")
        return encode(texts)

    migration = Migration(Gallery(small, input="text"), picky, encoder_name="picky")
    migration.start(**START)
    [*migration.backfill(refit=0.1, **QUICK)]
    assert len(calls) <= 5
    assert migration.status().progress.new == ROWS - 1
    assert check_aligned_rows(small) == 1


def test_another_map_given_half_way_serves_throughout(small: SmallBlocks) -> None:
    """`start --alignment` on a started migration counts the rows of the map before as aligned."""
    migration = migration_of(small)
    migration.start(**START)
    migration.start(alignment=elsewhere(100))
    assert check_aligned_rows(small) == ROWS - 30
    assert len(small.names("alignment/")) == 1


@pytest.mark.parametrize("ending", ["complete", "rollback"])
def test_a_map_that_a_crash_left_behind_goes_at_the_end(small: SmallBlocks, ending: str) -> None:
    """A worker killed before its map was named by the state leaves nothing for ever."""
    migration = begun(small)
    small.save("alignment/left-behind", b"of a worker that was killed", 0)
    small.save("learned-from/left-behind", b"", 0)
    [*migration.backfill(refit=0.1, **QUICK)]
    kept = {"complete": 1, "rollback": 0}[ending]
    getattr(migration, ending)()
    assert len(small.names("alignment/")) == len(small.names("learned-from/")) == kept
    assert not small.names("refitting")


@pytest.mark.parametrize("step", [0.0, 1.0, -0.1, 5.0])
def test_a_step_is_a_share(small: SmallBlocks, step: float) -> None:
    """5 instead of 0.05 is noticed before any work."""
    migration = migration_of(small)
    migration.start(**START)
    with pytest.raises(InputError, match="share between 0 and 1"):
        [*migration.backfill(refit=step)]


@given(
    total=st.integers(1, 10**7),
    learned=st.floats(0, 1),
    new=st.floats(0, 1),
    step=st.floats(0.001, 0.999),
)
def test_a_refit_is_due_once_in_each_step(
    total: int, learned: float, new: float, step: float
) -> None:
    """Rows until the next refit lead into the next step and not beyond it."""
    before, now = int(total * learned), int(total * new)
    state = State("started", Columns("id", "t", "v"), "l2", "m:f", "1f", 8, learned_rows=before)
    left = rows_until_refit(Progress(total=total, new=now), state, step)
    there = now + left
    rows = max(step * total, 1.0)
    assert before < there <= before + rows + 1
    assert int((there + 1e-6) / rows) > int((before - 1e-6) / rows)


def test_a_refit_s_reference_pairs_are_those_that_chance_embedded(small: SmallBlocks) -> None:
    """Rows that the policy chose teach the map, but do not stand for the gallery."""
    migration = migration_of(small)
    migration.start(**START)
    by_chance = {tuple(small._rows[key]["vector"]) for key in SampleRows.of(small).queries}
    [*migration.backfill(rows=300, refit=0.1, **QUICK)]
    state, alignment = current(small)
    assert state.refits >= 1
    assert alignment.reference is not None
    kept = {tuple(row) for row in alignment.reference.old.tolist()}
    assert kept <= {tuple(np.float32(row).tolist()) for row in by_chance}
