"""Rows that were read for an encoder: inputs without old vectors, where these are much to send.

A new vector is made of the input alone, so that is what a write compares. The fingerprint that it
writes is of the input as it was read, and of the vector as it was when the marks were written last:
where the vector has changed since, a sweep sees that it is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fastfill.gallery.store import Id, Rows

INPUTS = "inputs"  # `Rows.held` of such rows
_HALF = 16  # characters of a fingerprint that are of the vector; the others are of the input


def as_input_rows(rows: Rows, written: Sequence[str | None]) -> Rows | None:
    """Rows whose `seen` begins with the fingerprint of an input without a vector.

    `written` are the fingerprints among their marks. None where a row has no such mark: nothing is
    known of its vector then, and it must be read.
    """
    if not all(written):
        return None
    seen = rows.seen.copy()
    pairs = zip(written, rows.seen[:, 0], strict=True)
    seen[:, 0] = [str(before)[:_HALF] + now[_HALF:] for before, now in pairs]
    return replace(rows, seen=seen, held=INPUTS)


def unchanged_content(rows: Rows, now: Mapping[Id, str]) -> list[int]:
    """Positions of the rows whose fingerprint `now` is what was read, as far as it was read."""
    compared = slice(_HALF, None) if rows.held == INPUTS else slice(None)
    pairs = zip(rows.ids, rows.seen[:, 0], strict=True)
    return [
        i for i, (k, seen) in enumerate(pairs) if k in now and now[k][compared] == seen[compared]
    ]


def same_inputs(one: str | None, other: str) -> bool:
    """Are both fingerprints of the same input, whatever the vector?"""
    return one is not None and one[_HALF:] == other[_HALF:]
