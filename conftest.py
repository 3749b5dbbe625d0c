"""What pytest must not import where an optional package is missing."""

from importlib.util import find_spec

# Triton comes with the CUDA builds of torch; the kernels are only imported on CUDA
collect_ignore = [] if find_spec("triton") else ["src/fastfill/lab/kernels.py"]
