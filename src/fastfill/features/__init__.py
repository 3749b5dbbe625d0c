"""Values and their validation, distances, files."""

from fastfill.features.distances import (
    DISTANCES,
    Distance,
    check_distance,
    give_directions,
    normalised,
    pairwise,
)
from fastfill.features.files import (
    open_vectors,
    read_column,
    read_features,
    read_matrix,
    read_pairs,
    read_plain_look,
)
from fastfill.features.judged_sets import (
    JudgedSet,
    Judgements,
    Texts,
    read_judged_set,
    read_texts,
)
from fastfill.features.pairs import Pairs
from fastfill.features.qrels import read_qrels
from fastfill.features.sources import Source, VectorFile
from fastfill.features.text_lines import read_lines
from fastfill.features.text_tokens import rough_tokens
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
    "JudgedSet",
    "Judgements",
    "Matrix",
    "PairView",
    "PairViews",
    "Pairs",
    "Source",
    "Texts",
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
    "give_directions",
    "is_on_device",
    "normalised",
    "open_vectors",
    "pairwise",
    "read_column",
    "read_features",
    "read_judged_set",
    "read_lines",
    "read_matrix",
    "read_pairs",
    "read_plain_look",
    "read_qrels",
    "read_texts",
    "replacing",
    "rough_tokens",
]
