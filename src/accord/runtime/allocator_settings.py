"""Allocator settings for a process with short-lived blocks of many sizes that must not pause."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

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
