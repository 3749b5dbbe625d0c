"""The toy model upgrade of the crash harness: exact, so that a wrong vector is seen as wrong."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

OLD, NEW = 16, 24
_MIX = np.random.default_rng(7).standard_normal((OLD, NEW)).astype(np.float32)


def old_model(text: str) -> NDArray[np.float32]:
    """What the old model makes of a text."""
    return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(OLD).astype(np.float32)


def new_model(texts: Sequence[Any]) -> NDArray[np.float32]:
    """What the new model makes of texts, one by one so that a batch's size cannot matter."""
    return np.stack([np.tanh(old_model(str(text)) @ _MIX) for text in texts])
