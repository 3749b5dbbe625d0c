"""What several benchmarks share: data, stores, timing, and where results are kept."""
