"""The Triton kernels: interpreted on a CPU against plain torch, and compiled for a card."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import NumpyVersion

import fastfill

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

SOURCE = str(Path(fastfill.__file__).parents[1])

PARITY = """
import sys
import torch
from fastfill.metrics import cuda_kernels, cuda_operands, cuda_plain
from fastfill.metrics.cuda_operands import TorchSpace, item_operand, query_operand
from fastfill.metrics.cuda_thresholds import exact_distances

squared, dim, number = sys.argv[1] == "l2", int(sys.argv[2]), int(sys.argv[3])
for module in (cuda_operands, cuda_kernels, cuda_plain):
    module.PASS = 128  # small ones, so that there are several of each
cuda_kernels.SPAN, cuda_kernels._SEGMENT, cuda_kernels._PROGRAMS = 256, 4, 2
torch.manual_seed(0)
queries, items = torch.randn(5, dim) + 3, torch.randn(300, dim) + 3
items[150:] = items[:150] + 1e-6 * torch.randint(0, 2, (150, dim))
distances = exact_distances(queries[:, None], items[None], squared)
near = distances.sort(dim=1).values[:, :60]
exact = near.gather(1, torch.randint(0, 60, (5, number))).sort(dim=1).values
exact[::2, -1] = torch.inf
farthest = exact.where(exact.isfinite(), -torch.inf).amax(dim=1)
space = TorchSpace.of(float(queries.abs().max()), items.mean(dim=0), squared)
asked = query_operand(space, queries, farthest)
shown = item_operand(space, items, torch.randint(0, 4, (300,)))
tables = []
for module in (cuda_kernels, cuda_plain):
    table = torch.zeros(5, 6, number, dtype=torch.int32)
    for fresh in (True, False):
        module.count_near(asked, exact, shown, table, fresh)
    tables.append(table)
assert tables[0].count_nonzero() > 10
assert torch.equal(*tables), (tables[0] - tables[1]).nonzero()
"""

COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fastfill.metrics import cuda_kernels as kernels

def compiled(kernel, types, constants, **options):
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    whole = [i for i, name in enumerate(names) if signature[name].startswith("*")]
    hints = {(i,): [["tt.divisibility", 16]] for i in whole}
    source = ASTSource(kernel, signature, constexprs=constants, attrs=hints)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)

types = {"queries": "*fp16", "items": "*fp16", "near": "*i32", "unit": "fp32"}
types |= dict.fromkeys(["limits", "by_norm", "by_residual", "offsets"], "*fp32")
types |= {"norms": "*fp32", "residuals": "*fp32", "by_square": "fp32"}
types |= {"tiles": "i32", "blocks": "i32"}
for terms in (256, 320):
    for tiling in kernels.TILINGS:
        part = tiling.slice(terms)
        sizes = {"DIM": terms, "SLICE": part, "ROWS": tiling.rows, "COLS": 64, "TILES": 128}
        sizes |= {"WORDS": 4096, "STAGES": tiling.stages}
        binary = compiled(kernels._find, types, sizes, num_warps=tiling.warps)
        print(terms, tiling.rows, binary.metadata.shared, tiling.bytes(terms))
        assert "wgmma.mma_async" in binary.asm["ptx"]
        assert "st.local" not in binary.asm["ptx"]

types = {"queries": "*fp32", "items": "*fp32", "exact": "*fp64"}
types |= dict.fromkeys(["near", "steps", "table", "lists"], "*i32")
types |= dict.fromkeys(["words", "rows", "thresholds", "lines"], "i32")
sizes = {"WIDTH": 256, "LEVELS": 8, "SEGMENT": 1024, "CHUNK": 16, "STEP": 32, "WORDS": 4096}
for squared in (True, False):
    sizes |= {"SQUARED": squared, "FRESH": False}
    binary = compiled(kernels._count, types, sizes, num_warps=4, enable_fp_fusion=False)
    assert "mul.rn.f64" in binary.asm["ptx"] or "mul.f64" in binary.asm["ptx"]
    assert "fma.rn.f64" not in binary.asm["ptx"]
"""


def python(code: str, *arguments: str, interpret: bool) -> str:
    """What another Python prints: whether kernels are interpreted is settled at the import."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "TRITON_INTERPRET": str(int(interpret))}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(
    NumpyVersion(np.__version__) >= "2.4.0", reason="Triton's interpreter needs NumPy below 2.4"
)
@pytest.mark.parametrize(
    ("distance", "dim", "thresholds"), [("l2", "40", "5"), ("ip", "20", "3"), ("l2", "300", "40")]
)
def test_interpreted_kernels_count_like_plain_torch(distance, dim, thresholds):
    """Several spans, passes, segments and chunks, short vectors and long, with ties."""
    python(PARITY, distance, dim, thresholds, interpret=True)


def test_kernels_compile_to_tensor_cores_and_fit_the_memory_of_a_block():
    """For a card that is not here: as much shared memory as predicted, and no fused squares."""
    output = python(COMPILE, interpret=False)
    sizes = [list(map(int, re.findall(r"\d+", line))) for line in output.splitlines()]
    assert len(sizes) == 6
    for terms, rows, shared, predicted in sizes:
        assert shared <= predicted, (terms, rows)
