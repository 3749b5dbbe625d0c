"""How well σ² ranks the true losses: Kendall's τ (Appendix E of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.features import Array, Matrix
from fastfill.metrics import kendall_tau
from fastfill.order import disc_loss, l2_disc_loss, l2_loss


@dataclass(frozen=True, eq=False)
class KendallTable:
    """τ of each σ² (rows, by the loss it was trained on) with each true loss (columns)."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: NDArray[np.float64]  # (rows, columns) between −1 and 1

    def __getitem__(self, key: tuple[str, str]) -> float:
        return float(self.values[self.rows.index(key[0]), self.columns.index(key[1])])


def kendall_table(
    variances: Mapping[str, ArrayLike], losses: Mapping[str, ArrayLike]
) -> KendallTable:
    """τ of every σ² with every loss: all nine of Appendix E from three of each.

    >>> table = kendall_table({"l2": [1, 2, 3]}, {"l2": [2, 4, 9], "disc": [3, 2, 1]})
    >>> table["l2", "l2"], table["l2", "disc"]
    (1.0, -1.0)
    """
    values = [[kendall_tau(v, loss) for loss in losses.values()] for v in variances.values()]
    return KendallTable(tuple(variances), tuple(losses), np.array(values, dtype=np.float64))


def true_losses(
    aligned: Matrix, new: Matrix, labels: Array | None = None, head: Matrix | None = None
) -> dict[str, NDArray[np.float64]]:
    """The losses per item that can be known: `l2`, and with labels and head `disc`, `l2+disc`.

    >>> true_losses(np.float32([[1, 2]]), np.float32([[1, 5]]))
    {'l2': array([9.])}
    """
    losses = {"l2": l2_loss(aligned, new)}
    if labels is not None and head is not None:
        losses["disc"] = disc_loss(aligned, labels, head)
        losses["l2+disc"] = l2_disc_loss(aligned, new, labels, head)
    return losses
