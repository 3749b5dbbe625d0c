"""The stages of one model update and one seed, each cached by content.

Features of both models (`model_cache`), test images aligned by a map, curves of every system.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Aligned, Alignment
from fastfill.errors import InputError
from fastfill.features import Features, Ints, Matrix, Pairs, PairViews, normalised, replacing
from fastfill.lab.data.image_sets import digest
from fastfill.lab.model_cache import ModelCache
from fastfill.lab.model_files import ModelFeatures
from fastfill.lab.model_updates import Classes, ModelSpec, ModelUpdate, in_minority
from fastfill.lab.systems import System
from fastfill.lab.views import pair_views

if TYPE_CHECKING:
    from fastfill.align.losses import Discriminative
    from fastfill.evaluate import Curve
    from fastfill.order import Order

METRICS = ("cmc@1", "cmc@5", "map")
POINTS = 21
PILOT = 0.03  # share of the gallery that a map which learns on the way is corrected by first


@dataclass(frozen=True)
class MapOptions:
    """How maps are learned here."""

    method: str = "paper"
    epochs: int | None = None
    views: int = 20  # of each training image; 0: its fixed features


@dataclass(frozen=True, eq=False)
class TestSet:
    """A test set: gallery and queries are the same images, a query is never its own answer."""

    name: str
    rows: Ints  # of the test images
    labels: Ints  # class numbers of the data set
    numbered: Ints | None  # the same as row numbers of the new head, where all are in it
    minority: NDArray[np.bool_]  # whether an image belongs to the minority group


class UpdateStages:
    """Features, maps and curves of one update and one seed; what was made before is read back."""

    def __init__(
        self,
        models: ModelCache,
        update: ModelUpdate,
        seed: int,
        options: MapOptions,
    ) -> None:
        self.models, self.update, self.seed, self.options = models, update, seed, options
        self.clock = models.clock
        self.device = models.device.type
        self.images = models.images

    def model(self, name: str) -> ModelSpec:
        """The model spec behind 'new', 'old', 'side', 'bct' or 'ract'."""
        update = self.update
        if name in ("bct", "ract"):
            return update.new.compatible(update.old, name)
        model = {"new": update.new, "old": update.old, "side": update.side}[name]
        if model is None:
            raise InputError("This update has no model that gives side-information.")
        return model

    def features(self, name: str) -> ModelFeatures:
        """Features of one of the models, on the unit sphere where the update wants that."""
        weights = self.options.views > 0 and name in ("old", "new", "side")
        features = self.models.features(self.model(name), self.seed, weights=weights)
        if not self.update.normalised:
            return features
        train, test = (_unit(matrix) for matrix in (features.train, features.test))
        return ModelFeatures(train, test, features.head, features.classes, features.facts)

    @cached_property
    def new(self) -> ModelFeatures:
        """Features of the new model."""
        return self.features("new")

    @cached_property
    def old(self) -> ModelFeatures:
        """Features of the old model."""
        return self.features("old")

    def possible(self, systems: Iterable[System], without: Sequence[str] = ()) -> list[System]:
        """The systems that this update allows, less those of the models `without`.

        Without a map, old and new vectors must have one length. BCT's influence loss is a
        cross-entropy: the paper has no BCT for models trained by ArcFace.
        """
        same = self.update.old.dim == self.update.new.dim
        face = self.update.new.objective == "arcface"
        return [
            s
            for s in systems
            if s.model not in without
            and (same or s.loss is not None)
            and not (face and s.model == "bct")
        ]

    def tests(self) -> list[TestSet]:
        """The test sets of the update."""
        return [self._test(name, classes) for name, classes in self.update.tests]

    def _test(self, name: str, classes: Classes) -> TestSet:
        labels = self.images.test.labels
        minority = in_minority(self.images, self.update.minority)
        chosen = classes.pick(np.unique(labels), minority, self.seed)
        rows = np.flatnonzero(np.isin(labels, chosen))
        if self.update.per_class is not None:
            rows = _subset(rows, labels, self.update.per_class)
        trained = self.new.classes
        numbered = np.searchsorted(trained, labels[rows])
        inside = np.isin(labels[rows], trained).all()
        return TestSet(
            name, rows, labels[rows], numbered if inside else None,
            np.isin(labels[rows], minority),
        )  # fmt: skip

    def aligned(self, loss: str, side: bool = False, disc: Discriminative | None = None) -> Aligned:
        """All test images aligned by the map of that loss; float16 in the cache.

        `disc`: the discriminative term; by default the loss that the new model is trained by.
        """
        path = self._map_path(loss, side, disc)
        if not path.is_file():
            pairs = self._pairs(side)
            name = f"map {loss}{' + side' if side else ''}{f' by {disc}' if disc else ''}"
            with self.clock.stage(f"{name}, seed {self.seed}"):
                self._align(pairs, loss, side, disc or self._trained_by, path)
        with np.load(path, allow_pickle=False) as file:
            return Aligned(file["vectors"].astype(np.float32), file["variance"])

    @property
    def _trained_by(self) -> Discriminative:
        """The loss of the new model's classifier."""
        return "arcface" if self.update.new.objective == "arcface" else "cross-entropy"

    def _map_path(self, loss: str, side: bool, disc: Discriminative | None) -> Path:
        """The file that holds, or will hold, the aligned test images."""
        key = self._key("map", loss, str(side), disc or "", json.dumps(asdict(self.options)))
        name = f"{self.images.name}-{loss}{'-side' if side else ''}-seed{self.seed}-{key}.npz"
        return self.models.work / "maps" / name

    def _pairs(self, side: bool) -> Pairs:
        """The training images of the new model's classes under both models, with their views."""
        labels = self.images.train.labels
        rows = np.flatnonzero(np.isin(labels, self.new.classes))
        numbered = np.searchsorted(self.new.classes, labels[rows])
        return Pairs(
            Features(self.old.train[rows]),
            Features(self.new.train[rows], labels=numbered),
            self.features("side").train[rows] if side else None,
            self._views(rows, side) if self.options.views else None,
        )

    def _views(self, rows: Ints, side: bool) -> PairViews:
        """Views by the new model's augmentation, the same ones through every model."""
        names = ("old", "new", "side") if side else ("old", "new")
        augment = self.models.recipe(self.update.new).augment
        banks = [
            self.models.views(
                self.model(name), self.seed, rows, augment=augment, count=self.options.views
            )
            for name in names
        ]
        return pair_views(*banks, unit=self.update.normalised)

    def _align(self, pairs: Pairs, loss: str, side: bool, disc: Discriminative, path: Path) -> None:
        alignment = Alignment.fit(
            pairs, method=self.options.method, loss=loss, head=self.new.head, seed=self.seed,
            device=self.device, epochs=self.options.epochs, discriminative=disc,
        )  # fmt: skip
        aligned = alignment(self.old.test, self.features("side").test if side else None)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft, draft.open("wb") as file:
            np.savez(
                file, vectors=aligned.vectors.astype(np.float16), variance=aligned.variance,
                facts=np.array(json.dumps(alignment.facts)),
            )  # fmt: skip

    def start(self, system: System) -> Aligned:
        """The gallery of a system before any backfilling, over all test images."""
        if system.loss is None:
            return Aligned(self.old.test, np.zeros(len(self.old.test), np.float32))
        return self.aligned(system.loss, system.side, system.disc)

    def order(self, system: System, test: TestSet) -> Order:
        """The order that a system backfills a test gallery in."""
        from fastfill.order import PolicyInput, arrange

        whole, target = self.start(system), self._target(system)
        head = target.head
        numbered = test.numbered if system.model == "new" else None
        inputs = PolicyInput(
            whole.take(test.rows),
            old=self.old.test[test.rows],
            head=None if head is None else self._scaled(head),
            new=target.test[test.rows],
            labels=numbered,
            seed=self.seed,
        )
        return arrange(system.policy, inputs, evaluating=True)

    def curves(self, system: System, test: TestSet) -> dict[str, Curve]:
        """The curves of a system, with the values of each query."""
        key = self._key("curves", json.dumps(asdict(system)), test.name,
                        json.dumps(asdict(self.options)))  # fmt: skip
        path = self.models.work / "curves" / f"{self.images.name}-{key}.npz"
        if not path.is_file():
            start = self.start(system).take(test.rows)
            measure = self._learning_curves if system.learns else self._fixed_curves
            with self.clock.stage(f"curve {system.name}, seed {self.seed}"):
                curves = measure(system, test, start)
            _write_curves(path, curves)
        return _read_curves(path, system.name)

    def _fixed_curves(self, system: System, test: TestSet, start: Aligned) -> dict[str, Curve]:
        """One map and one order."""
        from fastfill.evaluate import backfill_curves

        return backfill_curves(
            start, self._target(system).test[test.rows], test.labels, metrics=METRICS,
            points=POINTS, policy=self.order(system, test), device=self.device,
        )  # fmt: skip

    def _learning_curves(self, system: System, test: TestSet, start: Aligned) -> dict[str, Curve]:
        """The map is corrected by the pairs of the gallery, whenever those have grown."""
        from fastfill.align import MIN_PAIRS, Correction
        from fastfill.evaluate import adaptive_curves

        old, new, head = self.old.test[test.rows], self.new.test[test.rows], self.new.head
        means = None if head is None else self._class_means()

        def learn(rows: Ints) -> Aligned:
            correction = Correction.fit(
                old[rows], start.h[rows], new[rows], head=head, means=means, seed=self.seed
            )
            return correction(old, start.h)

        return adaptive_curves(
            old, new, test.labels, pairs=max(MIN_PAIRS, round(PILOT * len(test.rows))),
            policy=system.policy,
            metrics=METRICS, points=POINTS, head=head, seed=self.seed, learn=learn,
            device=self.device,
        )  # fmt: skip

    def _class_means(self) -> Matrix:
        """The mean new vector of each class of the training images, (classes, d)."""
        labels = self.images.train.labels
        means = [self.new.train[labels == one].mean(0) for one in self.new.classes]
        return np.stack(means).astype(np.float32)

    def _target(self, system: System) -> ModelFeatures:
        return self.new if system.model == "new" else self.features(system.model)

    def _scaled(self, head: Matrix) -> Matrix:
        """The classifier as it reads features: by 64·cosine where it was trained by ArcFace."""
        return 64 * _unit(head) if self.update.new.objective == "arcface" else head

    def plain(self, test: TestSet) -> dict[str, dict[str, float]]:
        """old/old and new/new, the two levels that every curve lies between."""
        from fastfill.evaluate import plain_metrics

        ends = {"old/old": self.old, "new/new": self.new}
        return {
            name: plain_metrics(
                None, features.test[test.rows], test.labels, metrics=METRICS, device=self.device
            )
            for name, features in ends.items()
        }

    def _key(self, *parts: str) -> str:
        keys = [self.models.key(self.model(name), self.seed) for name in ("old", "new")]
        side = "" if self.update.side is None else self.models.key(self.update.side, self.seed)
        return digest([*keys, side, *parts])


