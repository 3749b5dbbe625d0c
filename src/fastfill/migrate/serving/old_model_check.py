"""Is the old encoder the model of the gallery's old vectors? Some items are embedded by it.

Each item is looked for among them: its stored vector must be near what the encoder makes of it.
That is asked by ranks, not by cosines, so that another prompt, or the side of a model that embeds
queries, does no harm; vectors of another model are in no order at all.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fastfill.errors import EncoderError, MigrationError
from fastfill.features import Array, Matrix
from fastfill.migrate.encoding import Encode, Encoder
from fastfill.migrate.identity import described
from fastfill.migrate.job import Job

ROWS, LEAST = 32, 8  # items that are embedded; fewer say nothing
NEAR = 4  # a stored vector is near its item if it is in the first quarter of those of all items
_PLACE = re.compile(r"\S*[/\\]\S*|\S*\.\w{1,5}")  # a path or an address, and no text


def check_old_model(job: Job, encode_old: Encode, root: str | None = None) -> None:
    """Refuse an encoder to which most items are no nearer to their vectors than to others'.

    Items that are no texts are left out: it is queries that it is given.
    """
    if root is not None or job.store.columns.input is None:
        return
    ids = job.store.sample(ROWS, seed=0)
    ids += job.store.sample(ROWS - len(ids), seed=0, new=True)
    rows = job.store.read(ids)
    rows = rows.take(rows.usable & np.array([is_text(each) for each in rows.inputs], dtype=bool))
    encoder = Encoder(encode_old, distance=job.gallery.distance, dim=rows.old.shape[1])
    try:
        made = encoder(rows.ids.tolist(), rows.inputs.tolist())
    except EncoderError:  # said where the queries are embedded
        return
    if made.good.sum() < LEAST:
        return
    mine, stored = made.vectors[made.good], rows.old[made.good]
    near = ranks(mine, stored) < len(mine) / NEAR
    if 2 * near.sum() >= len(near):
        return
    cosine = np.median(np.einsum("ij,ij->i", _unit(mine), _unit(stored)))
    raise MigrationError(
        f"{job.store.name}: the old encoder, {_name(encode_old)}, is not the model of the old "
        f"vectors: of {len(near)} items only {near.sum()} are near their own vector (cosine "
        f"{cosine:.2f} in the middle). Name the model that made them with --old-encoder, or give "
        "queries as vectors of both models."
    )


def ranks(made: Matrix, stored: Matrix) -> Array:
    """(n,) how many of the stored vectors are nearer to what is made of an item than its own.

    Both are centred: what all have in common, such as a prompt, says nothing.

    >>> eye = np.eye(3, dtype=np.float32)
    >>> ranks(eye, eye + 5)
    array([0, 0, 0])
    """
    scores = _unit(made - made.mean(axis=0)) @ _unit(stored - stored.mean(axis=0)).T
    return np.asarray((scores > np.diag(scores)[:, None] + 1e-6).sum(axis=1))


def is_text(value: Any) -> bool:
    """Is it something that a model of queries can read, and no path or address?

    >>> is_text("a red lamp"), is_text("photos/1.jpg"), is_text(b"...")
    (True, False, False)
    """
    return isinstance(value, str) and _PLACE.fullmatch(value.strip()) is None


def _unit(vectors: Matrix) -> Matrix:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)


def _name(encode: Encode) -> str:
    function = getattr(encode, "encode", encode)  # of an encoder that is one for items
    if not hasattr(function, "__qualname__"):
        return type(encode).__qualname__
    return described(function).partition(" ")[0]
