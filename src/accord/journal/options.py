"""How a journal is kept: each setting with its reason, checked once."""

from __future__ import annotations

import msgspec

from accord.journal.record import MAX_RECORD
from accord.journal.retention import Retention


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults suit a node on one disk.

    `segment_bytes`: where a new file is begun; what retention removes at once.
    `batch_bytes`: how much a reader must take at once; longer only for a longer record.
    `backlog_bytes`: how much may wait for the disk before more is refused.
    `retry_first_ms`, `retry_last_ms`: the pauses between attempts on a full disk, doubling.
    `tidy_every_ms`: how often retention looks for what has become old or unneeded.
    `is_threaded`: whether a thread of its own writes; else whoever opened it calls `work`.
    """

    segment_bytes: int = 64 << 20
    batch_bytes: int = 1 << 20
    backlog_bytes: int = 64 << 20
    retry_first_ms: int = 50
    retry_last_ms: int = 5_000
    tidy_every_ms: int = 10_000
    retention: Retention = Retention()
    is_threaded: bool = True

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{name}: expected a positive number, got {value}")
        if self.batch_bytes > MAX_RECORD:
            raise ValueError(f"batch_bytes: expected at most {MAX_RECORD}, got {self.batch_bytes}")
