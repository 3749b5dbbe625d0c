"""Stages: content-addressed, resumable, shared by all tables."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from lab_runs import quick, result, run_all

from fastfill.lab.data.image_sets import ImageSet
from fastfill.lab.experiments import choose_experiments
from fastfill.lab.model_cache import ModelCache
from fastfill.lab.model_updates import MODEL_UPDATES, Classes
from fastfill.lab.training import Report


class Watch:
    """Counts the models that are trained, and may interrupt one after some epochs."""

    def __init__(self, stop: tuple[str, int] | None = None) -> None:
        self.trained: list[str] = []
        self.stop = stop

    def __call__(self, name: str) -> Report:
        self.trained.append(name.split()[0])

        def report(epoch: int, epochs: int, loss: float, rate: float) -> None:
            if self.stop == (name.split()[0], epoch):
                raise KeyboardInterrupt

        return report


def run(work: Path, watch: Watch, *names: str) -> None:
    """Run experiments for one seed without a word."""
    assert run_all(quick(work, watch), *names) == []


@pytest.fixture(scope="module")
def flips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of two models and two maps, never interrupted."""
    work = tmp_path_factory.mktemp("flips")
    run(work, Watch(), "flips")
    return work


def test_a_killed_run_goes_on_where_it_was(flips: Path, tmp_path: Path) -> None:
    """Stopped in the middle of the second model, the end is as if nothing had happened."""
    watch = Watch(stop=("tiny-0toend", 1))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, watch, "flips")
    assert list((tmp_path / "models").glob("*0toend*.checkpoint.safetensors"))
    again = Watch()
    run(tmp_path, again, "flips")
    assert again.trained == ["tiny-0toend"]
    assert not list((tmp_path / "models").glob("*.checkpoint.safetensors"))
    assert result(tmp_path, "flips") == result(flips, "flips")


def test_a_run_without_time_leaves_everything_for_the_next(tmp_path: Path) -> None:
    """What is left is named, and nothing half is written."""
    left = run_all(quick(tmp_path, seeds=2, minutes=0), "flips", "sigma")
    assert left == [("flips", 0), ("sigma", 0), ("flips", 1), ("sigma", 1)]
    assert not (tmp_path / "results").exists()


def test_a_second_table_reuses_models_and_maps(flips: Path) -> None:
    """`sigma` studies the same update: it trains no model, and only the maps it lacks."""
    maps = set((flips / "maps").iterdir())
    watch = Watch()
    run(flips, watch, "sigma")
    assert watch.trained == []
    assert maps < set((flips / "maps").iterdir())


def test_a_result_says_where_it_comes_from(flips: Path) -> None:
    """Data, seed, device, models with their epochs, and the map."""
    found = result(flips, "flips")
    assert (found["data"], found["seed"], found["device"]) == ("digits", 0, "cpu")
    assert found["models"]["old"]["model"] == "tiny-0to5"
    assert found["models"]["old"]["epochs"] == 2
    assert found["map"] == {"method": "residual", "epochs": 1, "views": 2}


def test_a_result_says_how_long_what_was_not_there_took(flips: Path, tmp_path: Path) -> None:
    """The first table trains the models, one that follows has the time of its own maps alone."""
    run(tmp_path, Watch(), "flips", "sigma")
    first, second = (
        json.loads((tmp_path / "results" / "digits" / f"{name}-seed0.json").read_text())["seconds"]
        for name in ("flips", "sigma")
    )
    assert "training of tiny-0to5, seed 0" in first["stages"]
    assert not any(name.startswith("training of") for name in second["stages"])
    assert any(name.startswith("map ") for name in second["stages"])
    for found in (first, second):
        assert 0 < sum(found["stages"].values()) <= found["all"] + 0.1


def models(images: ImageSet, work: Path, effort: float = 1.0) -> ModelCache:
    return ModelCache(images, work, torch.device("cpu"), effort=effort)


def test_what_is_cached_is_addressed_by_everything_it_depends_on(tmp_path: Path) -> None:
    """Data, seed, epochs, network and, for BCT, the old model: each changes the key."""
    images = quick(tmp_path).models.images
    update = MODEL_UPDATES["digits"]["half"]
    bct = update.new.compatible(update.old, "bct")
    other = dataclasses.replace(images, fingerprint="another set")
    keys = [
        models(images, tmp_path).key(update.old, 0),
        models(images, tmp_path).key(update.old, 1),
        models(images, tmp_path).key(update.new, 0),
        models(images, tmp_path, effort=0.5).key(update.old, 0),
        models(other, tmp_path).key(update.old, 0),
        models(images, tmp_path).key(bct, 0),
        models(images, tmp_path).key(dataclasses.replace(bct, old=update.new), 0),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == models(images, tmp_path / "elsewhere").key(update.old, 0)


def test_what_is_kept_is_small(flips: Path) -> None:
    """Features as float16, and no images."""
    for path in (flips / "models").glob("*.npz"):
        with np.load(path) as file:
            assert file["test"].dtype == np.float16
    assert sum(p.stat().st_size for p in flips.rglob("*") if p.is_file()) < 2_000_000


def test_prepared_models_and_maps_are_those_that_a_run_uses(flips: Path, tmp_path: Path) -> None:
    """After preparing, a run trains no model and learns no map, and ends with the same result."""
    runner = quick(tmp_path)
    assert runner.prepare(choose_experiments(["flips"], "digits")) == 0
    made = {path for folder in ("models", "maps") for path in (tmp_path / folder).iterdir()}
    watch = Watch()
    run(tmp_path, watch, "flips")
    assert watch.trained == []
    assert made == {path for folder in ("models", "maps") for path in (tmp_path / folder).iterdir()}
    assert result(tmp_path, "flips") == result(flips, "flips")


def test_preparing_without_time_leaves_every_seed(tmp_path: Path) -> None:
    """The number of seeds that are left is returned."""
    runner = quick(tmp_path, seeds=3, minutes=0)
    assert runner.prepare(choose_experiments(["flips"], "digits")) == 3


def test_seeds_can_begin_anywhere(tmp_path: Path) -> None:
    """Two machines can share the seeds of an experiment."""
    assert run_all(quick(tmp_path, seeds=2, first_seed=4, minutes=0), "flips") == [
        ("flips", 4),
        ("flips", 5),
    ]


def test_held_out_classes_are_tested_on_and_never_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update with a hold-out runs from images to the gap between its groups."""
    biased = MODEL_UPDATES["digits"]["biased"]
    old = dataclasses.replace(biased.old, classes=Classes(drawn=(3, 1)))
    new = dataclasses.replace(biased.new, classes=Classes(drawn=(4, 4)), minority=(1,))
    update = dataclasses.replace(biased, old=old, new=new, hold_out=1)
    monkeypatch.setitem(MODEL_UPDATES["digits"], "biased", update)
    run(tmp_path, Watch(), "bias")
    labels = quick(tmp_path).models.images.train.labels
    trained: set[int] = set()
    for path in (tmp_path / "models").glob("*.npz"):
        with np.load(path) as file:
            trained |= set(file["classes"].tolist())
    held = sorted(set(range(10)) - trained)
    found = result(tmp_path, "bias")["tests"]["all"]
    assert [digit % 2 for digit in held] in ([0, 1], [1, 0])
    assert found["images"] == np.isin(labels, held).sum()
    assert set(found["groups"]["plain"]["new"]) == {"majority", "minority"}
