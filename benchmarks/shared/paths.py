"""Where benchmarks keep their results, as text and as data."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
DATA = ROOT / "benchmarks" / "results"  # JSON, named after the benchmark that writes it
PICTURES = ROOT / "docs" / "pictures"
