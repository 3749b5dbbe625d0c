"""Queries and items as the fast products want them, with a proven bound of what those lose.

Products of float16 vectors run on tensor cores, many times as fast as those of float32, and are
off in the fourth digit. That is enough to say of almost every item that it is farther from a query
than all of its relevant items: such an item changes no metric. Whatever may be nearer is looked at
again, in float64.

With q and g the centred float32 vectors, q̃ and g̃ their float16 copies, scaled by powers of 2, and
K terms, a product as computed is off by at most

    ‖q − q̃‖·‖g‖ + ‖q̃‖·‖g − g̃‖ + 4u·K·(‖q̃‖·‖g̃‖ + offset)        u = 2⁻²⁴

The first two terms are norms that are computed, not estimated: they hold whatever is rounded,
flushed or scaled. The last is the rounding of the sum, which begins with the offset. Tensor cores
multiply float16 exactly and add n products at a time to the sum, after cutting all to the digits
that the largest keeps in float32: (n + 2)·2u of the largest for each n terms, 4u·K for the lot
if n ≥ 2; it is 4 or more on all of them. To this comes the error of `space`, for the centring, the
offset and the threshold.

Some thousand items share a bound, that of the largest of them; they are sorted by norm first, so
that it is not much larger than that of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from fastfill.metrics.space import UNIT, padded_dim, product_error

PASS = 1 << 13  # items that share a bound
SPAN = 16 * PASS  # items that are prepared, sorted and counted together
ROWS = 256  # queries are filled up to a multiple of this, items to one of COLUMNS
COLUMNS = 128
ACCUMULATION = 4 * UNIT  # rounding per term of a sum on tensor cores

_PEAK = 12  # halves are scaled to at most 2¹²: far from overflow, and small ones from underflow
_SAFE = 1 + 2.0**-12  # for bounds that are evaluated in float32 themselves


@dataclass(frozen=True, eq=False)
class TorchSpace:
    """A space (see `space`) whose vectors are tensors: any centre is right, the mean is best."""

    centre: Tensor  # (d,) float32
    squared: bool  # l2
    scale: float  # by which all queries are multiplied before they are halved, a power of 2

    @classmethod
    def of(cls, largest: float, centre: Tensor, squared: bool) -> TorchSpace:
        """For queries whose numbers are at most `largest`, whatever their sign."""
        most = largest + float(centre.abs().max()) if squared else largest
        return cls(centre, squared, _scale(most))

    @property
    def slope(self) -> float:
        """What a product is multiplied by."""
        return -2.0 if self.squared else -1.0

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return len(self.centre)

    @property
    def origin(self) -> Tensor:
        """What is taken from queries: the centre for l2, else nothing."""
        return self.centre if self.squared else torch.zeros_like(self.centre)


@dataclass(frozen=True, eq=False)
class QueryOperand:
    """Some queries, filled up with some that no item is near to."""

    halves: Tensor  # (Q', K) float16, scaled, the slope in them
    exact: Tensor  # (Q, P) float32, dimensions in the order of `stored_order`
    limits: Tensor  # (Q',) float32: a value above that of every threshold
    by_norm: Tensor  # (Q',) float32: what the error grows by with an item's norm
    by_residual: Tensor  # (Q',) float32: and with what its copy has lost
    squared: bool

    def __len__(self) -> int:
        return len(self.exact)


@dataclass(frozen=True, eq=False)
class ItemOperand:
    """Some items of one side of the gallery by rising norm, filled up with infinitely far ones."""

    halves: Tensor  # (N', K) float16, scaled
    exact: Tensor  # (N, P) float32, dimensions in the order of `stored_order`
    steps: Tensor  # (N,) int32 the first stage at which the item is new
    offsets: Tensor  # (N',) float32, in units
    norms: Tensor  # (⌈N' / PASS⌉,) float32, the largest of each pass
    residuals: Tensor  # (⌈N' / PASS⌉,) float32, likewise
    unit: float  # the scales of both halves: what a product of theirs is too large by
    by_square: float  # what the error grows by with the square of an item's norm

    def __len__(self) -> int:
        return len(self.exact)


def query_operand(space: TorchSpace, queries: Tensor, farthest: Tensor) -> QueryOperand:
    """Queries (Q, d) whose thresholds are at most `farthest` (Q,).

    >>> space = TorchSpace(torch.zeros(2), squared=True, scale=1.0)
    >>> query_operand(space, torch.tensor([[3.0, 4.0]]), torch.tensor([1.0])).limits[:2]
    tensor([-24.0000,     -inf])
    """
    centred = queries - space.origin
    halves = _halved(centred, space.scale)
    norms, residuals = _norms(centred), _residuals(centred, halves, space.scale)
    a, _, c = product_error(space.dim, space.slope, space.squared)
    steep, whole = abs(space.slope), norms + residuals
    loss = ACCUMULATION * halves.shape[1]
    by_norm = a * norms + steep * (residuals + loss * whole)
    by_residual = steep * (1 + loss) * whole
    limits = farthest.double() - _shifts(space, queries)
    limits = limits + 4 * UNIT * limits.abs() + c
    spare = -len(queries) % ROWS
    return QueryOperand(
        halves=functional.pad(halves * space.slope, (0, 0, 0, spare)),
        exact=stored(queries),
        limits=functional.pad(_upward(limits), (0, spare), value=-math.inf),
        by_norm=functional.pad(_upward(by_norm * _SAFE), (0, spare)),
        by_residual=functional.pad(_upward(by_residual * _SAFE), (0, spare)),
        squared=space.squared,
    )


def item_operand(space: TorchSpace, vectors: Tensor, steps: Tensor) -> ItemOperand:
    """Items (N, d) of one side of the gallery and their steps (N,)."""
    centred = vectors - space.centre
    norms, order = _norms(centred).sort()
    centred = centred[order]
    scale = _scale(float(centred.abs().max()))
    halves = _halved(centred, scale)
    residuals = _residuals(centred, halves, scale)
    unit = space.scale * scale
    offsets = norms.square() * unit if space.squared else torch.zeros_like(norms)
    _, b, _ = product_error(space.dim, space.slope, space.squared)
    loss = ACCUMULATION * halves.shape[1] if space.squared else 0.0
    spare = -len(vectors) % COLUMNS
    return ItemOperand(
        halves=functional.pad(halves, (0, 0, 0, spare)),
        exact=stored(vectors[order]),
        steps=steps[order].int(),
        offsets=functional.pad(offsets.float(), (0, spare), value=math.inf),
        norms=_largest(norms),
        residuals=_largest(residuals),
        unit=unit,
        by_square=(b + loss) * _SAFE,
    )


def padded_terms(dim: int) -> int:
    """Terms of a product: what tensor cores and the tiles of `cuda_kernels` can be cut into.

    >>> padded_terms(100), padded_terms(256), padded_terms(300)
    (128, 256, 320)
    """
    return padded_dim(dim) if dim <= 256 else -(-dim // 64) * 64


@cache
def stored_order(dim: int, device: torch.device) -> Tensor:
    """Which dimension stands at each place: that of the place's bits in reverse.

    Halves that are added to each other (see `space`) are then neighbours.

    >>> stored_order(5, torch.device("cpu")).tolist()
    [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]
    """
    bits = padded_dim(dim).bit_length() - 1
    places = torch.arange(1 << bits, device=device)
    dims = torch.zeros_like(places)
    for _ in range(bits):
        dims, places = dims * 2 + places % 2, places // 2
    return dims


def stored(vectors: Tensor) -> Tensor:
    """Vectors (k, d) with zeros up to the padded dimension, in the order of `stored_order`."""
    dim = vectors.shape[1]
    padded = functional.pad(vectors, (0, padded_dim(dim) - dim))
    return padded[:, stored_order(dim, vectors.device)]


def _scale(largest: float) -> float:
    """The power of 2 that brings a number to between 2¹¹ and 2¹²."""
    return 2.0 ** (_PEAK - math.frexp(largest)[1]) if largest else 1.0


def _halved(centred: Tensor, scale: float) -> Tensor:
    """A scaled float16 copy, with zeros up to the terms of a product."""
    dim = centred.shape[1]
    return functional.pad((centred * scale).half(), (0, padded_terms(dim) - dim))


def _norms(vectors: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
    return norms


def _residuals(centred: Tensor, halves: Tensor, scale: float) -> Tensor:
    """The norms of what a copy has lost, float64; the differences are exact."""
    copies = halves[:, : centred.shape[1]].float() / scale
    return _norms(centred - copies)


def _shifts(space: TorchSpace, queries: Tensor) -> Tensor:
    """What a query's distances are less their values, (Q,) float64."""
    if space.squared:
        return (queries.double() - space.centre.double()).square().sum(dim=1)
    return -(queries.double() @ space.centre.double())


def _upward(numbers: Tensor) -> Tensor:
    """Float64 numbers as float32, none smaller than it was."""
    return torch.nextafter(numbers.float(), numbers.new_full((), math.inf).float())


def _largest(numbers: Tensor) -> Tensor:
    """Of each pass, upward."""
    return _upward(functional.pad(numbers, (0, -len(numbers) % PASS)).view(-1, PASS).amax(dim=1))
