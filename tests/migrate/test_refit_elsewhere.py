"""Refits of a map that came from a file: it is corrected by the gallery, and not forgotten."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from test_refit import QUICK, SmallBlocks, check_aligned_rows, current

from fastfill.align import Alignment, Corrected
from fastfill.features import Features, Matrix, Pairs
from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.migrate.run.map_trial import CORRECTED

ROWS, OLD, NEW = 600, 6, 8
RNG = np.random.default_rng(5)
INNER, OUTER = RNG.standard_normal((OLD, 16)), RNG.standard_normal((16, NEW))
SHIFT = RNG.standard_normal(NEW)


def old_vector(text: str) -> Matrix:
    """What the old model made of a text."""
    lots = np.random.default_rng(zlib.crc32(text.encode()))
    return lots.standard_normal(OLD).astype(np.float32)


def new_vectors(texts: list[str], shift: float = 0.0) -> Matrix:
    """What the new model makes of them: curved, so that few pairs teach little."""
    found = np.tanh(np.stack([old_vector(text) for text in texts]) @ INNER) @ OUTER + shift * SHIFT
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def encode(texts: Any) -> Matrix:
    """The new model."""
    return new_vectors(list(texts))


def migration_of(store: SmallBlocks) -> Migration:
    """A migration of the store."""
    return Migration(Gallery(store, input="text"), encode)


@pytest.fixture
def small() -> SmallBlocks:
    """Six hundred items in memory."""
    texts = [f"text {n}" for n in range(ROWS)]
    vectors = [old_vector(text).tolist() for text in texts]
    return SmallBlocks({"id": [*range(ROWS)], "text": texts, "vector": vectors}, distance="l2")


@pytest.fixture(scope="module")
def good() -> Alignment:
    """A map from many pairs of a set on which the new model behaves a little otherwise."""
    texts = [f"elsewhere {n}" for n in range(800)]
    old = np.stack([old_vector(text) for text in texts])
    pairs = Pairs(Features(old), Features(new_vectors(texts, shift=0.6)))
    return Alignment.fit(pairs, method="kernel", distance="l2")


def refits(migration: Migration) -> list[dict[str, Any]]:
    """The refits of the audit trail."""
    return [event for event in migration.history() if event["event"].startswith("refit")]


def test_the_file_s_map_is_corrected_by_the_gallery(small: SmallBlocks, good: Alignment) -> None:
    """With few pairs the corrected map beats one learned anew, and every aligned row is its."""
    migration = migration_of(small)
    migration.start(alignment=good, policy="random")
    [*migration.backfill(rows=100, refit=0.15, **QUICK)]
    first = refits(migration)[0]
    assert first["event"] == "refitted"
    assert first["method"] == CORRECTED
    assert set(first["tried"]) > {CORRECTED}
    assert first["tried"][CORRECTED] == first["after"] == max(first["tried"].values())
    assert first["after"] > first["before"]
    found = current(small)[1]
    assert isinstance(found, Corrected)
    assert [base.fingerprint for base in found.bases] == [good.fingerprint]
    assert check_aligned_rows(small) == ROWS - 100
    assert migration.verify().good


def test_the_next_refit_corrects_the_file_s_map_again(small: SmallBlocks, good: Alignment) -> None:
    """Corrections do not pile up: the second begins with the file's map, and with more pairs."""
    migration = migration_of(small)
    migration.start(alignment=good, policy="random")
    seen = []
    for rows in (100, 280):
        [*migration.backfill(rows=rows, refit=0.15, **QUICK)]
        found = current(small)[1]
        assert isinstance(found, Corrected)
        assert [base.fingerprint for base in found.bases] == [good.fingerprint]
        seen.append(found.facts["corrected"])
    assert seen[0] < seen[1]
    assert len(small.names("alignment/")) == 1


def test_once_the_gallery_teaches_more_the_file_is_forgotten(small: SmallBlocks) -> None:
    """A map from nothing but noise is corrected or replaced; the better of the two is kept."""
    old, noise = (RNG.standard_normal((40, size)) for size in (OLD, NEW))
    bad = Alignment.fit(Pairs(Features(old), Features(20 * noise)), method="ridge", distance="l2")
    migration = migration_of(small)
    migration.start(alignment=bad, policy="random")
    [*migration.backfill(rows=200, refit=0.15, **QUICK)]
    for event in refits(migration):
        assert event["after"] == max(event["tried"].values())
    assert (current(small)[1].method == CORRECTED) == (refits(migration)[-1]["method"] == CORRECTED)
    assert check_aligned_rows(small) == ROWS - 200


class Killed(BaseException):
    """Nothing can catch it."""


@pytest.mark.parametrize("moment", ["alignment/", "state", "write"])
def test_killed_in_a_refit_another_process_goes_on(
    small: SmallBlocks, good: Alignment, moment: str
) -> None:
    """Wherever it is killed, the next run ends with one map and every aligned row by it."""
    migration = migration_of(small)
    migration.start(alignment=good, policy="random")
    [*migration.backfill(rows=89, refit=0.15, **QUICK)]

    with pytest.MonkeyPatch.context() as patch:
        save, write = small.save, small.write

        def killed_on_save(name: str, value: bytes, *rest: Any) -> Any:
            if moment == "alignment/" and name.startswith(moment):
                raise Killed
            done = save(name, value, *rest)
            if moment == "state" and b'"refits": 1' in value:
                raise Killed
            return done

        def killed_on_write(rows: Any, vectors: Any, marks: Any) -> int:
            if moment == "write" and marks.generation == "aligned":
                raise Killed
            return write(rows, vectors, marks)

        patch.setattr(small, "save", killed_on_save)
        patch.setattr(small, "write", killed_on_write)
        with pytest.raises(Killed):
            [*migration.backfill(rows=40, refit=0.15, **QUICK)]

    after = migration_of(small)
    [*after.backfill(rows=60, refit=0.15, **QUICK)]
    found = current(small)[1]
    assert isinstance(found, Corrected)
    assert [base.fingerprint for base in found.bases] == [good.fingerprint]
    assert check_aligned_rows(small) > 0
    assert after.verify().good
    assert [*after.backfill(refit=0.15, **QUICK)][-1].fraction == 1.0
