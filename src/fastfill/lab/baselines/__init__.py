"""Compatible training, the older answer to a model upgrade: each baseline is one loss."""

from fastfill.lab.baselines.bct import BCT, pseudo_classifier
from fastfill.lab.baselines.ract import RACT

__all__ = ["BCT", "RACT", "pseudo_classifier"]
