"""The counting of `curve_shards` under a clock; that it is right here, and its fastest tiling."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.shared.device_clock import DeviceClock
from fastfill.metrics import cuda_plain
from fastfill.metrics.cuda_device import has_kernels
from fastfill.metrics.cuda_operands import (
    SPAN,
    ItemOperand,
    QueryOperand,
    TorchSpace,
    item_operand,
    query_operand,
)
from fastfill.metrics.cuda_thresholds import exact_distances

PROBE = 64  # calls of which one is followed by its products alone
TILINGS = ((256, 16, 3), (128, 8, 3), (128, 8, 4), (128, 4, 1), (64, 4, 2))  # to choose from

ROWS = 4096  # queries whose products alone are made at once

Cut = tuple[int, int, int]  # rows, warps, stages of a `cuda_kernels.Tiling`


@dataclass
class TimedCount:
    """Counts like `count_near`, and takes the time of each step."""

    clock: DeviceClock
    tiling: Cut
    calls: int = 0
    pairs: float = 0.0  # of queries and items that were counted
    made: float = 0.0  # products that were made for that, with those that fill up blocks
    probed: float = 0.0  # products that were made once more, alone

    def __call__(
        self, queries: QueryOperand, exact: Tensor, items: ItemOperand, table: Tensor, fresh: bool
    ) -> None:
        """Count some items for some queries."""
        size = float(len(queries.halves)) * len(items.halves)
        if has_kernels(table.device):
            self._by_kernels(queries, exact, items, table, fresh)
        else:
            with self.clock.time("products and bits"):
                cuda_plain.count_near(queries, exact, items, table, fresh)
        if self.calls % PROBE == 0:
            with self.clock.time("products alone"):
                products(queries, items)
            self.probed += size
        self.calls += 1
        self.pairs += float(len(queries)) * len(items)
        self.made += size

    def _by_kernels(
        self, queries: QueryOperand, exact: Tensor, items: ItemOperand, table: Tensor, fresh: bool
    ) -> None:
        from fastfill.metrics.cuda_kernels import Tiling, count_bits, near_bits

        for start in range(0, len(items), SPAN):
            with self.clock.time("products and bits"):
                bits = near_bits(queries, items, start, Tiling(*self.tiling))
            with self.clock.time("distances in float64"):
                count_bits(queries, exact, items, start, bits, table, fresh)

    def products_alone(self) -> float:
        """Seconds that the products of all calls take by the vendor's library, from the probes."""
        return self.clock.seconds()["products alone"] * self.made / self.probed


def products(queries: QueryOperand, items: ItemOperand) -> None:
    """The same products in the same precision, by the vendor's library; nobody reads them."""
    if queries.halves.device.type != "cuda":  # a toy: halves are slow on a CPU
        torch.mm(queries.halves.float(), items.halves.float().T)
        return
    out = queries.halves.new_empty((min(ROWS, len(queries.halves)), len(items.halves)))
    for start in range(0, len(queries.halves), ROWS):
        part = queries.halves[start : start + ROWS]
        torch.mm(part, items.halves.T, out=out[: len(part)])


def right_tilings(device: torch.device, dim: int, tilings: tuple[Cut, ...]) -> tuple[Cut, ...]:
    """Those by which the kernels run here, and count what plain torch counts."""
    if not has_kernels(device):
        return tilings
    torch.manual_seed(1)
    asked, shown = (
        torch.randn(300, dim, device=device),
        torch.randn(SPAN + 5000, dim, device=device),
    )
    shown[:300] = asked
    steps = torch.randint(0, 4, (len(shown),), device=device)
    right = list(tilings)
    for squared, fresh in ((True, True), (True, False), (False, True)):
        space = TorchSpace.of(9.0, shown.mean(dim=0), squared)
        near = exact_distances(asked[:, None], shown[None, :400], squared).sort(dim=1).values
        exact = near[:, [0, 1, 3, 7, 20]].contiguous()
        queries, items = (
            query_operand(space, asked, exact[:, -1]),
            item_operand(space, shown, steps),
        )
        expected = torch.zeros((300, 5, 5), dtype=torch.int32, device=device)
        cuda_plain.count_near(queries, exact, items, expected, fresh)
        for cut in list(right):
            found = torch.zeros_like(expected)
            count = TimedCount(DeviceClock(device), cut, calls=1)
            try:
                count(queries, exact, items, found, fresh)
                torch.cuda.synchronize(device)
            except Exception as error:  # no room for it on this card, say
                print(f"tiling {cut} does not run: {error}", flush=True)
                right.remove(cut)
                continue
            if not torch.equal(found, expected):
                off = int((found != expected).sum())
                print(f"tiling {cut} counts {off} of {found.numel()} cells wrong", flush=True)
                right.remove(cut)
    if not right:
        raise SystemExit("The kernels do not count right here by any tiling.")
    return tuple(right)


def choose_tiling(
    queries: QueryOperand, items: ItemOperand, tilings: tuple[Cut, ...], repeats: int = 3
) -> tuple[Cut, dict[str, float]]:
    """The fastest tiling for these operands, and the milliseconds of each."""
    device = items.exact.device
    if not has_kernels(device):
        return tilings[0], {}
    from fastfill.metrics.cuda_kernels import Tiling, near_bits

    milliseconds: dict[Cut, float] = {}
    for cut in tilings:
        near_bits(queries, items, 0, Tiling(*cut))
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(repeats):
            near_bits(queries, items, 0, Tiling(*cut))
        torch.cuda.synchronize(device)
        milliseconds[cut] = 1000 * (time.perf_counter() - began) / repeats
        print(f"tiling {cut}: {milliseconds[cut]:.2f} ms", flush=True)
    best = min(milliseconds, key=lambda cut: milliseconds[cut])
    return best, {str(cut): value for cut, value in milliseconds.items()}
