"""python -m benchmarks

Every benchmark that needs no GPU, one after the other; each in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

WITHOUT_GPU = (
    "transform",
    "auto_text",
    "auto",
    "curve_speed",
    "curve_large",
    "overhead",
    "serving",
    "crash",
)


def main() -> int:
    """Run all, even if one fails; the exit code says whether one did."""
    failed = [
        name
        for name in WITHOUT_GPU
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode
    ]
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
