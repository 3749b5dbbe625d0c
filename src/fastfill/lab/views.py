"""Views of the training images: augmented as in training, the same view through every model.

The paper shows a freshly augmented image to both frozen models at every step of a map's training.
Here each model embeds some views of every image once, in half precision, and the map is shown
another one in each epoch. Banks of views stay on the device and are never written to disk.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fastfill.errors import TrainingError
from fastfill.features import Ints, PairView, PairViews
from fastfill.lab.backbones import Backbone
from fastfill.lab.data.augment import AUGMENTATIONS
from fastfill.lab.embedding import Embedder
from fastfill.lab.training import Feed

APART = 500_000  # the seeds of views from those of the epochs of training


def embed_views(
    backbone: Backbone, feed: Feed, rows: Ints, augment: str, count: int, seed: int
) -> Tensor:
    """A bank (count, n, d) in half precision on the device: views of the images `rows` (n,).

    The random numbers of a view depend on `seed`, the number of the view and the number of images,
    not on the model: whichever model embeds it, a view shows the same crops.
    """
    embedder = Embedder(backbone, feed)
    chosen = torch.as_tensor(rows, device=embedder.device)
    bank = torch.empty((count, len(rows), embedder.dim), dtype=torch.float16,
                       device=embedder.device)  # fmt: skip
    for number in range(count):
        torch.manual_seed(seed * 1_000_003 + APART + number)  # also CUDA's generator
        bank[number] = embedder(chosen, AUGMENTATIONS[augment])
    if not bool(bank.isfinite().all()):
        raise TrainingError(
            "A model gives features beyond the range of half precision. Train it with a lower "
            "learning rate, or learn its maps from fixed features: --views 0."
        )
    return bank


def pair_views(
    old: Tensor, new: Tensor, side: Tensor | None = None, *, unit: bool = False
) -> PairViews:
    """The views of pairs from the banks of two models, or of three; on the unit sphere if asked.

    >>> bank = torch.ones(4, 3, 2, dtype=torch.float16)
    >>> pair_views(bank, bank, unit=True).look(1).on_host()[0][0].round(2)
    array([0.71, 0.71], dtype=float32)
    """
    banks = [old, new] if side is None else [old, new, side]

    def make(number: int) -> PairView:
        rows = [bank[number].float() for bank in banks]
        return PairView(*(functional.normalize(each) if unit else each for each in rows))

    return PairViews.generated(len(old), make)
