"""Read-only views: values stay values, and compiled kernels see one kind of array."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Kind = TypeVar("Kind", bound=np.generic)


def frozen(array: NDArray[Kind]) -> NDArray[Kind]:
    """The same numbers, contiguous, that nobody can change through this view.

    >>> frozen(np.arange(3)).flags.writeable
    False
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
