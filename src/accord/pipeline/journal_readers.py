"""Journals as the pipeline reads them: from a directory, or over HTTP from the node that writes it.

Both kinds have `extent` and `read` like `journal.reader.Reader`, and estimate the size of their
records, so that work can be split into parts of bounded size without reading them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

from accord.journal.reader import Extent, Reader, ReadResult
from accord.journal.segments import SEGMENT, file_name

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


def open_journal(place: str) -> JournalReader:
    """Return a reader of the journal at this directory or node; nothing is accessed yet."""
    if is_remote(place):
        from accord.pipeline.remote_journal import RemoteReader  # noqa: PLC0415 (rarely needed)

        return RemoteReader(place)
    return LocalReader(place)


def estimate_bytes(sizes: Sequence[tuple[int, int]], first: int, end: int, next_offset: int) -> int:
    """Approximate size of the records from `first` up to `end`."""
    return sum(
        size * (min(end, there) - max(first, here)) // (there - here)
        for (here, size), there in _stretches(sizes, next_offset)
        if max(first, here) < min(end, there)
    )


def offset_within(
    sizes: Sequence[tuple[int, int]], first: int, next_offset: int, max_bytes: int
) -> int:
    """End of a range from `first` that takes about `max_bytes`, at least one record."""
    left = max_bytes
    for (here, size), there in _stretches(sizes, next_offset):
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


def _stretches(
    sizes: Sequence[tuple[int, int]], next_offset: int
) -> Iterator[tuple[tuple[int, int], int]]:
    """Segments with records, each with its end."""
    ends = [offset for offset, _ in sizes[1:]] + [next_offset]
    for segment, end in zip(sizes, ends, strict=False):
        if segment[0] < min(end, next_offset):
            yield segment, min(end, next_offset)
