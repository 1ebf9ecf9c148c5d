"""Retention: removes segments by size and age, except those that a reader still needs.

A reader records the offset that it needs in a file `NAME.reader` in the journal's directory, so
that it can do so from another process. Beyond `hard_bytes` needed segments are removed, too: a
reader that never returns must not fill the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from accord.journal.disk import Disk, OsDisk
from accord.journal.errors import JournalError
from accord.journal.record import MAX_OFFSET
from accord.journal.segments import Segment

READER: Final = ".reader"
ARCHIVE: Final = "archive"  # the reader that archives
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of what is kept; None is no limit. As whole segments go, up to one more is kept."""

    max_bytes: int | None = None
    max_age_ms: int | None = None
    hard_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                raise ValueError(f"{name}: expected a positive number or none, got {limit}")

    @property
    def is_unlimited(self) -> bool:
        return self.max_bytes is None and self.max_age_ms is None and self.hard_bytes is None


class RetiredCounts(msgspec.Struct, frozen=True):
    """Counts of what was retired, and of its records that some reader still needed."""

    segments: int = 0
    records: int = 0
    unread: int = 0

    def __add__(self, other: RetiredCounts) -> RetiredCounts:
        return RetiredCounts(
            self.segments + other.segments,
            self.records + other.records,
            self.unread + other.unread,
        )


def choose(
    segments: Sequence[Segment],
    retention: Retention,
    *,
    needed_from: int,
    before_offset: int,
    now_ms: int,
) -> int:
    """The number of oldest segments to remove: never the last one, which is being written."""
    total = sum(segment.size for segment in segments)
    for index in range(len(segments) - 1):
        following = segments[index + 1]  # started after the last batch of this one
        is_over = retention.max_bytes is not None and total > retention.max_bytes
        is_old = (
            retention.max_age_ms is not None
            and following.created_ms <= now_ms - retention.max_age_ms
        )
        is_asked = following.first_offset <= before_offset
        is_unneeded = following.first_offset <= needed_from
        is_forced = retention.hard_bytes is not None and total > retention.hard_bytes
        if not (is_forced or (is_unneeded and (is_over or is_old or is_asked))):
            return index
        total -= segments[index].size
    return max(0, len(segments) - 1)


def needed_from(disk: Disk) -> int:
    """The lowest offset that a registered reader needs; the maximum if there is no reader."""
    marks = [name for name in disk.names() if name.endswith(READER)]
    return min((_read(disk, name) for name in marks), default=MAX_OFFSET)


def register(directory: Path | str, reader: str, offset: int) -> None:
    """Keep everything from `offset` on for `reader`; a higher one later releases more."""
    place = str(directory)
    if not _NAME.fullmatch(reader):
        raise JournalError(f"reader {reader!r}: expected letters, digits, - and _", location=place)
    if not 0 <= offset <= MAX_OFFSET:
        raise JournalError(f"reader {reader!r}: offset {offset}", location=place)
    disk = OsDisk(directory)
    name = reader + READER
    unfinished = f"{name}.{os.getpid()}"
    try:
        sink = disk.create(unfinished)
        try:
            sink.append([f"{offset}\n".encode()])
            sink.sync()
        finally:
            sink.close()
        disk.rename(unfinished, name)
        disk.sync_names()
    except OSError as error:
        raise JournalError(f"reader {reader!r}: {error.strerror}", location=place) from error


def is_registered(directory: Path | str, reader: str) -> bool:
    return (Path(directory) / (reader + READER)).exists()


def unregister(directory: Path | str, reader: str) -> None:
    """Keep nothing more for `reader`."""
    (Path(directory) / (reader + READER)).unlink(missing_ok=True)


def _read(disk: Disk, name: str) -> int:
    try:
        source = disk.source(name)
    except FileNotFoundError:
        return MAX_OFFSET
    try:
        text = source.read(0, 32).strip()
    finally:
        source.close()
    # An unreadable reader file keeps everything.
    return int(text) if text.isdigit() else 0
