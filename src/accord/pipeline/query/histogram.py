"""How many events a query has over time, counted in parts: the newest time first.

What the tail of the journal had when the first part was requested is counted with it; the archive
up to there follows, range by range. A file whose events are all in one bucket and all selected is
counted by the table's log, without being opened. So a histogram without a predicate costs next to
nothing as long as files are short, and a long one shows how far it is.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from accord.core.model.values import INTEGER_MAX
from accord.core.queries.histogram import MAX_BUCKETS, TimeBuckets, time_buckets
from accord.core.queries.messages import HistogramPart, HistogramRequest, PageQuery
from accord.pipeline.data_skipping import select
from accord.pipeline.delta_log import Archive, TableSnapshot
from accord.pipeline.journal_readers import open_journal
from accord.pipeline.query.checks import CheckedQuery, InvalidQueryError, check
from accord.pipeline.query.engine import Check, Lookup, StaleError
from accord.pipeline.query.planner import Planner
from accord.pipeline.query.scan_ranges import (
    GROWTH,
    SELECTIVE_ROWS,
    RemainingQuery,
    ScanRange,
    next_scan_range,
)
from accord.pipeline.query.tail import Tail
from accord.pipeline.tables import TableFile

_ATTEMPTS: Final = 4
_MOST_ROWS: Final = 16 * SELECTIVE_ROWS  # of a range
_QUICK_S: Final = 0.25
_MAX_CURSOR: Final = 200


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """Where the next part begins: the archive up to offset `archived` and time `read_ms`."""

    digest: bytes  # of the query
    since_ms: int
    until_ms: int
    width_ms: int
    archived: int
    read_ms: int

    @property
    def buckets(self) -> TimeBuckets:
        return TimeBuckets(self.since_ms, self.until_ms, self.width_ms)


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(_Position)


class _Counting:
    """One part as it is counted."""

    def __init__(self, question: CheckedQuery, position: _Position) -> None:
        self.question = question
        self.buckets = position.buckets
        self.archived = position.archived
        self.read_ms = position.read_ms
        self.counts = [0] * self.buckets.count
        self.target = SELECTIVE_ROWS
        self.opened: dict[str, TableFile] = {}
        self.known = 0
        self.tail = 0

    @property
    def is_done(self) -> bool:
        return self.read_ms <= self.buckets.since_ms

    def add(self, ms: int, count: int = 1) -> None:
        place = self.buckets.place_of(ms)
        if 0 <= place < len(self.counts):
            self.counts[place] += count

    def is_known(self, file: TableFile) -> bool:
        """Whether the log says all that is to be known of the file."""
        question, buckets = self.question, self.buckets
        return (
            bool(file.node)
            and not question.has_predicate
            and question.query.number is None
            and file.channels is not None
            and question.selects_between(*file.channels)
            and file.first_offset >= question.query.from_offset
            and file.last_offset < self.archived
            and buckets.since_ms <= file.first_ms
            and file.last_ms < buckets.until_ms
            and buckets.place_of(file.first_ms) == buckets.place_of(file.last_ms)
        )


class HistogramEngine:
    """Counts events over time; thread-safe."""

    def __init__(
        self, archive: Archive, tail: Tail, planner: Planner, *, node: str, journal: str
    ) -> None:
        self._archive = archive
        self._tail = tail
        self._planner = planner
        self._node = node
        self._journal = journal

    def part(self, asked: HistogramRequest, check_on: Check = lambda: None) -> HistogramPart:
        """Count for about `within_ms`, or raise InvalidQueryError; `check_on` may raise."""
        began_s = time.monotonic()
        question = _checked(asked)
        if asked.cursor:
            counting = _Counting(question, self._position(asked, question))
        else:
            counting = self._begin(asked, question, check_on)
        until_s = began_s + asked.within_ms / 1_000
        while not counting.is_done:
            check_on()
            self._advance(counting, check_on)
            if time.monotonic() > until_s:
                break
        return _part(asked, counting, round((time.monotonic() - began_s) * 1_000))

    def _begin(self, asked: HistogramRequest, question: CheckedQuery, check_on: Check) -> _Counting:
        """Count the tail, which begins where the archive ends now."""
        committed = open_journal(self._journal, self._node).extent().next_offset
        before = min(committed, question.query.before_offset or committed)
        lost_from = -1
        for _ in range(_ATTEMPTS):
            snapshot = self._archive.events.snapshot()
            archived = min(snapshot.archived.get(self._node, 0), before)
            part = RemainingQuery(max(archived, question.query.from_offset), before, None)
            is_final = lost_from == archived

            def times(part: RemainingQuery = part, is_final: bool = is_final) -> Iterator[int]:
                return self._tail.times(question, part, is_final=is_final, check=check_on)

            try:
                since_ms = question.query.since_ms
                if since_ms is None:
                    files = self._select(question, snapshot, asked.until_ms)
                    received = chain((file.first_ms for file in files), times())
                    since_ms = min(received, default=asked.until_ms - 1)
                counting = _Counting(question, _start(asked, question, since_ms, archived))
                for ms in times():
                    counting.add(ms)
            except StaleError:
                lost_from = archived
                continue
            counting.tail = max(0, part.before - part.first)
            return counting
        raise InvalidQueryError("the archive changes faster than it can be read: try again")

    def _position(self, asked: HistogramRequest, question: CheckedQuery) -> _Position:
        found = _decode(asked.cursor)
        if found is None or found.digest != question.digest or found.since_ms < 0:
            raise InvalidQueryError("expected the cursor of a part, as it came", place="cursor")
        committed = open_journal(self._journal, self._node).extent().next_offset
        return replace(found, archived=min(found.archived, committed))

    def _advance(self, counting: _Counting, check_on: Check) -> None:
        """Count one more range of the archive."""
        for _ in range(_ATTEMPTS):
            try:
                began_s = time.monotonic()
                self._count_range(counting, self._archive.events.snapshot(), check_on)
            except StaleError:
                continue  # other files have these events now
            if time.monotonic() - began_s < _QUICK_S:
                counting.target = min(_MOST_ROWS, counting.target * GROWTH)
            return
        raise InvalidQueryError("the archive changes faster than it can be read: try again")

    def _count_range(self, counting: _Counting, snapshot: TableSnapshot, check_on: Check) -> None:
        question, high, since_ms = counting.question, counting.read_ms, counting.buckets.since_ms
        files = [
            file
            for file in self._select(question, snapshot, high)
            if file.last_ms >= since_ms and file.first_offset < counting.archived
        ]
        known = {file.path for file in files if counting.is_known(file)}
        unknown = [file for file in files if file.path not in known]
        low = since_ms
        if unknown:
            after = (1 - high, -INTEGER_MAX)  # what was received before `high`
            chosen = next_scan_range(unknown, question, after, counting.target)
            low = since_ms if chosen.is_last else max(since_ms, chosen.low_ms)
        inside = [file for file in files if file.last_ms >= low]
        by_log = [
            each
            for each in inside
            if each.path in known and each.first_ms >= low and each.last_ms < high
        ]
        passed = {each.path for each in by_log}
        read = tuple(each for each in inside if each.path not in passed)
        found: list[tuple[int, int]] = []
        if read:
            width_ms = counting.buckets.width_ms
            part = RemainingQuery(question.query.from_offset, counting.archived, None)
            stretch = ScanRange(read, low, high, low == since_ms)
            lookup = Lookup(question, part, stretch, snapshot, self._node)
            engine = self._planner.choose(question, stretch)
            found = engine.counts(lookup, width_ms, check_on)
            for at, count in found:
                counting.add(at * width_ms, count)
        for each in by_log:
            counting.add(each.first_ms, each.rows)
        counting.opened.update((each.path, each) for each in read)
        counting.known += len(by_log)
        counting.read_ms = low

    def _select(
        self, question: CheckedQuery, snapshot: TableSnapshot, until_ms: int
    ) -> list[TableFile]:
        ask = question.query
        return select(
            snapshot.files,
            channel=ask.channel,
            since_ms=ask.since_ms,
            until_ms=until_ms,
            from_offset=ask.from_offset,
            number=ask.number,
            node=self._node,
            predicate=question.predicate if question.has_predicate else None,
            columns=snapshot.columns,
        )


def _checked(asked: HistogramRequest) -> CheckedQuery:
    if not 1 <= asked.buckets <= MAX_BUCKETS:
        raise InvalidQueryError(
            f"expected 1 to {MAX_BUCKETS}, got {asked.buckets}", place="buckets"
        )
    # Newest first, and without the times that are given besides: the cursor has them.
    ask = replace(asked.ask, is_newest_first=True, until_ms=asked.until_ms, limit=None)
    return check(PageQuery(id=0, ask=ask))


def _start(
    asked: HistogramRequest, question: CheckedQuery, since_ms: int, archived: int
) -> _Position:
    buckets = time_buckets(since_ms, max(asked.until_ms, since_ms + 1), asked.buckets)
    return _Position(
        question.digest,
        buckets.since_ms,
        buckets.until_ms,
        buckets.width_ms,
        archived,
        buckets.until_ms,
    )


def _part(asked: HistogramRequest, counting: _Counting, took_ms: int) -> HistogramPart:
    buckets = counting.buckets
    position = _Position(
        counting.question.digest,
        buckets.since_ms,
        buckets.until_ms,
        buckets.width_ms,
        counting.archived,
        counting.read_ms,
    )
    return HistogramPart(
        id=asked.id,
        first_ms=buckets.first_ms,
        width_ms=buckets.width_ms,
        counts=tuple(counting.counts),
        read_ms=counting.read_ms,
        cursor="" if counting.is_done else _text(position),
        files=len(counting.opened),
        files_known=counting.known,
        bytes=sum(file.bytes for file in counting.opened.values()),
        tail=counting.tail,
        took_ms=took_ms,
    )


def _text(position: _Position) -> str:
    return base64.urlsafe_b64encode(_encode(position)).decode().rstrip("=")


def _decode(text: str) -> _Position | None:
    """The position, or None: it comes from outside."""
    if len(text) > _MAX_CURSOR or not text.isascii():
        return None
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = _decoder.decode(data)
    except (binascii.Error, msgspec.DecodeError):
        return None
    numbers = (found.since_ms, found.until_ms, found.archived, found.read_ms)
    is_ours = all(0 <= each <= INTEGER_MAX for each in numbers) and found.width_ms > 0
    is_inside = found.since_ms <= found.read_ms <= found.until_ms
    return found if is_ours and is_inside and found.buckets.count <= MAX_BUCKETS else None
