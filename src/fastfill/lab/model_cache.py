"""Trained models, cached by content: a model is trained once, its features are used by all tables.

What is kept is small: float16 features of the train and test images and the classifier.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastfill.errors import InputError, TrainingError
from fastfill.features import Ints, Matrix, replacing
from fastfill.lab.backbones import build
from fastfill.lab.baselines import BCT, RACT, pseudo_classifier
from fastfill.lab.data.image_sets import ImageSet, digest
from fastfill.lab.model_updates import ModelSpec, in_minority
from fastfill.lab.objectives import ArcFace, CrossEntropy, Objective, SimCLR
from fastfill.lab.recipes import RECIPES, Recipe
from fastfill.lab.training import Feed, Report, device_name, embed, train

RACT_RATES = (1.0, 0.1, 0.01)  # powers of ten, as the paper searches them


@dataclass(frozen=True, eq=False)
class ModelFeatures:
    """What is kept of a trained model: its features of all images, and its classifier."""

    train: Matrix  # (n, d) features of all training images, also of classes it was not trained on
    test: Matrix  # (m, d)
    head: Matrix | None  # (classes, d); row i belongs to the i-th of `classes`
    classes: Ints  # the classes it was trained on
    facts: dict[str, float | str]  # how it was trained: last loss, speed, rate, device


class ModelCache:
    """Trains the models of one data set, or reads their features from the cache."""

    def __init__(
        self,
        images: ImageSet,
        work: Path,
        device: torch.device,
        *,
        effort: float = 1.0,
        until: float | None = None,
        report: Callable[[str], Report] | None = None,
    ) -> None:
        self.images, self.work, self.device = images, work, device
        self.effort, self.until, self.report = effort, until, report

    def on(self, images: ImageSet) -> ModelCache:
        """The same for another data set, or another division of this one."""
        return ModelCache(
            images, self.work, self.device, effort=self.effort, until=self.until, report=self.report
        )

    @cached_property
    def feed(self) -> Feed:
        """The training images on the device."""
        train = self.images.train
        return Feed.to_device(train.pixels, self.device, train.rows)

    @cached_property
    def tests(self) -> Tensor:
        """The test images on the device."""
        test = self.images.test
        return Feed.to_device(test.pixels, self.device, test.rows).pixels

    def recipe(self, model: ModelSpec) -> Recipe:
        """The recipe that the model is trained with here."""
        return RECIPES[model.recipe].scaled(self.effort)

    def key(self, model: ModelSpec, seed: int) -> str:
        """Stands for everything that the features depend on."""
        what = {"model": dataclasses.asdict(model), "seed": seed}
        what["recipe"] = dataclasses.asdict(self.recipe(model))
        if model.old is not None:
            what["old"] = self.key(model.old, seed)
        return digest([self.images.fingerprint, json.dumps(what, sort_keys=True)])

    def path(self, model: ModelSpec, seed: int) -> Path:
        """The file that holds, or will hold, the model's features."""
        name = f"{self.images.name}-{describe(model)}-seed{seed}-{self.key(model, seed)}"
        return self.work / "models" / f"{name}.npz"

    def features(self, model: ModelSpec, seed: int) -> ModelFeatures:
        """The model's features, trained now if they are not in the cache."""
        path = self.path(model, seed)
        if not path.is_file():
            self._train(model, seed, path)
        return read_features(path)

    def classes(self, model: ModelSpec, seed: int) -> Ints:
        """The classes that the model is trained on."""
        available = np.unique(self.images.train.labels)
        return model.classes.pick(available, in_minority(self.images, model.minority), seed)

    def _train(self, model: ModelSpec, seed: int, path: Path) -> None:
        old = None if model.old is None else self.features(model.old, seed)
        recipe = self.recipe(model)
        if model.objective.endswith("ract"):
            recipe = dataclasses.replace(recipe, lr=self._ract_rate(model))
        classes, rows, labels = self._rows(model, seed)
        torch.manual_seed(seed)
        backbone = build(model.backbone, model.dim, self.images.shape)
        objective = _objective(model, classes, labels, rows, old, recipe)
        report = None if self.report is None else self.report(f"{describe(model)} seed {seed}")
        checkpoint = path.with_suffix(".checkpoint.safetensors")
        run = train(
            backbone, objective, self.feed, rows, labels, recipe, seed=seed,
            checkpoint=checkpoint, until=self.until, report=report,
        )  # fmt: skip
        head = objective.head
        features = ModelFeatures(
            embed(backbone, self.feed),
            embed(backbone, self.feed, self.tests),
            None if head is None else head.detach().float().cpu().numpy(),
            classes,
            {
                "loss": run.loss,
                "images_per_s": run.images_per_s,
                "lr": recipe.lr,
                "device": device_name(self.device),
            },
        )
        write_features(path, features)

    def _rows(self, model: ModelSpec, seed: int) -> tuple[Ints, Ints, Ints]:
        """Classes, and the rows of their training images with labels from 0."""
        classes = self.classes(model, seed)
        rows = np.flatnonzero(np.isin(self.images.train.labels, classes))
        return classes, rows, np.searchsorted(classes, self.images.train.labels[rows])

    def _ract_rate(self, model: ModelSpec) -> float:
        """The learning rate of RACT: a quarter of the epochs each, on 9 of 10 training images.

        The rate is kept whose model finds most neighbours of the right class among the other
        images, searched with new features half of the time in old ones and half in new ones.
        The search is done once per model, with seed 0, as its result hardly depends on the seed.
        """
        path = self.work / "models" / f"{self.images.name}-ract-{self.key(model, 0)}.json"
        if not path.is_file():
            scores = {str(rate): self._ract_score(model, rate) for rate in RACT_RATES}
            with replacing(_parent(path)) as draft:
                draft.write_text(json.dumps(scores))
        scores = json.loads(path.read_text())
        return float(max(scores, key=lambda rate: scores[rate]))

    def _ract_score(self, model: ModelSpec, rate: float) -> float:
        if model.old is None:
            raise InputError("RACT needs the old model it is to be compatible with.")
        old = self.features(model.old, 0)
        classes, rows, labels = self._rows(model, 0)
        full = self.recipe(model)
        recipe = dataclasses.replace(full.scaled(0.25), lr=rate)
        held = np.arange(len(rows)) % 10 == 0
        torch.manual_seed(0)
        backbone = build(model.backbone, model.dim, self.images.shape)
        objective = _objective(model, classes, labels[~held], rows[~held], old, recipe)
        try:
            train(backbone, objective, self.feed, rows[~held], labels[~held], recipe)
        except TrainingError:
            return 0.0
        others = rows[held]
        new = embed(backbone, self.feed, self.feed.pixels[torch.as_tensor(others)])
        truth = self.images.train.labels[others]
        return (_nearest(new, old.train[others], truth) + _nearest(new, new, truth)) / 2


