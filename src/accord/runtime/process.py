"""This process: clock, CPU and memory usage, and memory settings.

The clock starts at wall-clock time and is monotonic from then on. The allocator is set for
short-lived blocks of many sizes and a process that must not pause.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Final


class Clock:
    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC, by the wall clock at the start."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000


class ProcessUsage:
    def cpu_s(self) -> float:
        """CPU time of all threads since the start."""
        return time.process_time()

    def memory_bytes(self) -> int:
        """Current memory, or the peak if the system does not report it."""
        try:
            with open("/proc/self/statm", "rb") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            unit = 1 if sys.platform == "darwin" else 1_024
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def disk_space(directory: Path) -> tuple[int, int] | None:
    """Bytes free and in total where `directory` is; None if unknown."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return None
    return usage.free, usage.total


_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_NEW_OBJECTS: Final = 10_000


def keep_freed_memory() -> bool:
    """Let glibc reuse large blocks instead of mapping and unmapping them: half the cost at 1 KB.

    Either setting alone would disable the adaptation of the other. False if there is no glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 32 << 20) and mallopt(_M_TRIM_THRESHOLD, 128 << 20))


def collect_seldom() -> None:
    """Exclude existing objects from garbage collection, and collect less often.

    The collector only has to find cycles, and neither messages nor clients leave any. Collecting
    new objects takes a millisecond or two; a full collection takes as long as transmitting a few
    events, and half a second with 100,000 predicates.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 500, 100)
