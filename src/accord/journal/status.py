"""What a journal says about itself."""

from __future__ import annotations

import msgspec

from accord.journal.recovery import Recovery
from accord.journal.retention import RetiredCounts


class AppendRefused(msgspec.Struct, frozen=True):
    """Why records were not taken."""

    why: str
    waiting_bytes: int
    limit_bytes: int


class JournalSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A journal at a glance; records between `committed_offset` and `next_offset` wait."""

    segments: int
    bytes: int
    first_offset: int
    next_offset: int
    committed_offset: int
    waiting_bytes: int
    retired: RetiredCounts
    commits: int
    fsyncs: int
    last_error: str
    is_failing: bool
    is_failed: bool
    recovery: Recovery
