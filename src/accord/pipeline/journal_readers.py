"""Journals as the pipeline reads them: in a folder, or over HTTP from the node that writes it.

Either has `extent` and `read` as `journal.reader.Reader` does, and knows about how many bytes its
records have, so that work can be cut into pieces of bounded size without looking at them.
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
    """One who reads a journal, again and again."""

    def extent(self) -> Extent: ...
    def read(
        self, offset: int, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Iterator[ReadResult]: ...
    def sizes(self, extent: Extent) -> list[tuple[int, int]]:
        """Where segments begin and how many bytes each has, about; from the first to the last."""


class LocalReader(Reader):
    """Of a journal in a folder."""

    def __init__(self, directory: Path | str) -> None:
        super().__init__(directory)
        self._directory = Path(directory)

    def extent(self) -> Extent:
        """What can be read now: nothing where there is no journal yet."""
        return super().extent() if self._directory.is_dir() else Extent(0, 0)

    def sizes(self, extent: Extent) -> list[tuple[int, int]]:
        sizes = []
        for offset in self.segments() if extent.next_offset else ():
            try:
                path = self._directory / file_name(offset, SEGMENT)
                sizes.append((offset, os.stat(path).st_size))
            except FileNotFoundError:
                continue  # retired since we looked
        return sizes


def is_remote(place: str) -> bool:
    return place.startswith(REMOTE)


def open_journal(place: str) -> JournalReader:
    """The journal in this folder or of this node; nothing is looked at yet."""
    if is_remote(place):
        from accord.pipeline.remote_journal import RemoteReader  # noqa: PLC0415 (most never need it)

        return RemoteReader(place)
    return LocalReader(place)


def estimate_bytes(sizes: Sequence[tuple[int, int]], first: int, end: int, next_offset: int) -> int:
    """About how many bytes the records from `first` up to `end` have."""
    return sum(
        size * (min(end, there) - max(first, here)) // (there - here)
        for (here, size), there in _stretches(sizes, next_offset)
        if max(first, here) < min(end, there)
    )


def offset_within(
    sizes: Sequence[tuple[int, int]], first: int, next_offset: int, max_bytes: int
) -> int:
    """The offset up to which the records from `first` on have about `max_bytes`, at least one."""
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
    """Into so many ranges of about the same length, none of them empty."""
    pieces = max(1, min(pieces, end - first))
    cuts = [first + (end - first) * number // pieces for number in range(pieces + 1)]
    return list(pairwise(cuts))


def _stretches(
    sizes: Sequence[tuple[int, int]], next_offset: int
) -> Iterator[tuple[tuple[int, int], int]]:
    """Segments that have records, each with where it ends."""
    ends = [offset for offset, _ in sizes[1:]] + [next_offset]
    for segment, end in zip(sizes, ends, strict=False):
        if segment[0] < min(end, next_offset):
            yield segment, min(end, next_offset)
