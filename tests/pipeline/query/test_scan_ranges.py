from __future__ import annotations

import random

import pytest

from accord.core.queries.messages import EventQuery, PageQuery
from accord.pipeline.query.checks import CheckedQuery, check
from accord.pipeline.query.scan_ranges import (
    CHUNK_BYTES,
    MAX_CHUNK_ROWS,
    SELECTIVE_ROWS,
    SortRank,
    first_target,
    next_scan_range,
    rank_of,
    rows_of_chunk,
)
from accord.pipeline.tables import TableFile


def file(
    first_ms: int,
    last_ms: int,
    rows: int,
    *,
    bytes_: int = 1,
    channels: tuple[str, str] = ("a", "a"),
) -> TableFile:
    return TableFile(
        path=f"{first_ms}-{last_ms}-{rows}",
        day="2026-11-16",
        rows=rows,
        bytes=bytes_,
        node="n",
        first_ms=first_ms,
        last_ms=last_ms,
        first_offset=0,
        last_offset=rows,
        channels=channels,
    )


def question(**fields: object) -> CheckedQuery:
    return check(PageQuery(id=1, ask=EventQuery(**({"channel": "#"} | fields))))  # type: ignore[arg-type]


def test_few_rows_are_one_stretch() -> None:
    files = [file(0, 99, 50), file(100, 199, 50)]
    found = next_scan_range(files, question(), None, 100)
    assert (found.low_ms, found.high_ms, found.is_last) == (0, 200, True)
    assert found.files == tuple(files)


@pytest.mark.parametrize(("is_newest_first", "times"), [(False, (0, 100)), (True, (900, 1_000))])
def test_a_stretch_has_about_as_many_rows_as_wanted(
    is_newest_first: bool, times: tuple[int, int]
) -> None:
    files = [file(start, start + 99, 100) for start in range(0, 1_000, 100)]
    found = next_scan_range(files, question(is_newest_first=is_newest_first), None, 100)
    assert (found.low_ms, found.high_ms) == times
    assert (len(found.files), found.is_last) == (1, False)


@pytest.mark.parametrize("is_newest_first", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_stretches_follow_each_other_without_gap(seed: int, is_newest_first: bool) -> None:
    rng = random.Random(seed)  # noqa: S311
    files = []
    for _ in range(rng.randrange(1, 12)):
        first = rng.randrange(5_000)
        files.append(file(first, first + rng.choice((0, 10, 3_000)), rng.randrange(1, 10_000)))
    asked = question(
        is_newest_first=is_newest_first,
        since_ms=rng.choice((None, 1_000)),
        until_ms=rng.choice((None, 4_000)),
    )
    seen: list[tuple[int, int]] = []
    after: SortRank | None = None
    for _ in range(200):
        found = next_scan_range(files, asked, after, rng.choice((1, 500, 20_000)))
        seen.append((found.low_ms, found.high_ms))
        needed = {f.path for f in files if f.first_ms < found.high_ms and f.last_ms >= found.low_ms}
        assert {f.path for f in found.files} == needed
        if found.is_last:
            break
        end = found.end(is_newest_first=is_newest_first)
        after = rank_of(end, is_newest_first=is_newest_first)
    else:
        pytest.fail("no end")
    low = max(min(f.first_ms for f in files), asked.query.since_ms or 0)
    high = min(max(f.last_ms for f in files) + 1, asked.query.until_ms or 10_000)
    covered = {ms for first, end in seen for ms in range(first, end)}
    assert covered >= set(range(low, high))


def test_chunks_fit_into_memory() -> None:
    small, large = [file(0, 9, 1_000, bytes_=50_000)], [file(0, 9, 1_000, bytes_=1 << 30)]
    assert rows_of_chunk(small, 1_000, None, is_first=False) == MAX_CHUNK_ROWS
    assert rows_of_chunk(small, 1_000, None, is_first=True) == 2_000
    assert rows_of_chunk(small, 1_000, 7, is_first=True) == 7
    assert rows_of_chunk(large, 1_000, None, is_first=False) <= max(100, CHUNK_BYTES >> 20)


def test_where_all_is_asked_for_the_first_stretch_is_short() -> None:
    files = [file(0, 9, 1_000, channels=("a", "a/b"))]
    assert first_target(question(), files, 100) == 125
    assert first_target(question(channel="a"), files, 100) == SELECTIVE_ROWS
    assert first_target(question(where="x = 1"), files, 100) == SELECTIVE_ROWS
