"""Fingerprints change with the content and with nothing else."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfill.gallery import fingerprints


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@given(row=st.integers(0, 9), column=st.integers(0, 6), seed=st.integers(0, 99))
def test_one_changed_number_changes_that_row(
    kind: type[np.floating], row: int, column: int, seed: int
) -> None:
    """A change of one number in one row is seen in that row's fingerprint alone."""
    vectors = np.random.default_rng(seed).standard_normal((10, 7)).astype(kind)
    there = np.ones(10, dtype=bool)
    before = fingerprints(vectors, there, ["t"] * 10)
    vectors[row, column] = np.nextafter(vectors[row, column], kind(9))
    after = fingerprints(vectors, there, ["t"] * 10)
    assert [a == b for a, b in zip(before, after, strict=True)] == [i != row for i in range(10)]


def test_missing_and_empty_are_not_the_same() -> None:
    """No vector and a zero vector, no text and an empty one, have different fingerprints."""
    zero = np.zeros((1, 3), np.float32)
    found = [
        fingerprints(zero, np.array([there]), [text])[0]
        for there in (True, False)
        for text in ("", None, b"x", "y")
    ]
    assert len(set(found)) == len(found)


def test_rows_do_not_depend_on_their_batch() -> None:
    """A row has the same fingerprint alone and among many."""
    vectors = np.random.default_rng(0).standard_normal((9_000, 5)).astype(np.float32)
    there = np.ones(9_000, dtype=bool)
    together = fingerprints(vectors, there, ["t"] * 9_000)
    assert together[7_777] == fingerprints(vectors[7_777:7_778], there[:1], ["t"])[0]


def test_fingerprints_are_what_stores_hold() -> None:
    """They are the hash of the vector and blake2b of the input, in hexadecimal, as ever."""
    vectors = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)
    found = fingerprints(vectors, np.array([True, False, True]), ["ä", b"raw", None])
    rng = np.random.default_rng(20_230)
    factors = [int(n) | 1 for n in rng.integers(0, 2**64, size=3, dtype=np.uint64)]
    halves = [
        sum(a * int(w) for a, w in zip(factors, row.view(np.uint64), strict=True)) % 2**64
        for row in vectors
    ]
    digests = [blake2b(data, digest_size=8).hexdigest() for data in ("ä".encode(), b"raw")]
    assert [str(one, "ascii") for one in found] == [
        f"{halves[0]:016x}{digests[0]}",
        f"{'-' * 16}{digests[1]}",
        f"{halves[2]:016x}{'-' * 16}",
    ]
    assert len(fingerprints(vectors[:0], np.ones(0, bool), [])) == 0
