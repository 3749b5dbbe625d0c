"""How a backbone is trained, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Recipe:
    """SGD with linear warm-up and cosine decay to zero."""

    epochs: int
    batch: int
    lr: float  # the highest, after the warm-up
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4  # of convolutions and classifiers, not of norms
    warmup: float = 2.0  # epochs
    smoothing: float = 0.1
    augment: str = "shifted"

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of a step, `steps` being those of one epoch.

        >>> recipe = Recipe(epochs=10, batch=8, lr=1.0, warmup=2.0)
        >>> [round(recipe.rate(step, 1), 2) for step in (0, 1, 2, 6, 9)]
        [0.5, 1.0, 1.0, 0.5, 0.04]
        """
        warm = self.warmup * steps
        if step < warm:
            return self.lr * (step + 1) / max(warm, 1)
        done = (step - warm) / max(self.epochs * steps - warm, 1)
        return self.lr * 0.5 * (1 + math.cos(math.pi * done))

    def scaled(self, effort: float) -> Recipe:
        """The same with a share of the epochs (at least 2); the warm-up is at most a quarter.

        >>> Recipe(epochs=32, batch=8, lr=1.0).scaled(0.5).epochs
        16
        """
        epochs = max(2, round(self.epochs * effort))
        return replace(self, epochs=epochs, warmup=min(self.warmup, epochs / 4))


RECIPES: dict[str, Recipe] = {
    # ResNet v1.5 of Appendix A.2, for ImageNet, Places and VGGFace2
    "resnet-v1.5": Recipe(
        epochs=100, batch=1024, lr=1.024, momentum=0.875, nesterov=False,
        weight_decay=2.0**-15, warmup=5.0, augment="rescaled",
    ),
    # 32 to 64 pixels. An H200 trains 26,800 images/s in batches of 1024, 23,800 in those of 512.
    # Strong augmentation keeps a model from memorising its images: a map, and above all σ², then
    # learns on training images what it meets on test images (docs/how-to/reproduce-the-paper.md).
    "small": Recipe(epochs=60, batch=1024, lr=0.6, warmup=5.0, augment="distorted"),
    "small-simclr": Recipe(epochs=60, batch=512, lr=0.5, weight_decay=1e-4, augment="distorted"),
    "small-arcface": Recipe(epochs=60, batch=512, lr=0.1, warmup=4.0, augment="distorted"),
    "digits": Recipe(epochs=10, batch=64, lr=0.6, weight_decay=5e-4, augment="nudged"),
}  # fmt: skip
