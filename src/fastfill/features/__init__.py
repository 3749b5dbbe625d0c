"""Values and their validation, distances, files."""

from fastfill.features.distances import (
    DISTANCES,
    Distance,
    check_distance,
    normalised,
    pairwise,
)
from fastfill.features.files import (
    open_vectors,
    read_column,
    read_features,
    read_matrix,
    read_pairs,
)
from fastfill.features.pairs import Pairs
from fastfill.features.sources import Source, VectorFile
from fastfill.features.values import (
    Array,
    Features,
    Ints,
    Matrix,
    as_column,
    as_matrix,
    check_classes,
    check_finite,
    check_layout,
    check_positive,
    check_rows,
)
from fastfill.features.views import DeviceArray, PairView, PairViews, is_on_device
from fastfill.features.writing import check_target, replacing

__all__ = [
    "DISTANCES",
    "Array",
    "DeviceArray",
    "Distance",
    "Features",
    "Ints",
    "Matrix",
    "PairView",
    "PairViews",
    "Pairs",
    "Source",
    "VectorFile",
    "as_column",
    "as_matrix",
    "check_classes",
    "check_distance",
    "check_finite",
    "check_layout",
    "check_positive",
    "check_rows",
    "check_target",
    "is_on_device",
    "normalised",
    "open_vectors",
    "pairwise",
    "read_column",
    "read_features",
    "read_matrix",
    "read_pairs",
    "replacing",
]
