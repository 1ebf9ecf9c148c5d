from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.journals import records, write_journal

from accord.journal.reader import Extent
from accord.pipeline.journal_readers import (
    LocalReader,
    estimate_bytes,
    offset_within,
    open_journal,
    split,
)


def test_a_folder_without_a_journal_is_empty(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "none"))
    assert journal.extent() == Extent(0, 0)
    assert journal.sizes(Extent(0, 0)) == []


def test_sizes_are_those_of_the_segments(tmp_path: Path) -> None:
    commits = [records(n, n + 10, size=100) for n in range(0, 100, 10)]
    folder = write_journal(tmp_path / "journal", commits, segment_bytes=3_000)
    journal = LocalReader(folder)
    sizes = journal.sizes(journal.extent())
    assert [offset for offset, _ in sizes] == journal.segments()
    total = sum(path.stat().st_size for path in folder.glob("*.seg"))
    assert sum(size for _, size in sizes) == total
    assert estimate_bytes(sizes, 0, 100, 100) == total


def test_weight_is_taken_in_proportion() -> None:
    sizes = [(0, 1_000), (10, 4_000)]
    assert estimate_bytes(sizes, 5, 15, 20) == 500 + 2_000
    assert estimate_bytes(sizes, 15, 20, 20) == 2_000
    assert estimate_bytes(sizes, 7, 7, 20) == 0


def test_how_far_a_number_of_bytes_reaches() -> None:
    sizes = [(0, 1_000), (10, 4_000)]
    assert offset_within(sizes, 0, 20, 10_000) == 20
    assert offset_within(sizes, 0, 20, 500) == 5
    assert offset_within(sizes, 0, 20, 3_000) == 15
    assert offset_within(sizes, 15, 20, 400) == 16
    assert offset_within(sizes, 0, 20, 1) == 1  # at least one, however long


segments = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5_000)), min_size=1, max_size=8)


@given(segments, st.integers(0, 3_000), st.data())
def test_what_is_reached_weighs_no_more(
    lengths: list[tuple[int, int]], max_bytes: int, data: st.DataObject
) -> None:
    offset, sizes = 0, []
    for count, size in lengths:
        sizes.append((offset, size))
        offset += count
    first = data.draw(st.integers(0, offset - 1))
    end = offset_within(sizes, first, offset, max_bytes)
    assert first < end <= offset
    if end > first + 1:
        assert estimate_bytes(sizes, first, end, offset) <= max_bytes
    if end < offset:
        # One more would be too much, but for what rounding down takes off each segment.
        assert estimate_bytes(sizes, first, end + 1, offset) + len(sizes) >= max_bytes


@given(st.integers(0, 1_000), st.integers(1, 1_000), st.integers(0, 20))
def test_pieces_follow_each_other_and_are_of_like_length(first: int, rows: int, most: int) -> None:
    pieces = split(first, first + rows, most)
    assert pieces[0][0] == first
    assert pieces[-1][1] == first + rows
    assert all(left[1] == right[0] for left, right in pairwise(pieces))
    lengths = [end - start for start, end in pieces]
    assert len(pieces) == max(1, min(most, rows))
    assert max(lengths) - min(lengths) <= 1
