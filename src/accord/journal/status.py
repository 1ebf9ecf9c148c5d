"""Status of a journal, and the reason for a refused append."""

from __future__ import annotations

import msgspec

from accord.journal.recovery import Recovery
from accord.journal.retention import RetiredCounts


class AppendRefused(msgspec.Struct, frozen=True):
    """Why records were refused."""

    why: str
    waiting_bytes: int
    limit_bytes: int


class JournalSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a journal; records between `committed_offset` and `next_offset` are queued."""

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
