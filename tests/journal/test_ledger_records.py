from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.channels import is_internal
from accord.core.monitoring.ledger import DELIVERED, EXPIRED, SHED, Ledger, LedgerBatch, LedgerEntry
from accord.journal.disk import OsDisk
from accord.journal.events import KeptEvent, decode_event
from accord.journal.faults import FaultDisk
from accord.journal.ledger_records import (
    MAX_BYTES,
    LedgerQuery,
    LedgerRecord,
    LedgerResult,
    LedgerSearch,
    decode_ledger,
    encode_ledger,
    kind_of,
    record_of,
    search_journal,
    select,
)
from accord.journal.reader import Reader
from accord.journal.segment_log import SegmentLog

FIRST = 1_763_000_000_000_000_000
EVENT = msgspec.msgpack.encode(KeptEvent(1, "a", "ann", 0, -1, b"", b"x"))


def entry(
    number: int, destination: str = "bob", *, count: int = 1, **fields: object
) -> LedgerEntry:
    start: dict[str, object] = {
        "number": number,
        "count": count,
        "channel": "a/b",
        "publisher": "ann",
        "destination": destination,
        "outcome": DELIVERED,
        "received_ms": 5_000,
        "queued_ms": 5_001,
        "done_ms": 5_010,
        "size": 100,
        "importance": 3,
    }
    return msgspec.convert({**start, **fields}, LedgerEntry)


def batch_of(*entries: LedgerEntry) -> LedgerBatch:
    ledger = Ledger()
    for each in entries:
        ledger.add(
            each.number,
            each.count,
            each.channel,
            each.publisher,
            each.destination,
            each.outcome,
            each.received_ms,
            each.queued_ms,
            each.done_ms,
            each.size,
            each.importance,
            each.policy,
            each.detail,
            each.sending_us,
        )
    batch = ledger.take()
    assert batch is not None
    return batch


def record(*entries: LedgerEntry, newest: int = 0, taken_ms: int = 6_000) -> LedgerRecord:
    return record_of(batch_of(*entries), newest=newest, taken_ms=taken_ms)


def encoded(*entries: LedgerEntry, newest: int = 0, taken_ms: int = 6_000) -> bytes:
    return encode_ledger(record(*entries, newest=newest, taken_ms=taken_ms))


def journal(*commits: list[bytes], segment_bytes: int = 1 << 20) -> FaultDisk:
    disk = FaultDisk()
    log = SegmentLog(disk, segment_bytes=segment_bytes)
    for number, records in enumerate(commits):
        log.commit(records, now_ms=1_000 + number)
    log.close()
    return disk


names = st.text(max_size=20)
small = st.integers(0, 1 << 40)


@given(
    st.lists(
        st.builds(
            LedgerEntry,
            number=st.integers(0, 1 << 62),
            count=st.integers(1, 9),
            channel=names.filter(lambda name: not is_internal(name)),
            publisher=names,
            destination=names,
            outcome=st.integers(0, 6),
            received_ms=small,
            queued_ms=small,
            done_ms=small,
            size=small,
            importance=st.integers(0, 7),
            policy=names,
            detail=names,
            sending_us=small,
        ),
        min_size=1,
    )
)
def test_what_goes_in_comes_out_with_the_latest_first(entries: list[LedgerEntry]) -> None:
    decoded = decode_ledger(encoded(*entries))
    assert select(decoded, LedgerQuery(), 1_000) == entries[::-1]
    assert decoded.count == len(entries)
    for each in entries:
        if each.number > 0:
            assert decoded.may_have(each.number + each.count - 1)
            assert each in select(decoded, LedgerQuery(number=each.number + each.count - 1), 1_000)


def test_an_entry_takes_few_bytes() -> None:
    entries = [
        entry(
            FIRST + number,
            f"patrol-{number % 50}",
            channel="patrol/report",
            received_ms=5_000 + number // 10,
            queued_ms=5_000 + number // 10,
            done_ms=5_000 + number // 10 + number % 300,
            policy="Patrol-1-Report",
            sending_us=3_000 + number,
        )
        for number in range(2_000)
    ]
    assert len(encoded(*entries)) / 2_000 < 60


