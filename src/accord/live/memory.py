"""Memory allocation for a process that moves blocks of many sizes, all short-lived."""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


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
