"""Recovery of a journal when it is opened.

Only the last segment can hold traces of a crash: every earlier one was synced before the next was
started. Bytes after its last whole batch were never acknowledged and are truncated, unless they lie
before the `committed` watermark: then they are not a torn write but damage, which is left in place
and reported, and the journal continues in a new segment. Offsets that were in use are not reused.

Whole batches beyond the watermark are rewritten in place before they are synced: they may be what a
failed sync of the last writer did not write, which the kernel still shows and considers written.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import msgspec

from accord.journal import record
from accord.journal.disk import Disk
from accord.journal.errors import JournalError
from accord.journal.record import MAX_OFFSET, SEGMENT_HEADER, Torn
from accord.journal.segments import (
    SEGMENT,
    SET_ASIDE,
    SNAPSHOT,
    UNFINISHED,
    Damaged,
    FileWindow,
    Segment,
    file_name,
    offsets,
    read_committed,
)

_PIECE: Final = 1 << 20


class Recovery(msgspec.Struct, frozen=True):
    """Findings of a recovery: bytes of a torn write truncated, damage, files set aside."""

    cut_bytes: int = 0
    cut_why: str = ""
    damaged: tuple[Damaged, ...] = ()
    set_aside: tuple[str, ...] = ()


class Recovered(msgspec.Struct):
    """The journal after recovery; `is_open` if the last segment can be continued."""

    segments: list[Segment]
    snapshot: int | None
    next_offset: int
    last_ms: int
    is_open: bool
    report: Recovery


def recover(disk: Disk) -> Recovered:
    """Repair the directory. Afterwards everything that can be read is durable."""
    return _Recoverer(disk).run()


class _Recoverer:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._committed = read_committed(disk) or 0
        self._cut_bytes = 0
        self._cut_why: list[str] = []
        self._damaged: list[Damaged] = []
        self._set_aside: list[str] = []
        self._last_ms = 0
        self._torn: dict[int, Torn] = {}

    def run(self) -> Recovered:
        for name in self._disk.names():
            if name.endswith((SEGMENT + UNFINISHED, SNAPSHOT + UNFINISHED)):
                self._disk.remove(name)
        snapshot = self._find_snapshot()
        segments = self._find_segments()
        next_offset, is_open = self._repair_end(segments)
        for segment, following in pairwise(segments):
            if torn := self._torn.get(segment.first_offset):
                self._report_damage(
                    segment.name, 0, torn.why, segment.first_offset, following.first_offset
                )
        next_offset = max(next_offset, snapshot or 0)
        if next_offset < self._committed:
            self._report_damage("", 0, "segments are missing", next_offset)
            next_offset, is_open = self._committed, False
        self._disk.sync_names()
        report = Recovery(
            self._cut_bytes,
            "; ".join(self._cut_why),
            tuple(self._damaged),
            tuple(self._set_aside),
        )
        return Recovered(segments, snapshot, next_offset, self._last_ms, is_open, report)

    def _find_snapshot(self) -> int | None:
        """Find the newest snapshot, and remove the files that it replaces."""
        for offset in reversed(offsets(self._disk.names(), SNAPSHOT)):
            name = file_name(offset, SNAPSHOT)
            if isinstance(header := self._header(name, record.SNAPSHOT, offset), Torn):
                self._report_damage(name, 0, header.why, 0, offset)
                self._put_aside(name)
                continue
            self._disk.sync_names()  # its own name first
            for suffix in (SEGMENT, SNAPSHOT):
                for replaced in offsets(self._disk.names(), suffix):
                    if replaced < offset:
                        self._disk.remove(file_name(replaced, suffix))
            return offset
        return None

    def _find_segments(self) -> list[Segment]:
        segments: list[Segment] = []
        created_ms = MAX_OFFSET
        for first in reversed(offsets(self._disk.names(), SEGMENT)):
            name = file_name(first, SEGMENT)
            header = self._header(name, record.LOG, first)
            if isinstance(header, Torn):
                self._torn[first] = header  # as young as the next: nothing is retired too early
            else:
                created_ms = header.created_ms
            segments.append(Segment(first, created_ms, self._disk.size(name)))
        segments.reverse()
        return segments

    def _repair_end(self, segments: list[Segment]) -> tuple[int, bool]:
        """Repair the end; returns the next offset, and whether the last segment stays open."""
        begun = 0
        while segments:
            last = segments[-1]
            torn = self._torn.get(last.first_offset)
            if torn is None:
                next_offset, size, is_open = self._scan(last)
                segments[-1] = msgspec.structs.replace(last, size=size)
                return max(next_offset, begun), is_open and next_offset >= begun
            segments.pop()
            begun = max(begun, last.first_offset)
            if last.is_empty and self._committed <= last.first_offset:
                self._cut(last.size, torn)
                self._disk.remove(last.name)
            else:
                self._put_aside(last.name)
        return begun, False

    def _scan(self, segment: Segment) -> tuple[int, int, bool]:
        """Scan a segment; returns its next offset, its size, and whether it can be continued."""
        window = FileWindow(self._disk.source(segment.name))
        try:
            sure, position, offset, end = self._scan_batches(segment, window)
            if end is not None and offset < self._committed:
                self._report_damage(segment.name, position, end.why, offset)
                return self._committed, segment.size, False
            if end is not None:
                self._cut(segment.size - position, end)
            self._rewrite(segment.name, window, sure, position)
        finally:
            window.close()
        return offset, position, True

    def _scan_batches(
        self, segment: Segment, window: FileWindow
    ) -> tuple[int, int, int, Torn | None]:
        """Scan the batches of the last segment.

        Returns the position up to which it is certainly durable, the position and offset after the
        last whole batch, and what is there instead of a batch, if anything.
        """
        sure, position, offset = 0, SEGMENT_HEADER, segment.first_offset
        for start, header, batch in window.batches(position, offset):
            if isinstance(batch, Torn):
                if header.end_offset > self._committed:
                    return sure, start, header.first_offset, batch
                self._report_damage(segment.name, start, batch.why, offset, header.end_offset)
            position, offset = start + header.size, header.end_offset
            self._last_ms = header.time_ms
            if offset <= self._committed:
                sure = position
        end = window.header(position, offset)
        assert end is None or isinstance(end, Torn)
        return sure, position, offset, end

    def _rewrite(self, name: str, window: FileWindow, start: int, end: int) -> None:
        """Make the bytes between `start` and `end` durable, and truncate the file at `end`."""
        sink = self._disk.sink(name)
        try:
            sink.truncate(end)
            while start < end:
                data, index = window.at(start, min(_PIECE, end - start))
                piece = data[index : index + end - start]
                sink.overwrite(piece, start)
                start += len(piece)
            sink.sync()
        finally:
            sink.close()

    def _header(self, name: str, kind: int, offset: int) -> record.SegmentHeader | Torn:
        window = FileWindow(self._disk.source(name), SEGMENT_HEADER)
        try:
            header = window.segment_header(kind, offset)
        finally:
            window.close()
        if isinstance(header, Torn) and header.other_version:
            raise JournalError(
                f"{name} was written by another version of accord ({header.why}); start that "
                "version, or use another data directory",
                location=self._disk.location,
            )
        return header

    def _cut(self, size: int, torn: Torn) -> None:
        self._cut_bytes += size
        self._cut_why.append(torn.why)

    def _report_damage(
        self, name: str, position: int, why: str, offset: int, next_offset: int | None = None
    ) -> None:
        following = self._committed if next_offset is None else next_offset
        self._damaged.append(Damaged(name, position, why, offset, following))

    def _put_aside(self, name: str) -> None:
        aside = name + SET_ASIDE
        while aside in self._disk.names():
            aside += SET_ASIDE
        self._disk.rename(name, aside)
        self._set_aside.append(aside)