def test_records_are_told_apart() -> None:
    ledger = encoded(entry(FIRST))
    assert (kind_of(EVENT), kind_of(ledger)) == ("event", "ledger")
    for foreign in (b"", b"\x97", b"no record at all", msgspec.msgpack.encode(["other", 1, 2, 3])):
        assert kind_of(foreign) == ""
    with pytest.raises(msgspec.DecodeError):
        decode_event(ledger)
    with pytest.raises(msgspec.DecodeError):
        decode_ledger(EVENT)


def test_internal_channels_are_found_by_name_only() -> None:
    reply = "accord-response/ann/1"
    batch = record(
        entry(FIRST, channel=reply), entry(FIRST + 1, channel="$SYS/x"), entry(FIRST + 2)
    )
    for wanted in (LedgerQuery(), LedgerQuery(channel="#"), LedgerQuery(channel="+/#")):
        assert [each.number for each in select(batch, wanted, 9)] == [FIRST + 2]
    assert [each.channel for each in select(batch, LedgerQuery(channel=f"{reply[:15]}/#"), 9)] == [
        reply
    ]
    assert [each.channel for each in select(batch, LedgerQuery(number=FIRST), 9)] == [reply]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (LedgerQuery(), [3, 2, 1]),
        (LedgerQuery(channel="x/+"), [2]),
        (LedgerQuery(channel="#"), [3, 2, 1]),
        (LedgerQuery(client="eve"), [3, 2]),
        (LedgerQuery(client="ann"), [3, 1]),
        (LedgerQuery(outcome=SHED), [2]),
        (LedgerQuery(number=FIRST + 4), [2]),
        (LedgerQuery(number=FIRST + 9), []),
        (LedgerQuery(since_ms=8_000), [3]),
        (LedgerQuery(since_ms=10_001), []),
        (LedgerQuery(client="eve", outcome=DELIVERED), [3]),
    ],
)
def test_filters(wanted: LedgerQuery, found: list[int]) -> None:
    batch = record(
        entry(FIRST, size=1),
        entry(FIRST + 3, "eve", count=2, channel="x/y", publisher="pat", outcome=SHED, size=2),
        entry(FIRST + 6, "eve", received_ms=8_000, queued_ms=8_000, done_ms=9_000, size=3),
        taken_ms=10_000,
    )
    assert [each.size for each in select(batch, wanted, 10)] == found
    assert [each.size for each in select(batch, wanted, 1)] == found[:1]
    assert select(batch, wanted, 0) == []


def test_former_causes_are_read_as_the_present_ones() -> None:
    former = ("others were before it", "the past of a node can't be had: b is gone", "queue full")
    batch = record(*(entry(FIRST, detail=each) for each in former))
    found = [each.detail for each in select(batch, LedgerQuery(), 9)]
    assert found == ["queue full", "history unavailable: b is gone", "position already passed"]


def test_a_run_of_several_channels_is_part_of_any() -> None:
    batch = record(entry(FIRST, channel=""))
    assert len(select(batch, LedgerQuery(channel="any/thing"), 9)) == 1


def find(reader: Reader, number: int) -> LedgerResult:
    return recent(reader, LedgerQuery(number=number))


def recent(
    reader: Reader, wanted: LedgerQuery, *, most: int = 100, max_bytes: int = MAX_BYTES
) -> LedgerResult:
    return search_journal(reader, LedgerSearch(wanted, most), max_bytes=max_bytes)


