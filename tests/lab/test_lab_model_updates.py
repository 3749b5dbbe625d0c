"""The paper's model updates as data, and the held-out identities."""

from __future__ import annotations

import numpy as np
import pytest

from fastfill.errors import InputError
from fastfill.lab.data import Images, ImageSet
from fastfill.lab.data.holdout import hold_out
from fastfill.lab.experiments import (
    EXPERIMENTS,
    available,
    data_sets,
    find_experiment,
    update_of,
)
from fastfill.lab.model_updates import MODEL_UPDATES, Classes, ModelUpdate, halved, in_minority
from fastfill.lab.systems import System

CLASSES = {"cifar100": 100, "imagenet": 1000, "tiny-imagenet": 200, "places365": 365}


@pytest.mark.parametrize(
    ("data", "old", "dim"),
    [("cifar100", 50, 128), ("imagenet", 500, 128), ("places365", 182, 512),
     ("tiny-imagenet", 100, 128)],
)  # fmt: skip
def test_the_old_model_sees_the_first_half_of_the_classes(data: str, old: int, dim: int) -> None:
    """ImageNet-500, Places-182 with 512 dimensions, CIFAR-50, and all classes for the new one."""
    update = MODEL_UPDATES[data]["half"]
    every = np.arange(CLASSES[data])
    none = np.empty(0, np.int64)
    np.testing.assert_array_equal(update.old.classes.pick(every, none, 0), np.arange(old))
    np.testing.assert_array_equal(update.new.classes.pick(every, none, 0), every)
    assert (update.old.dim, update.new.dim) == (dim, dim)
    assert update.old.backbone == update.new.backbone == "resnet50"


def test_vggface2_is_a_small_network_of_863_identities_and_a_large_one_of_all() -> None:
    """ResNet-18 to ResNet-50, ArcFace, unit length, 50 images of each test identity."""
    update = MODEL_UPDATES["vggface2"]["faces"]
    assert (update.old.backbone, update.new.backbone) == ("resnet18", "resnet50")
    assert update.old.classes == Classes(0, 863)
    assert {update.old.objective, update.new.objective} == {"arcface"}
    assert update.normalised
    assert update.per_class == 50


def test_unseen_has_the_same_disjoint_and_mixed_test_classes() -> None:
    """250→500 on ImageNet; a quarter and a half of the classes elsewhere."""
    update = MODEL_UPDATES["imagenet"]["unseen"]
    assert (update.old.classes, update.new.classes) == (Classes(0, 250), Classes(0, 500))
    assert [name for name, _ in update.tests] == ["[:500]", "[500:]", "all"]
    assert halved(12)["unseen"].tests[1] == ("[6:]", Classes(6))


def test_a_draw_has_so_many_of_each_side_and_smaller_draws_are_part_of_larger_ones() -> None:
    """The biased classes are among those of the balanced model, with one seed."""
    every, minority = np.arange(40), np.arange(0, 40, 4)
    small, large = (Classes(drawn=d).pick(every, minority, 3) for d in ((9, 1), (20, 10)))
    assert (len(small), np.isin(small, minority).sum()) == (10, 1)
    assert np.isin(small, large).all()
    assert (np.diff(small) > 0).all()
    assert not np.array_equal(small, Classes(drawn=(9, 1)).pick(every, minority, 4))
    with pytest.raises(InputError, match="minority has 10 classes, 11"):
        Classes(drawn=(9, 11)).pick(every, minority, 0)


def faces() -> ImageSet:
    """Twelve identities of two images each, of known and unknown gender, and two test ones."""
    labels = np.repeat(np.arange(12), 2)
    pixels = np.arange(24, dtype=np.uint8).reshape(24, 1, 1, 1)
    groups = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, -1, -1, 0, 1])
    test = Images(np.zeros((2, 1, 1, 1), np.uint8), np.array([12, 13]))
    names = tuple(f"n{i}" for i in range(14))
    return ImageSet("vggface2", names, Images(pixels, labels), test, "abc", groups)


def test_held_out_identities_leave_the_training_set_and_become_the_test_set() -> None:
    """So many of each gender; unknown ones are in neither; no pixel is copied."""
    images = faces()
    women = in_minority(images, (1,))
    divided = hold_out(images, women, 2, seed=0)
    held, kept = (np.unique(part.labels) for part in (divided.test, divided.train))
    assert len(held) == 4
    assert np.isin(held, women).sum() == 2
    assert sorted([*held, *kept]) == list(range(10))
    assert divided.train.pixels is images.train.pixels
    for part in (divided.train, divided.test):
        assert part.rows is not None
        assert (images.train.labels[part.rows] == part.labels).all()


def test_the_hold_out_changes_with_the_seed_and_with_it_the_fingerprint() -> None:
    """What is trained on one division is never taken for another."""
    women = in_minority(faces(), (1,))
    one, two, again = (hold_out(faces(), women, 2, seed) for seed in (0, 1, 0))
    assert len({one.fingerprint, two.fingerprint, "abc"}) == 3
    assert one.fingerprint == again.fingerprint


def test_a_set_that_is_too_small_to_hold_out_is_refused() -> None:
    """At least one identity of each gender must remain for training."""
    with pytest.raises(InputError, match="majority has 5 classes, and 5"):
        hold_out(faces(), in_minority(faces(), (1,)), 5, seed=0)


def test_the_gender_protocol_holds_out_250_identities_of_each() -> None:
    """VGGFace2-Gender and VGGFace2-Gender-550 of Section 5.3."""
    update = MODEL_UPDATES["vggface2"]["biased"]
    assert update.hold_out == 250
    assert update.old.classes.drawn == (500, 50)
    assert update.new.classes.drawn == (2183, 2183)


def test_every_experiment_has_a_protocol_on_the_sets_it_names() -> None:
    """`lab list` promises nothing that `lab run` refuses."""
    for one in EXPERIMENTS.values():
        for data in data_sets(one):
            assert isinstance(update_of(one, data, 12), ModelUpdate)
    assert [e.name for e in available("cifar100")] == list(EXPERIMENTS)
    assert "side-information" not in [e.name for e in available("tiny-imagenet")]


def test_an_experiment_that_a_set_cannot_have_is_refused() -> None:
    """The message names the experiment, the data set and what that has."""
    with pytest.raises(InputError, match="'bias' has no protocol for 'places365'"):
        update_of(find_experiment("bias"), "places365", 365)
    with pytest.raises(InputError, match="use one of main, architecture"):
        find_experiment("mian")


@pytest.mark.parametrize(
    ("system", "uses"),
    [(System("a", "l2", "random"), "pairs only"), (System("a", None, "random"), "nothing"),
     (System("a", "l2", "entropy"), "head"), (System("a", "l2+disc", "sigma"), "labels, head"),
     (System("a", "l2", "random", side=True), "side-information")],
)  # fmt: skip
def test_every_row_says_what_it_may_use(system: System, uses: str) -> None:
    """Labels and head for the discriminative loss, the head for orders by its confidence."""
    assert system.uses == uses
