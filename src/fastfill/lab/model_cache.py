"""Trained models, cached by content: a model is trained once, its features are used by all tables.

What is kept is small: float16 features of the train and test images, the classifier and the
weights. Views of the training images (`views`) are embedded when a map is learned from them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fastfill.errors import InputError, TrainingError
from fastfill.features import Ints, Matrix, normalised, replacing
from fastfill.lab.backbones import Backbone, build
from fastfill.lab.baselines import BCT, RACT, pseudo_classifier
from fastfill.lab.clock import StageClock
from fastfill.lab.data.image_sets import Images, ImageSet, digest
from fastfill.lab.embedding import Embedder, embed, embed_all
from fastfill.lab.model_files import (
    ModelFeatures,
    made_folder,
    read_features,
    read_weights,
    weights_path,
    write_features,
    write_weights,
)
from fastfill.lab.model_updates import ModelSpec, in_minority
from fastfill.lab.objectives import ArcFace, CrossEntropy, Objective, SimCLR
from fastfill.lab.recipes import RECIPES, Recipe
from fastfill.lab.training import Feed, Report, Trained, device_name, train
from fastfill.lab.views import embed_views

RACT_RATES = (1.0, 0.1, 0.01)  # powers of ten, as the paper searches them
SEARCH_EPOCHS = 6  # at most, for each of these rates; else a quarter of the epochs
SEARCH_IMAGES = 20_000  # at most

BankKey = tuple[int, str, str, int, str]  # seed, model, augmentation, views, images


class ModelCache:
    """Trains the models of one data set, or reads their features from the cache."""

    def __init__(
        self,
        images: ImageSet,
        work: Path,
        device: torch.device,
        *,
        effort: float = 1.0,
        clock: StageClock | None = None,
        report: Callable[[str], Report] | None = None,
    ) -> None:
        self.images, self.work, self.device = images, work, device
        self.effort, self.clock, self.report = effort, clock or StageClock(), report
        self._banks: dict[BankKey, Tensor] = {}

    def on(self, images: ImageSet) -> ModelCache:
        """The same for another data set, or another division of this one."""
        return ModelCache(
            images, self.work, self.device, effort=self.effort, clock=self.clock, report=self.report
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

    def features(self, model: ModelSpec, seed: int, *, weights: bool = False) -> ModelFeatures:
        """The model's features, trained now if they, or the weights asked for, are not here."""
        path = self.path(model, seed)
        if not path.is_file() or (weights and not weights_path(path).is_file()):
            self._train(model, seed, path)
        return read_features(path)

    def backbone(self, model: ModelSpec, seed: int) -> Backbone:
        """The trained network, from its file."""
        self.features(model, seed, weights=True)
        backbone = build(model.backbone, model.dim, self.images.shape)
        read_weights(weights_path(self.path(model, seed)), backbone)
        return backbone

    def views(self, model: ModelSpec, seed: int, rows: Ints, *, augment: str, count: int) -> Tensor:
        """Features (count, n, d) of views of the training images `rows`, kept on the device.

        They are embedded once for all maps of a seed, and given up when another seed comes.
        """
        key = (seed, self.key(model, seed), augment, count, digest([rows.tobytes()]))
        self._banks = {other: bank for other, bank in self._banks.items() if other[0] == seed}
        if key not in self._banks:
            backbone = self.backbone(model, seed)
            with self.clock.stage(f"{count} views by {describe(model)}, seed {seed}"):
                self._banks[key] = embed_views(backbone, self.feed, rows, augment, count, seed)
        return self._banks[key]

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
        run = self._fit(backbone, objective, rows, labels, recipe, model, seed)
        with self.clock.stage(f"features of {describe(model)}, seed {seed}"):
            write_weights(weights_path(path), backbone)
            features = self._embedded(backbone, objective.head, classes, _by_angle(model))
        features.facts.update(_speed(run), lr=recipe.lr, device=device_name(self.device))
        write_features(path, features)

    def _fit(
        self, backbone: Backbone, objective: Objective, rows: Ints, labels: Ints, recipe: Recipe,
        model: ModelSpec, seed: int,
    ) -> Trained:  # fmt: skip
        """Train in place; a checkpoint is left when the time is over."""
        checkpoint = self.path(model, seed).with_suffix(".checkpoint.safetensors")
        with self.clock.stage(f"training of {describe(model)}, seed {seed}"):
            report = None if self.report is None else self.report(f"{describe(model)} seed {seed}")
            return train(
                backbone, objective, self.feed, rows, labels, recipe, seed=seed,
                checkpoint=checkpoint, until=self.clock.until, report=report,
            )  # fmt: skip

    def _embedded(
        self, backbone: Backbone, classifier: Tensor | None, classes: Ints, by_angle: bool
    ) -> ModelFeatures:
        """The features of all images, the classifier, and how well it knows its classes."""
        embedder = Embedder(backbone, self.feed)
        train, test = embed_all(embedder), embed_all(embedder, self.tests)
        head = None if classifier is None else classifier.detach().float().cpu().numpy()
        facts: dict[str, float | str] = {}
        if head is not None:
            judge = normalised(head, "classifier") if by_angle else head
            splits = (("train", train, self.images.train), ("test", test, self.images.test))
            for split, vectors, images in splits:
                facts |= _accuracy(f"{split}_accuracy", vectors, images, judge, classes)
        return ModelFeatures(train, test, head, classes, facts)

    def _rows(self, model: ModelSpec, seed: int) -> tuple[Ints, Ints, Ints]:
        """Classes, and the rows of their training images with labels from 0."""
        classes = self.classes(model, seed)
        rows = np.flatnonzero(np.isin(self.images.train.labels, classes))
        return classes, rows, np.searchsorted(classes, self.images.train.labels[rows])

    def _ract_rate(self, model: ModelSpec) -> float:
        """The learning rate of RACT, by short trainings on 9 of 10 training images, if not fewer.

        The rate is kept whose model finds most neighbours of the right class among the other
        images, searched with new features half of the time in old ones and half in new ones.
        The search is done once per model, with seed 0, as its result hardly depends on the seed.
        """
        path = self.work / "models" / f"{self.images.name}-ract-{self.key(model, 0)}.json"
        if not path.is_file():
            with self.clock.stage(f"search for the rate of {describe(model)}"):
                scores = {str(rate): self._ract_score(model, rate) for rate in RACT_RATES}
            with replacing(made_folder(path)) as draft:
                draft.write_text(json.dumps(scores))
        scores = json.loads(path.read_text())
        return float(max(scores, key=lambda rate: scores[rate]))

    def _search_recipe(self, model: ModelSpec, rate: float) -> Recipe:
        full = self.recipe(model)
        share = min(0.25, SEARCH_EPOCHS / full.epochs)
        return dataclasses.replace(full.scaled(share), lr=rate)

    def _ract_score(self, model: ModelSpec, rate: float) -> float:
        if model.old is None:
            raise InputError("RACT needs the old model it is to be compatible with.")
        old = self.features(model.old, 0)
        classes, rows, labels = self._rows(model, 0)
        held = np.arange(len(rows)) % 10 == 0
        kept = np.flatnonzero(~held)
        kept = kept[:: -(-len(kept) // SEARCH_IMAGES)]
        recipe = self._search_recipe(model, rate)
        torch.manual_seed(0)
        backbone = build(model.backbone, model.dim, self.images.shape)
        objective = _objective(model, classes, labels[kept], rows[kept], old, recipe)
        try:
            train(backbone, objective, self.feed, rows[kept], labels[kept], recipe)
        except TrainingError:
            return 0.0
        others = rows[held]
        new = embed(backbone, self.feed, self.feed.pixels[torch.as_tensor(others)])
        truth = self.images.train.labels[others]
        return (_nearest(new, old.train[others], truth) + _nearest(new, new, truth)) / 2


def _speed(run: Trained) -> dict[str, float | str]:
    return {"loss": run.loss, "images_per_s": run.images_per_s, "seconds": round(run.seconds, 1)}


def _accuracy(
    name: str, vectors: Matrix, images: Images, head: Matrix, classes: Ints
) -> dict[str, float | str]:
    """Share of the images of its own classes that a classifier gets right; nothing without any."""
    own = np.flatnonzero(np.isin(images.labels, classes))
    if not len(own):
        return {}
    guessed = classes[(vectors[own] @ head.T).argmax(1)]
    return {name: round(float((guessed == images.labels[own]).mean()), 4)}


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
    if _by_angle(model):
        return ArcFace(classes, model.dim)
    return CrossEntropy(classes, model.dim, recipe.smoothing)


def _by_angle(model: ModelSpec) -> bool:
    return model.objective.startswith("arcface")


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
