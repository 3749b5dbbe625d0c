"""Maps from old to new vectors: losses, training, calibration, the saved artefact."""

from fastfill.align.alignment import Alignment
from fastfill.align.correction import Corrected, Correction, correct
from fastfill.align.fitting import MIN_PAIRS, fit_alignment, fit_few, fit_part
from fastfill.align.fusion import KEEP, KEEPS, Fusion, QueryScale, Weights
from fastfill.align.held_out import held_out_scores
from fastfill.align.losses import LOSSES
from fastfill.align.methods import (
    METHOD_NAMES,
    METHODS,
    Method,
    check_installed,
    installed_or_kernel,
    relearned_by,
)
from fastfill.align.options import FitOptions
from fastfill.align.pilot import pilot_errors
from fastfill.align.reference import Reference
from fastfill.align.serving import SERVINGS, Serving, ServingOption, check_serving
from fastfill.align.values import Aligned

__all__ = [
    "KEEP",
    "KEEPS",
    "LOSSES",
    "METHODS",
    "METHOD_NAMES",
    "MIN_PAIRS",
    "SERVINGS",
    "Aligned",
    "Alignment",
    "Corrected",
    "Correction",
    "FitOptions",
    "Fusion",
    "Method",
    "QueryScale",
    "Reference",
    "Serving",
    "ServingOption",
    "Weights",
    "check_installed",
    "check_serving",
    "correct",
    "fit_alignment",
    "fit_few",
    "fit_part",
    "held_out_scores",
    "installed_or_kernel",
    "pilot_errors",
    "relearned_by",
]
