"""VGGFace2-Gender (Appendix A.1): the test identities are drawn from the training identities."""

from __future__ import annotations

import numpy as np

from fastfill.errors import InputError
from fastfill.features import Ints
from fastfill.lab.data.image_sets import ImageSet, digest


def hold_out(images: ImageSet, minority: Ints, count: int, seed: int) -> ImageSet:
    """The data set with a test split of `count` training classes of each side, drawn by the seed.

    `minority` lists the class numbers of one side. The official test split is not used,
    nor are classes of unknown group (−1), as in the paper.
    """
    if images.groups is None:
        raise InputError(f"{images.name} has no groups, so no classes of each can be held out.")
    labels = images.train.labels
    grouped = np.flatnonzero(images.groups >= 0)
    classes = np.intersect1d(np.unique(labels), grouped)
    is_minor = np.isin(classes, minority)
    rng = np.random.default_rng([seed, count])  # other numbers than those that draw the classes
    drawn = []
    for name, side in (("majority", classes[~is_minor]), ("minority", classes[is_minor])):
        if len(side) <= count:
            raise InputError(
                f"{images.name}: the {name} has {len(side)} classes, and {count} are to be held "
                "out for testing. Use the whole data set."
            )
        drawn.append(rng.permutation(side)[:count])
    held = np.concatenate(drawn)
    is_test = np.isin(labels, held)
    return ImageSet(
        images.name,
        images.classes,
        images.train.only(np.isin(labels, classes) & ~is_test),
        images.train.only(is_test),
        digest([images.fingerprint, "hold-out", *map(str, np.sort(held))]),
        images.groups,
    )