def _unit(matrix: Matrix) -> Matrix:
    return normalised(matrix, "features of a network trained by ArcFace")


def _subset(rows: Ints, labels: Ints, per_class: int) -> Ints:
    """A fixed random subset of so many images of each class."""
    rng = np.random.default_rng(0)
    picked = [
        rng.permutation(rows[labels[rows] == label])[:per_class]
        for label in np.unique(labels[rows])
    ]
    return np.sort(np.concatenate(picked))


def _write_curves(path: Path, curves: dict[str, Curve]) -> None:
    arrays: dict[str, Any] = {}
    for name, curve in curves.items():
        if curve.per_query is None or curve.queries is None:
            raise InputError("Curves without the values of each query cannot be compared.")
        arrays[f"{name}/fractions"] = curve.fractions
        arrays[f"{name}/values"] = curve.values
        arrays[f"{name}/queries"] = curve.queries.astype(np.int32)
        arrays[f"{name}/per_query"] = curve.per_query.astype(np.float16)
        arrays[f"{name}/excluded"] = np.array(curve.excluded)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _read_curves(path: Path, name: str) -> dict[str, Curve]:
    from fastfill.evaluate import Curve

    with np.load(path, allow_pickle=False) as file:
        return {
            metric: Curve(
                metric,
                file[f"{metric}/fractions"],
                file[f"{metric}/values"],
                name,
                file[f"{metric}/per_query"].astype(np.float32),
                file[f"{metric}/queries"].astype(np.int64),
                int(file[f"{metric}/excluded"]),
            )
            for metric in METRICS
        }
