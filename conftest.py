"""What pytest must not collect as a module with examples, and how properties are tried."""

from importlib.util import find_spec

from hypothesis import settings

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