def _nearest(queries: Matrix, gallery: Matrix, labels: Ints) -> float:
    """Share of queries whose nearest other item has their label."""
    right = 0
    for start in range(0, len(queries), 1024):
        q = torch.from_numpy(queries[start : start + 1024])
        distances = torch.cdist(q, torch.from_numpy(np.ascontiguousarray(gallery)))
        own = torch.arange(start, start + len(q))
        distances[torch.arange(len(q)), own] = float("inf")
        right += int((labels[distances.argmin(1).numpy()] == labels[own.numpy()]).sum())
    return right / len(queries)


def _objective(
    model: ModelSpec,
    classes: Ints,
    labels: Ints,
    rows: Ints,
    old: ModelFeatures | None,
    recipe: Recipe,
) -> Objective:
    """The objective of a model; `rows` and `labels` are those it is trained on."""
    if model.objective == "simclr":
        return SimCLR(model.dim)
    if model.objective in ("cross-entropy", "arcface"):
        return _classifier(model, len(classes), recipe)
    if old is None:
        raise InputError(f"{model.objective} needs an old model to be compatible with.")
    if old.train.shape[1] != model.dim:
        raise InputError(
            f"{model.objective} needs old and new features of one length, "
            f"got {old.train.shape[1]} and {model.dim}."
        )
    features = torch.from_numpy(np.ascontiguousarray(old.train[rows]))
    if model.objective.endswith("ract"):
        return RACT(_classifier(model, len(classes), recipe), features)
    if model.objective == "bct":
        former = _old_classifier(classes, labels, features, old)
        return BCT(len(classes), former, recipe.smoothing)
    raise InputError(f"Unknown objective {model.objective!r}.")


def _classifier(model: ModelSpec, classes: int, recipe: Recipe) -> CrossEntropy:
    """The model's own loss, whatever else it is trained for."""
    if model.objective.startswith("arcface"):
        return ArcFace(classes, model.dim)
    return CrossEntropy(classes, model.dim, recipe.smoothing)


def _old_classifier(classes: Ints, labels: Ints, features: Tensor, old: ModelFeatures) -> Tensor:
    """The old classifier in the new model's numbering, with rows for the classes it lacks."""
    if old.head is None:
        raise InputError("BCT needs the old model's classifier, and this model has none.")
    return pseudo_classifier(
        torch.from_numpy(old.head),
        torch.from_numpy(np.searchsorted(classes, old.classes)),
        features,
        torch.from_numpy(labels),
    )


def describe(model: ModelSpec) -> str:
    """A short name: network, classes, objective.

    >>> from fastfill.lab.model_updates import Classes
    >>> describe(ModelSpec("resnet50", Classes(0, 50)))
    'resnet50-0to50'
    """
    classes = model.classes
    which = (
        f"{classes.start}to{'end' if classes.stop is None else classes.stop}"
        if classes.drawn is None
        else f"{classes.drawn[0]}and{classes.drawn[1]}"
    )
    objective = "" if model.objective == "cross-entropy" else f"-{model.objective}"
    old = "" if model.old is None else f"-with-{describe(model.old)}"
    return f"{model.backbone}-{which}{objective}{old}"


def _parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_features(path: Path, features: ModelFeatures) -> None:
    """Features as float16, the classifier as float32; whole or not at all."""
    arrays: dict[str, Any] = {
        "train": features.train.astype(np.float16),
        "test": features.test.astype(np.float16),
        "classes": features.classes,
        "facts": np.array(json.dumps(features.facts)),
    }
    if features.head is not None:
        arrays["head"] = features.head
    with replacing(_parent(path)) as draft, draft.open("wb") as file:
        np.savez(file, **arrays)


def read_features(path: Path) -> ModelFeatures:
    """What `write_features` wrote; float32 inside."""
    with np.load(path, allow_pickle=False) as file:
        return ModelFeatures(
            file["train"].astype(np.float32),
            file["test"].astype(np.float32),
            file["head"].astype(np.float32) if "head" in file else None,
            file["classes"].astype(np.int64),
            json.loads(str(file["facts"])),
        )
