"""The paper's model updates as data: which classes, which networks, which test classes.

A number of classes counts those that have training images, in the order of the data set; a range
of test classes counts those that have test images (for faces these are other people).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastfill.errors import InputError
from fastfill.features import Ints
from fastfill.lab.data.image_sets import ImageSet


@dataclass(frozen=True)
class Classes:
    """A range of classes, or so many of the majority and of the minority, drawn by the seed."""

    start: int = 0
    stop: int | None = None
    drawn: tuple[int, int] | None = None  # (majority, minority)

    def pick(self, available: Ints, minority: Ints, seed: int) -> Ints:
        """Class numbers, sorted; `minority` lists those of the minority group.

        With one seed, a smaller draw is part of a larger one.

        >>> Classes(0, 2).pick(np.array([3, 5, 8]), np.array([]), seed=0)
        array([3, 5])
        """
        if self.drawn is None:
            return available[self.start : self.stop]
        rng = np.random.default_rng(seed)
        is_minor = np.isin(available, minority)
        sides = (available[~is_minor], available[is_minor])
        for side, count, name in zip(sides, self.drawn, ("majority", "minority"), strict=True):
            if len(side) < count:
                raise InputError(f"The {name} has {len(side)} classes, {count} are needed.")
        drawn = [rng.permutation(s)[:n] for s, n in zip(sides, self.drawn, strict=True)]
        return np.sort(np.concatenate(drawn))


@dataclass(frozen=True)
class ModelSpec:
    """An embedding model: network, classes, objective; for BCT and RACT also the old model."""

    backbone: str
    classes: Classes = Classes()
    objective: str = "cross-entropy"
    dim: int = 128
    recipe: str = "small"
    old: ModelSpec | None = None
    minority: tuple[int, ...] = ()  # groups that are the minority, where classes are drawn

    def compatible(self, old: ModelSpec, objective: str) -> ModelSpec:
        """The same model trained to be compatible with an old one, by 'bct' or 'ract'."""
        own = "" if self.objective == "cross-entropy" else f"{self.objective}+"
        return replace(self, objective=own + objective, old=old)


@dataclass(frozen=True)
class ModelUpdate:
    """One model upgrade: what the paper calls an experiment's set-up."""

    old: ModelSpec
    new: ModelSpec
    tests: tuple[tuple[str, Classes], ...] = (("all", Classes()),)
    side: ModelSpec | None = None
    minority: tuple[int, ...] = ()  # groups that form the minority
    normalised: bool = False  # features are used on the unit sphere (ArcFace)
    per_class: int | None = None  # a fixed random subset of so many test images of each class
    hold_out: int | None = None  # identities of each group that the test set is made of


def in_minority(images: ImageSet, groups: tuple[int, ...]) -> Ints:
    """Class numbers of the minority."""
    if images.groups is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.isin(images.groups, groups))


def _r50(start: int, stop: int | None, dim: int = 128, recipe: str = "small") -> ModelSpec:
    return ModelSpec("resnet50", Classes(start, stop), dim=dim, recipe=recipe)


_TEN = tuple(range(10, 20))  # super-classes of CIFAR-100 that play the minority
_ARC18 = ModelSpec("resnet18", Classes(0, 25), "arcface", recipe="small-arcface")
_ARC50 = ModelSpec("resnet50", Classes(0, 50), "arcface", recipe="small-arcface")
_SIMCLR = ModelSpec("resnet18", Classes(0, 50), "simclr", recipe="small-simclr")
_UNSEEN = (("[:50]", Classes(0, 50)), ("[50:]", Classes(50)), ("all", Classes()))

_CIFAR = {
    "half": ModelUpdate(_r50(0, 50), _r50(0, None), side=_SIMCLR),
    "architecture": ModelUpdate(ModelSpec("resnet18"), _r50(0, None)),
    "unseen": ModelUpdate(_r50(0, 25), _r50(0, 50), tests=_UNSEEN),
    "biased": ModelUpdate(
        ModelSpec("resnet18", Classes(drawn=(50, 5)), minority=_TEN), _r50(0, None), minority=_TEN
    ),
    "faces": ModelUpdate(_ARC18, _ARC50, tests=(("[50:]", Classes(50)),), normalised=True),
}

