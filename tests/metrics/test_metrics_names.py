"""Metrics by name."""

import pytest

from fastfill.errors import InputError
from fastfill.metrics import METRICS, as_metric, as_metrics


@pytest.mark.parametrize(
    "name", ["map", "mrr", "mrr@10", "cmc@1", "recall@10", "ndcg@10", "agreement@10"]
)
def test_a_name_survives_the_round_trip(name):
    """Reading a metric's name and asking for it gives the same text."""
    assert as_metric(name).name == name


@pytest.mark.parametrize(
    "name", ["", "map@3", "cmc", "cmc@0", "cmc@-1", "mrr@0", "recall@x", "precision", "CMC@1"]
)
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    """What is no metric is named, with the families that there are."""
    with pytest.raises(InputError, match="use one of map, cmc@k, mrr, mrr@k, recall@k") as error:
        as_metric(name)
    assert repr(name) in str(error.value)


def test_several_metrics_come_from_a_list_or_a_text_without_repetition():
    """A text with commas and a list mean the same, and a metric asked for twice is one."""
    assert as_metrics("map, cmc@5,map") == as_metrics(["map", "cmc@5"])


def test_no_metric_at_all_is_refused():
    """An empty list cannot be measured."""
    with pytest.raises(InputError, match="at least one"):
        as_metrics([])


def test_every_family_says_what_it_is():
    """The table of metrics can be shown to people."""
    assert all(family.about for family in METRICS.values())
