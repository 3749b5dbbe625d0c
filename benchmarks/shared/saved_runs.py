"""Runs of a benchmark that are kept in a file, so that the work can be done in pieces."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fastfill.features import replacing


def run_missing(
    kept: Path, names: Iterable[str], run: Callable[[str], dict[str, Any]], jobs: int
) -> dict[str, Any]:
    """Run what is not kept yet, some at a time, and keep each as soon as it is done: all by name.

    `run` must be a function of a module, or a `partial` of one: each runs in a process of its own,
    which knows nothing of servers that others have talked to.
    """
    runs = json.loads(kept.read_text()) if kept.exists() else {}
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        work = {pool.submit(run, name): name for name in names if name not in runs}
        for job in as_completed(work):
            name = work[job]
            runs[name] = job.result()
            with replacing(kept) as temporary:
                temporary.write_text(json.dumps(runs, indent=1, sort_keys=True) + "\n")
            print(name, runs[name].get("all", runs[name]), file=sys.stderr)
    return dict(runs)
