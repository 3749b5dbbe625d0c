"""CPU seconds and memory of a command and of all processes that it starts."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import Any

PAUSE = 0.1  # seconds between two looks


@dataclass(frozen=True)
class TreeUse:
    """What a command took."""

    seconds: float  # by the clock
    cpu: float  # seconds of all its processes
    peak: float  # MB, resident in all of them together at the worst moment
    largest: float  # MB, resident in the largest of them at its worst moment


def run_measured(command: list[str]) -> TreeUse:
    """Run a command to its end, looking at its processes all the time.

    Pages that processes share, as Ray's object store, are counted for each of them. The CPU time
    of a process is that of the last look at it: up to one pause of it may be missing.
    """
    import psutil

    began, cpu, peak, largest = time.perf_counter(), dict[int, float](), 0.0, 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            resident = []
            for each in [root, *_children(root)]:
                try:
                    times = each.cpu_times()
                    cpu[each.pid] = times.user + times.system
                    resident.append(each.memory_info().rss / 1e6)
                except psutil.Error:
                    continue
            peak, largest = max(peak, sum(resident)), max(largest, *resident, 0.0)
            time.sleep(PAUSE)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {process.returncode}.")
    return TreeUse(time.perf_counter() - began, sum(cpu.values()), peak, largest)


def _children(root: Any) -> list[Any]:
    import psutil

    try:
        return list(root.children(recursive=True))
    except psutil.Error:
        return []
