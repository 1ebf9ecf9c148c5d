"""Memory for a process that moves blocks of many sizes, all short-lived, and must not pause."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_NEW_OBJECTS: Final = 10_000


def keep_freed_memory() -> bool:
    """Let glibc reuse large blocks rather than map and unmap them: half the cost at 1 KB.

    Either setting alone would switch off the adaptation of the other. False where there is no
    glibc to tell.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 32 << 20) and mallopt(_M_TRIM_THRESHOLD, 128 << 20))


def collect_seldom() -> None:
    """Let the garbage collector pass over what there is now, and come less often.

    It only has to find cycles, and neither messages nor clients that come and go leave any. To look
    at what is new takes a millisecond or two; to look at everything takes as long as the
    transmission of a few events, and half a second with 100,000 predicates.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 500, 100)
