"""CPU and memory usage of this process."""

from __future__ import annotations

import os
import resource
import sys
import time


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
