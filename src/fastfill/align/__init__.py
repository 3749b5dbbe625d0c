"""Maps from old to new vectors: losses, training, calibration, the saved artefact."""

from fastfill.align.alignment import Alignment
from fastfill.align.correction import Corrected, Correction, correct
from fastfill.align.fitting import fit_alignment, fit_part
from fastfill.align.losses import LOSSES
from fastfill.align.methods import AUTO, METHODS
from fastfill.align.values import Aligned

__all__ = [
    "AUTO",
    "LOSSES",
    "METHODS",
    "Aligned",
    "Alignment",
    "Corrected",
    "Correction",
    "correct",
    "fit_alignment",
    "fit_part",
]
