"""Options of a journal: each setting with its reason, checked once."""

from __future__ import annotations

import msgspec

from accord.journal.record import MAX_RECORD
from accord.journal.retention import Retention


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a journal; the defaults suit a node on one disk.

    - `segment_bytes`: size at which a new segment is started; retention removes whole segments.
    - `batch_bytes`: how much a reader must take at once; exceeded only by a single longer record.
    - `backlog_bytes`: how much may wait for the disk before appends are refused.
    - `retry_first_ms`, `retry_last_ms`: bounds of the backoff between attempts on a full disk.
    - `retention_every_ms`: interval at which retention checks for old or unneeded segments.
    - `is_threaded`: whether a writer thread is used; otherwise the owner calls `work`.
    """

    segment_bytes: int = 64 << 20
    batch_bytes: int = 1 << 20
    backlog_bytes: int = 64 << 20
    retry_first_ms: int = 50
    retry_last_ms: int = 5_000
    retention_every_ms: int = 10_000
    retention: Retention = Retention()
    is_threaded: bool = True

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{name}: expected a positive number, got {value}")
        if self.batch_bytes > MAX_RECORD:
            raise ValueError(f"batch_bytes: expected at most {MAX_RECORD}, got {self.batch_bytes}")
