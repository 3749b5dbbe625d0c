"""The pairs of a training on its device: one look at them at a time, always in the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastfill.align.scaling import Scaling
from fastfill.align.task import ScaledViews, Task
from fastfill.features import is_on_device


class ResidentPairs:
    """Scaled inputs and targets on the device; each view is copied in place of the one before.

    So a CUDA graph that was captured with one view goes on working with the next.
    """

    def __init__(self, task: Task, device: torch.device) -> None:
        self._views = task.views
        self._shown: int | None = None  # the number of the view in x and y; None: the plain look
        self.x, self.y = (_to(array, device) for array in (task.x, task.y))
        self.old, rest = self.x[:, : task.old_dim], self.x[:, task.old_dim :]
        self.side = rest if rest.shape[1] else None
        self.labels = None if task.labels is None else _to(task.labels, device)
        self.head = None if task.head is None else _to(task.head, device)

    def show_view(self, epoch: int) -> bool:
        """Bring in the epoch's view, if there are any; is it another than the one before?"""
        number = 0 if self._views is None else epoch % self._views.count
        changed = number != self._shown
        if changed and self._views is not None:
            self._copy(self._views, number)
        self._shown = number
        return changed

    def _copy(self, views: ScaledViews, number: int) -> None:
        view = views.views.look(number)
        if is_on_device(view.old) and is_on_device(view.new):
            self._scale_in_place(view, views.scaling)
            return
        x, y = views.scaled(view, number)
        self.x.copy_(torch.from_numpy(np.ascontiguousarray(x)))
        self.y.copy_(torch.from_numpy(np.ascontiguousarray(y)))

    def _scale_in_place(self, view: Any, scaling: Scaling) -> None:
        """As `Scaling` does it, without a detour through the host."""
        self.old.copy_(view.old)
        if scaling.distance == "cosine":
            self.old.div_(torch.linalg.vector_norm(self.old, dim=1, keepdim=True))
        self.old.div_(scaling.old)
        if self.side is not None and view.side is not None:
            self.side.copy_(torch.as_tensor(view.side)).div_(scaling.side)
        self.y.copy_(view.new).div_(scaling.new)


def _to(array: Any, device: torch.device) -> Tensor:
    """A copy: the caller's array keeps the plain look when views are copied in its place."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device, copy=True)
