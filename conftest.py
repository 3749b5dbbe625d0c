"""What pytest must not collect, how properties are tried, and which tests come first."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

# a busy machine is no failure: no test asserts a time
settings.register_profile("fastfill", deadline=None)
settings.load_profile("fastfill")

# Triton comes with the CUDA builds of torch; the kernels are only imported on CUDA
_TRITON = ["src/fastfill/lab/norm_kernels.py", "src/fastfill/metrics/cuda_kernels.py"]

collect_ignore = [] if find_spec("triton") else _TRITON

# fixtures, not examples; and modules of the same name cannot be imported side by side
collect_ignore_glob = ["tests/*conftest.py", "tests/upgrade/make_*.py"]

# mkdocs runs it
collect_ignore += ["docs/hooks.py"]

# What takes long and mostly waits, for a storm of writes, a cluster, a browser. Begun first, by one
# process, it leaves the processors to the others and is nobody's last test.
LONG = ("tests/harness/", "tests/scale/", "tests/page/", "tests/cli/test_cli_demo.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones first; the order within either part is as it was."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