class TestSearch:
    def test_an_event_is_found_wherever_it_is(self) -> None:
        slow = entry(FIRST + 1, "slow", outcome=EXPIRED)
        disk = journal(
            [EVENT, encoded(entry(FIRST))],
            [encoded(entry(FIRST + 1), newest=FIRST)],
            [EVENT, EVENT, encoded(slow, newest=FIRST + 1), EVENT],
            segment_bytes=100,
        )
        assert len(Reader(disk).segments()) == 3
        assert find(Reader(disk), FIRST + 1) == LedgerResult(
            entries=[slow, entry(FIRST + 1)],
            is_complete=True,
            has_older=True,
            reaches_back_ms=6_000,
        )
        assert find(Reader(disk), FIRST).entries == [entry(FIRST)]

    def test_older_segments_are_not_read_in_vain(self) -> None:
        disk = journal(
            [encoded(entry(FIRST), taken_ms=1_000), b"damaged"],
            [encoded(entry(FIRST + 1), newest=FIRST, taken_ms=2_000)],
            [encoded(entry(FIRST + 2), newest=FIRST + 1, taken_ms=3_000)],
            segment_bytes=100,
        )
        answer = find(Reader(disk), FIRST + 2)
        assert (answer.is_complete, answer.has_older) == (True, True)
        assert (answer.reaches_back_ms, answer.unusable) == (2_000, 0)

    def test_an_event_that_never_was(self) -> None:
        disk = journal([encoded(entry(FIRST + 5))])
        ahead = find(Reader(disk), FIRST + 9)
        assert (ahead.entries, ahead.is_complete, ahead.has_older) == ([], True, True)
        behind = find(Reader(disk), FIRST)
        assert (behind.entries, behind.is_complete, behind.has_older) == ([], True, False)
        assert behind.reaches_back_ms == 6_000

    def test_an_empty_journal(self) -> None:
        nothing = LedgerResult(entries=[], is_complete=True)
        assert find(Reader(journal()), FIRST) == nothing
        assert recent(Reader(journal([EVENT])), LedgerQuery()) == nothing

    def test_the_latest(self) -> None:
        disk = journal(
            [encoded(entry(FIRST), entry(FIRST + 2), taken_ms=1_000)],
            [encoded(entry(FIRST + 3), taken_ms=2_000), EVENT],
            segment_bytes=100,
        )
        answer = recent(Reader(disk), LedgerQuery(), most=2)
        assert [each.number - FIRST for each in answer.entries] == [3, 2]
        assert not answer.is_complete
        answer = recent(Reader(disk), LedgerQuery(client="bob"), most=9)
        assert [each.number - FIRST for each in answer.entries] == [3, 2, 0]
        assert answer.is_complete
        later = recent(Reader(disk), LedgerQuery(since_ms=1_500), most=9)
        assert later.has_older

    def test_a_search_has_a_limit(self) -> None:
        commits = [[encoded(entry(FIRST + number), taken_ms=number)] for number in range(4)]
        disk = journal(*commits, segment_bytes=100)
        answer = recent(Reader(disk), LedgerQuery(outcome=SHED), max_bytes=1)
        assert (answer.entries, answer.is_complete) == ([], False)
        assert answer.reaches_back_ms == 3

    def test_what_can_not_be_read_is_passed_over_and_counted(self) -> None:
        good = encoded(entry(FIRST))
        torn_rows = encode_ledger(msgspec.structs.replace(record(entry(FIRST)), rows=b"\xc1"))
        torn = msgspec.msgpack.encode(["ledger", 1, 2])
        disk = journal([b"foreign!", torn, good, torn_rows, EVENT])
        answer = find(Reader(disk), FIRST)
        assert answer.entries == [entry(FIRST)]
        assert answer.unusable == 3

    def test_a_damaged_segment(self, tmp_path: Path) -> None:
        log = SegmentLog(OsDisk(tmp_path), segment_bytes=100)
        for number in range(3):
            log.commit([encoded(entry(FIRST + number), taken_ms=number)], now_ms=number)
        log.close()
        middle = sorted(tmp_path.glob("*.seg"))[1]
        data = bytearray(middle.read_bytes())
        data[-3] ^= 0xFF
        middle.write_bytes(data)
        answer = recent(Reader(tmp_path), LedgerQuery())
        assert [each.number - FIRST for each in answer.entries] == [2, 0]
        assert answer.unusable == 1
