"""Values and their validation, distances, files."""

from fastfill.features.distances import (
    DISTANCES,
    Distance,
    check_distance,
    normalised,
    pairwise,
)
from fastfill.features.files import (
    Source,
    VectorFile,
    open_vectors,
    read_column,
    read_features,
    read_matrix,
    read_pairs,
    replacing,
)
from fastfill.features.values import (
    Array,
    Features,
    Matrix,
    Pairs,
    as_column,
    as_matrix,
    check_classes,
    check_finite,
    check_positive,
    check_rows,
)

__all__ = [
    "DISTANCES",
    "Array",
    "Distance",
    "Features",
    "Matrix",
    "Pairs",
    "Source",
    "VectorFile",
    "as_column",
    "as_matrix",
    "check_classes",
    "check_distance",
    "check_finite",
    "check_positive",
    "check_rows",
    "normalised",
    "open_vectors",
    "pairwise",
    "read_column",
    "read_features",
    "read_matrix",
    "read_pairs",
    "replacing",
]
