"""What verbs are told is checked first: nothing is embedded, nothing written, and one goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from migration_world import encode, gallery_values, old_vector

from fastfill.align import Alignment
from fastfill.errors import EncoderError, FastFillError, InputError, MigrationError, OrderError
from fastfill.features import Features, Pairs
from fastfill.gallery import Gallery, MemoryStore, change_state, load_state
from fastfill.migrate import BackfillOptions, Migration, StartOptions


class Model:
    """The new model, which counts the items that it was given."""

    def __init__(self) -> None:
        self.items = 0

    def __call__(self, texts: Any) -> Any:
        self.items += len(texts)
        return encode(texts)


@pytest.fixture
def model() -> Model:
    """A model that has seen nothing."""
    return Model()


@pytest.fixture
def migration(store: MemoryStore, model: Model) -> Migration:
    """A migration that has not begun."""
    return Migration(Gallery(store, input="text"), model, encoder_name="counting")


def traces(store: MemoryStore) -> tuple[list[str], tuple[str, ...]]:
    """All documents and columns."""
    return store.names(""), store.describe().columns


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "sgima"}, "Unknown policy 'sgima': did you mean 'sigma'"),
        ({"policy": "oracle"}, "evaluation alone"),
        ({"policy": "entropy"}, "needs the new model's classifier"),
        ({"policy": "traffic:sigma"}, "how often each item was shown"),
        ({"method": "rigde"}, "rigde.*ridge"),
        ({"pairs": 1}, "At least 2 pairs"),
    ],
)
def test_a_wrong_start_costs_nothing_and_can_be_corrected(
    store: MemoryStore, migration: Migration, model: Model, options: dict[str, Any], words: str
) -> None:
    """One sentence, no item embedded, no trace in the store; the next start goes on."""
    before = traces(store)
    with pytest.raises(FastFillError, match=words):
        migration.start(**{"pairs": 60, **options})
    assert model.items == 0
    assert traces(store) == before
    assert migration.start(pairs=60, policy="sigma", method="ridge").aligned == 140


def test_an_alignment_for_other_vectors_is_refused_first(
    store: MemoryStore, migration: Migration, model: Model
) -> None:
    """The dimensions of a saved alignment are compared before the columns are added."""
    texts = gallery_values(60)["text"]
    short = [old_vector(text)[:3] for text in texts]
    wrong = Alignment.fit(Pairs(Features(short), Features(encode(texts))), method="ridge")
    before = traces(store)
    with pytest.raises(MigrationError, match="3 dimensions, but the gallery has 6"):
        migration.start(alignment=wrong)
    assert (model.items, traces(store)) == (0, before)


def test_a_policy_that_an_older_version_kept_by_mistake_is_corrected(
    store: MemoryStore, migration: Migration
) -> None:
    """A start that failed over its policy can be repeated with a right one."""
    from dataclasses import replace

    migration.pairs(60)
    change_state(store, lambda state: replace(state, policy="sgima"))
    with pytest.raises(OrderError, match="sgima"):
        migration.start(pairs=60, method="ridge")
    assert migration.start(pairs=60, policy="sigma", method="ridge").aligned == 140


def test_another_policy_at_a_second_start_rearranges_the_rows(
    store: MemoryStore, migration: Migration
) -> None:
    """A start that is repeated with another order gives the rows other priorities."""
    migration.start(pairs=60, policy="sigma", method="ridge")
    before = store.pick("aligned", 50, ()).ids.tolist()
    migration.start(pairs=60, policy="random")
    assert store.pick("aligned", 50, ()).ids.tolist() != before
    status = migration.status()
    assert status.state is not None
    assert status.state.policy == "random"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rate": 5, "row": 10}, TypeError),  # as it was mistyped once, with a rate beside it
        ({"rate": 5, "rows": 0}, InputError),
        ({"rate": -1}, InputError),
        ({"workers": 0}, InputError),
        ({"rate": 5, "batch": 0}, InputError),
        ({"rate": 5, "refit": 5}, InputError),
        ({"rate": 5, "lease": 0}, InputError),
        ({"rate": 5, "until": 99, "label": "album"}, InputError),
        ({"rate": 5, "policy": "sgima"}, OrderError),
    ],
)
def test_a_wrong_backfill_writes_nothing(
    store: MemoryStore,
    migration: Migration,
    model: Model,
    options: dict[str, Any],
    error: type[Exception],
) -> None:
    """No rate is set, no event recorded, no item embedded."""
    migration.start(pairs=60, method="ridge")
    before, items = traces(store), model.items
    with pytest.raises(error):
        [*migration.backfill(**options)]
    assert (traces(store), model.items) == (before, items)
    assert migration.status().rate is None


def test_options_are_values_that_check_themselves() -> None:
    """What verbs take can be made, and refused, without any migration."""
    assert StartOptions(policy="mixed").pairs is None
    with pytest.raises(InputError, match="workers"):
        BackfillOptions(workers=-2)


def test_old_names_are_still_accepted(
    store: MemoryStore, migrate: Callable[..., Migration]
) -> None:
    """`tell`, `make_room` and `forgive` work as before and say what they are called now."""
    events: list[str] = []
    with pytest.warns(DeprecationWarning, match="'callback'"):
        migration = migrate(tell=lambda event, _: events.append(event))
    migration.start(pairs=60, method="ridge")
    with pytest.warns(DeprecationWarning, match="'throttle'"):
        steps = migration.backfill(make_room=False)
    assert [*steps][-1].fraction == 1.0
    with pytest.warns(DeprecationWarning, match="'retry_failed'"):
        migration.forgive()
    assert events == ["start", "done"]


def nearly_constant(texts: Any) -> Any:
    """One vector for all, but for what half a precision cannot tell."""
    return np.full((len(texts), 8), 3.0) + 1e-4 * encode(texts)


@pytest.mark.parametrize("broken", [lambda texts: np.ones((len(texts), 8)), nearly_constant])
def test_an_encoder_that_tells_no_items_apart_is_refused_first(
    store: MemoryStore, migration: Migration, broken: Any
) -> None:
    """By plan, pairs and start, before anything is written; and in the place of another model."""
    before = traces(store)
    bad = Migration(Gallery(store, input="text"), broken, encoder_name="broken")
    for verb in (bad.plan, lambda: bad.pairs(30), bad.start):
        with pytest.raises(EncoderError, match=r"broken gives .* different items the same vector"):
            verb()
    assert traces(store) == before
    migration.start(pairs=60, method="ridge")
    state = load_state(store)
    with pytest.raises(EncoderError, match="the same vector"):
        bad.start()
    assert load_state(store) == state


def test_items_of_one_input_may_have_one_vector() -> None:
    """Where every input is the same nothing is known against the encoder."""
    rows = {**gallery_values(60), "text": ["the same"] * 60}
    migration = Migration(Gallery(MemoryStore(rows, distance="l2"), input="text"), encode)
    assert migration.plan().new_dim == 8
