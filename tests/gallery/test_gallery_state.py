"""The state of a migration as it is kept in a store, and the fusion beside it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fastfill.align import Fusion
from fastfill.align.fusion import Weights
from fastfill.errors import StoreError
from fastfill.gallery import Columns, MemoryStore, State, load_fusion, save_fusion


def store() -> MemoryStore:
    return MemoryStore({"id": [1], "vector": [[1.0]]})


def test_a_state_without_a_way_to_serve_serves_aligned() -> None:
    """What a version before wrote goes on to serve as it did."""
    state = State("started", Columns("id", "text", "vector"), "cosine", "m:f", "1f", 8)
    plain = json.loads(state.to_bytes())
    del plain["serving"], plain["fusion"]
    assert State.from_bytes(json.dumps({**plain, "version": 2}).encode()) == state
    assert state.serving == "aligned"


def test_a_fusion_is_kept_once_and_comes_back_equal() -> None:
    """The tag of a fusion stands for its bytes."""
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(9, 2)).astype("f"), rng.normal(size=(9, 3)).astype("f")
    fusion = Fusion(old, new, "l2", Weights(1.0, 2.0, 3.0), 0.5)
    documents = store()
    tag = save_fusion(documents, fusion)
    assert save_fusion(documents, fusion) == tag
    assert load_fusion(documents, tag).to_bytes() == fusion.to_bytes()


def test_a_fusion_that_is_gone_is_named() -> None:
    """A tag without a document is an error that says so."""
    with pytest.raises(StoreError, match="fusion 12ab has disappeared"):
        load_fusion(store(), "12ab")
