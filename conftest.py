"""What pytest must not collect as a module with examples."""

from importlib.util import find_spec

# Triton comes with the CUDA builds of torch; the kernels are only imported on CUDA
collect_ignore = [] if find_spec("triton") else ["src/fastfill/lab/norm_kernels.py"]

# fixtures, not examples; and modules of the same name cannot be imported side by side
collect_ignore_glob = ["tests/*conftest.py", "tests/upgrade/make_*.py"]

# mkdocs runs it
collect_ignore += ["docs/hooks.py"]

# it takes torch away from the process that imports it
collect_ignore_glob += ["tests/harness/without_torch/*"]
