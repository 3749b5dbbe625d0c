"""The device that counts: whether it is there, its memory, and the precision of its products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch

from fastfill.errors import InputError


def torch_device(name: str) -> torch.device:
    """The device of that name, if it is there."""
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"The device {name!r} is not there: torch sees no CUDA. Use 'cpu'.")
    return device


def has_kernels(device: torch.device) -> bool:
    """Whether there are Triton, and the tensor cores that its kernels want."""
    return (
        device.type == "cuda"
        and find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def free_bytes(device: torch.device, cpu: int) -> int:
    """Free memory of a card; on a CPU what is given."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else cpu


@contextmanager
def full_precision() -> Iterator[None]:
    """Products in true float32: the error bound does not hold for TF32."""
    setting = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(setting)
