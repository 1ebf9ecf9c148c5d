"""Journals as the pipeline reads them, and the check that an archive was built from one.

A journal is read from a directory, or over HTTP from the node that writes it. Both readers have
`extent` and `read` like `journal.reader.Reader`, and estimate the size of their records, so that
work can be split into parts of bounded size without reading them.

Continuing an archive with another journal would mix histories. The journal may have been deleted
while the archive was kept, or the wrong one configured. A journal shorter than the archived offset
is a different journal. A longer one must hold, at the offset of the last archived event it still
has, an event with the archive's number and time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

import msgspec

from accord.core.model.errors import AccordError
from accord.journal.events import decode_event
from accord.journal.reader import Extent, Reader, ReadResult
from accord.journal.record import Batch
from accord.journal.segments import SEGMENT, file_name
from accord.pipeline.tables import TableFile

REMOTE: Final = ("http://", "https://")


class JournalReader(Protocol):
    """A reader of one journal, for repeated use."""

    def extent(self) -> Extent: ...
    def read(
        self, offset: int, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Iterator[ReadResult]: ...
    def sizes(self, extent: Extent) -> list[tuple[int, int]]:
        """Start offset and approximate size of each segment, in order."""


class LocalReader(Reader):
    """Reads a journal in a directory."""

    def __init__(self, directory: Path | str) -> None:
        super().__init__(directory)
        self._directory = Path(directory)

    def extent(self) -> Extent:
        """The readable range; empty if there is no journal yet."""
        return super().extent() if self._directory.is_dir() else Extent(0, 0)

    def sizes(self, extent: Extent) -> list[tuple[int, int]]:
        sizes = []
        for offset in self.segments() if extent.next_offset else ():
            try:
                path = self._directory / file_name(offset, SEGMENT)
                sizes.append((offset, os.stat(path).st_size))
            except FileNotFoundError:
                continue  # retired meanwhile
        return sizes


def is_remote(place: str) -> bool:
    return place.startswith(REMOTE)


def open_journal(place: str, node: str = "", *, is_patient: bool = True) -> JournalReader:
    """Return a reader of the journal at this directory or node; nothing is accessed yet.

    If `node` is given, no other may answer. Without patience a reader tries once.
    """
    if is_remote(place):
        from accord.pipeline.remote_journal import RemoteReader  # noqa: PLC0415 (rarely needed)

        return RemoteReader(place, node, is_patient=is_patient)
    return LocalReader(place)


def shown(place: str) -> str:
    """The place for messages to people, without a password."""
    return place.rpartition("@")[2] if is_remote(place) else place


def estimate_bytes(sizes: Sequence[tuple[int, int]], first: int, end: int, next_offset: int) -> int:
    """Approximate size of the records from `first` up to `end`."""
    return sum(
        size * (min(end, there) - max(first, here)) // (there - here)
        for (here, size), there in _segments(sizes, next_offset)
        if max(first, here) < min(end, there)
    )


def offset_within(
    sizes: Sequence[tuple[int, int]], first: int, next_offset: int, max_bytes: int
) -> int:
    """End of a range from `first` that takes about `max_bytes`, at least one record."""
    left = max_bytes
    for (here, size), there in _segments(sizes, next_offset):
        start = max(first, here)
        if start >= there:
            continue
        bytes_ = size * (there - start) // (there - here)
        if bytes_ > left:
            return max(first + 1, start + left * (there - here) // max(1, size))
        left -= bytes_
    return next_offset


def split(first: int, end: int, pieces: int) -> list[tuple[int, int]]:
    """Split into this many ranges of about equal length, none empty."""
    pieces = max(1, min(pieces, end - first))
    cuts = [first + (end - first) * number // pieces for number in range(pieces + 1)]
    return list(pairwise(cuts))


def _segments(
    sizes: Sequence[tuple[int, int]], next_offset: int
) -> Iterator[tuple[tuple[int, int], int]]:
    """Segments with records, each with its end."""
    ends = [offset for offset, _ in sizes[1:]] + [next_offset]
    for segment, end in zip(sizes, ends, strict=False):
        if segment[0] < min(end, next_offset):
            yield segment, min(end, next_offset)


class JournalMismatchError(AccordError):
    """Archive and journal do not belong together."""

    def __init__(self, *, node: str, journal: str, archived: int, problem: str) -> None:
        super().__init__(
            f"the archive has records of {node!r} up to offset {archived}, but the journal"
            f" {shown(journal)} {problem}: it is another journal. Give the archive the journal it"
            " was made from, or begin another archive (pipeline.archive)"
        )


def check_extent(extent: Extent, journal: str, archived: int, node: str) -> None:
    if extent.next_offset < archived:
        problem = f"ends at {extent.next_offset}"
        raise JournalMismatchError(node=node, journal=journal, archived=archived, problem=problem)


def check_same_journal(
    journal: str, node: str, *, archived: int, events: Iterable[TableFile]
) -> None:
    """Raise JournalMismatchError if the archive can't have been built from this journal.

    `events` are the files of the table of events.
    """
    reader = open_journal(journal, node, is_patient=False)
    extent = reader.extent()
    check_extent(extent, journal, archived, node)
    own = (file for file in events if file.node == node)
    last = max(own, key=lambda file: file.last_offset, default=None)
    if last is None or last.last_offset < extent.first_offset:
        return
    if problem := _difference(reader, last):
        raise JournalMismatchError(node=node, journal=journal, archived=archived, problem=problem)


def _difference(reader: JournalReader, file: TableFile) -> str:
    """How the record that should be the last of this file differs, if it does."""
    for found in reader.read(file.last_offset, max_records=1):
        if not isinstance(found, Batch):
            return ""  # retired since, or damaged: no evidence
        record = found.records()[0]
        try:
            event = decode_event(record)
        except msgspec.DecodeError:
            return "" if file.unread else f"has no event at offset {file.last_offset}"
        is_numbered = file.first_number <= event.number <= file.last_number
        is_timely = file.first_ms <= event.received_ms <= file.last_ms
        if not (is_numbered and is_timely):
            return f"has another event at offset {file.last_offset}"
    return ""