_V15 = "resnet-v1.5"
_IMAGENET = {
    "half": ModelUpdate(
        _r50(0, 500, recipe=_V15), _r50(0, None, recipe=_V15),
        side=ModelSpec("resnet50", Classes(0, 500), "simclr", recipe=_V15),
    ),
    "architecture": ModelUpdate(ModelSpec("resnet18", recipe=_V15), _r50(0, None, recipe=_V15)),
    "unseen": ModelUpdate(
        _r50(0, 250, recipe=_V15), _r50(0, 500, recipe=_V15),
        tests=(("[:500]", Classes(0, 500)), ("[500:]", Classes(500)), ("all", Classes())),
    ),
}  # fmt: skip

_FACE_OLD = ModelSpec("resnet18", Classes(0, 863), "arcface", recipe=_V15)
_FACE_NEW = ModelSpec("resnet50", Classes(), "arcface", recipe=_V15)
_GENDERS = replace(_FACE_OLD, classes=Classes(drawn=(500, 50)), minority=(1,))
_BALANCED = replace(_FACE_NEW, classes=Classes(drawn=(2183, 2183)), minority=(1,))


def halved(classes: int) -> dict[str, ModelUpdate]:
    """The updates of a set of so many classes of small images, halved as the paper does."""
    half = classes // 2
    tests = ((f"[:{half}]", Classes(0, half)), (f"[{half}:]", Classes(half)), ("all", Classes()))
    return {
        "half": ModelUpdate(_r50(0, half), _r50(0, None)),
        "architecture": ModelUpdate(ModelSpec("resnet18"), _r50(0, None)),
        "unseen": ModelUpdate(_r50(0, classes // 4), _r50(0, half), tests=tests),
    }


def _digit(
    backbone: str, start: int, stop: int | None, objective: str = "cross-entropy"
) -> ModelSpec:
    return ModelSpec(backbone, Classes(start, stop), objective, dim=16, recipe="digits")


_DIGITS = {
    "half": ModelUpdate(
        _digit("tiny", 0, 5), _digit("tiny", 0, None), side=_digit("tiny-small", 0, 5, "simclr")
    ),
    "architecture": ModelUpdate(_digit("tiny-small", 0, None), _digit("tiny", 0, None)),
    "unseen": ModelUpdate(
        _digit("tiny", 0, 3), _digit("tiny", 0, 6),
        tests=(("[:6]", Classes(0, 6)), ("[6:]", Classes(6)), ("all", Classes())),
    ),
    "biased": ModelUpdate(
        replace(_digit("tiny-small", 0, None), classes=Classes(drawn=(5, 1)), minority=(1,)),
        _digit("tiny", 0, None), minority=(1,),
    ),
    "faces": ModelUpdate(
        _digit("tiny-small", 0, 3, "arcface"), _digit("tiny", 0, 6, "arcface"),
        tests=(("[6:]", Classes(6)),), normalised=True,
    ),
}  # fmt: skip

MODEL_UPDATES: dict[str, dict[str, ModelUpdate]] = {  # any other set of images is `halved`
    "cifar100": _CIFAR,
    "imagenet": _IMAGENET,
    "places365": {"half": ModelUpdate(_r50(0, 182, 512, _V15), _r50(0, None, 512, _V15))},
    "vggface2": {
        "faces": ModelUpdate(_FACE_OLD, _FACE_NEW, normalised=True, per_class=50),
        "biased": ModelUpdate(
            _GENDERS, _BALANCED, minority=(1,), normalised=True, per_class=50, hold_out=250
        ),
    },
    "tiny-imagenet": halved(200),
    "digits": _DIGITS,
}
