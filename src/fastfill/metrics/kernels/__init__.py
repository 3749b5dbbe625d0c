"""The one-pass kernels in Numba: imported only where they run.

A kernel works on one block of queries and releases the GIL: each thread has blocks of its own.
Compiled code is cached per file, and Numba does not see that a function of another file has
changed: kernels that call each other therefore share a file.
"""

from numba import njit

SPREAD = 8  # buckets beyond the last threshold: counting into one alone would wait for itself

jit = njit(cache=True, nogil=True, error_model="numpy")
