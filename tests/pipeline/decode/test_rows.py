"""Columns made by the thousand have just the meaning of events read one by one."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.strategies import TEXTS

from accord.core.model.errors import EventError
from accord.core.model.values import INTEGER_MAX
from accord.core.monitoring.ledger import LedgerBatch, Row, event_id, outcome_name
from accord.core.mqtt.codes import PacketType, ProtocolError
from accord.core.mqtt.properties import Properties, decode_properties, encode_properties
from accord.core.mqtt.wire import read_varint, varint_bytes
from accord.journal.events import KeptEvent
from accord.journal.ledger_records import LedgerRecord, encode_ledger, record_of
from accord.journal.record import Batch
from accord.pipeline.decode import rows
from accord.pipeline.decode.attributes import to_row
from accord.pipeline.decode.scan import scan
from accord.pipeline.tables import ARROW, LAST_MS, arrow_events, arrow_ledger

DECLARED: Final = {"n": "integer", "f": "float", "s": "string", "b": "boolean", "t": "timestamp"}
NAMES: Final = (*DECLARED, "x", "y", "metadata", "key", "deadline-ms", "", "n" * 257, "é", "a\0")
VALUES: Final = (
    *TEXTS, "1", "1.0", "2.5", "9007199254740993", "9223372036854775807", "9223372036854775808",
    "true", "false", "True", "2026-11-16T08:00:00Z", "2026-11-16 08:00:00.123456+02:00",
    "0001-01-01T00:00:00+14:00", "<r><n>5</n><n k='1'>6</n></r>", "<r><x>7</x></r>", "<r>", "250",
    "18446744073709551616", "k" * 257, "nul\0",
)  # fmt: skip
_encode = msgspec.msgpack.Encoder().encode


def block(properties: Properties) -> bytes:
    encoded = encode_properties(properties)
    return encoded[read_varint(encoded, 0, len(encoded))[1] :]


def pair(name: str, text: str) -> bytes:
    parts = [each.encode() for each in (name, text)]
    return b"&" + b"".join(len(each).to_bytes(2, "big") + each for each in parts)


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(VALUES) | st.text(max_size=5)


def usual_blocks() -> st.SearchStrategy[bytes]:
    """As nodes write them."""
    user = st.lists(st.tuples(st.sampled_from(NAMES), texts()), max_size=5)
    front = st.lists(
        st.sampled_from([b"\x01\x01", b"\x03\x00\x01a", b"\x08\x00\x01r", b"\x09\x00\x02\xff\x00"]),
        max_size=2,
    )
    return st.tuples(front, user).map(
        lambda both: b"".join((*both[0], *(pair(*each) for each in both[1])))
    )


def blocks() -> st.SearchStrategy[bytes]:
    """Also cut short, changed, repeated, and of any bytes."""
    cut = st.tuples(usual_blocks(), st.integers(0, 40)).map(lambda both: both[0][: both[1]])
    changed = st.tuples(usual_blocks(), st.integers(0, 200), st.integers(0, 255)).map(
        lambda three: bytes(
            three[2] if at == three[1] else byte for at, byte in enumerate(three[0])
        )
    )
    joined = st.tuples(usual_blocks(), usual_blocks()).map(b"".join)
    odd = [b"\x03\x00\x02\xff\xfe", b"\x08\x00\x01#", b"\x08\x00\x00", b"\x01\x02", b"\x23\x00\x01"]
    return st.one_of(
        usual_blocks(), cut, changed, joined, st.binary(max_size=8), st.sampled_from(odd)
    )


def kept_events() -> st.SearchStrategy[KeptEvent]:
    return st.builds(
        KeptEvent,
        received_ms=st.sampled_from([0, 1_763_000_000_123, -1, LAST_MS, LAST_MS + 1, 2**63 - 1]),
        channel=st.sampled_from(["uav/1", "uav/1", "a b/é", "$x", "", "a/+", "x" * 40]),
        publisher=st.sampled_from(["p", "", "p" * 300, "ß"]),
        qos=st.integers(0, 2),
        expiry_s=st.sampled_from([-1, -1, 0, 60, 2**32 - 1, 2**62]),
        attributes=blocks(),
        payload=st.binary(max_size=3) | st.sampled_from([b"x" * 300, b"y" * 70_000]),
        number=st.sampled_from([0, 1, 127, 128, 1_763_000_000_000_000_001, 2**63 - 1]),
    )


def expected(event: KeptEvent, offset: int) -> dict[str, Any]:
    """The row by way of an event, one column after the other."""
    received_ms = min(max(event.received_ms, 0), LAST_MS)
    row: dict[str, Any] = {
        "node": "here",
        "offset": offset,
        "number": event.number,
        "channel": event.channel,
        "publisher": event.publisher,
        "received": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=received_ms),
        "qos": event.qos,
        "payload": event.payload,
        "payload_bytes": len(event.payload),
        "payload_ref": None,
        "properties": event.attributes,
        "day": date(1970, 1, 1) + timedelta(days=received_ms // 86_400_000),
    }
    names = ("key", "deadline_ms", "content_type", "attributes", "metadata", "paths", *DECLARED)
    try:
        found = event.event()
        encoded = varint_bytes(len(event.attributes)) + event.attributes
        properties, _ = decode_properties(encoded, 0, len(encoded), PacketType.PUBLISH)
    except (EventError, ProtocolError):
        return row | dict.fromkeys(names)
    read = to_row(found.values, found.metadata, DECLARED)
    empty = dict.fromkeys(ARROW)
    read["attributes"] = {name: empty | value for name, value in read["attributes"].items()}
    return (
        row
        | read
        | {
            "key": found.key,
            "deadline_ms": found.deadline_ms,
            "content_type": properties.content_type,
        }
    )


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """Values with their types, as Python's 1 == 1.0 == True must not count; maps as such."""
    maps = {
        name: None if row[name] is None else dict(row[name]) for name in ("attributes", "paths")
    }
    return {name: repr(_plain(value)) for name, value in (row | maps).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in sorted(value.items())}
    return value


def batch_of(records: list[bytes], first_offset: int = 0) -> Batch:
    return Batch(first_offset, 0, tuple(map(len, records)), b"".join(records), 0)


@settings(max_examples=150, deadline=None)
@given(st.lists(kept_events(), max_size=8))
@example([KeptEvent(1, "a", "p", 0, -1, pair("x", "1") * 70, b"", 1)])
@example([KeptEvent(1, "a", "p", 0, -1, b"".join(pair(f"x{n}", "1") for n in range(70)), b"", 1)])
@example([KeptEvent(1, "a", "p", 0, -1, b"".join(pair(f"x{n}", "1") for n in range(1001)), b"")])
def test_columns_mean_what_events_mean(events: list[KeptEvent]) -> None:
    made = rows.event_columns(events, range(5, 5 + len(events)), "here", DECLARED)
    assert made.schema == arrow_events(DECLARED)
    made.validate(full=True)
    wanted = [expected(event, offset) for offset, event in enumerate(events, 5)]
    assert list(map(comparable, made.to_pylist())) == list(map(comparable, wanted))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(kept_events(), min_size=1, max_size=4),
    st.sets(st.sampled_from(arrow_events(DECLARED).names), min_size=1),
)
def test_columns_that_are_not_wanted_are_left_out(events: list[KeptEvent], names: set[str]) -> None:
    every = rows.event_columns(events, range(len(events)), "here", DECLARED)
    some = rows.event_columns(events, range(len(events)), "here", DECLARED, names)
    assert some.schema.names == [name for name in every.schema.names if name in names]
    assert some == every.select(some.schema.names)


@settings(max_examples=50, deadline=None)
@given(st.lists(kept_events() | st.binary(max_size=12), max_size=8), st.integers(0, 3))
def test_scanning_finds_what_decoding_finds(items: list[KeptEvent | bytes], cut: int) -> None:
    records = [item if isinstance(item, bytes) else _encode(item) for item in items]
    batches = [batch_of(records[:cut], 10), batch_of(records[cut:], 10 + len(records[:cut]))]
    found = scan(batches)
    decoded = [rows.decode_batch(batch) for batch in batches]
    events = [event for each in decoded for event in each.events]
    assert [found.events.record(row) for row in range(len(found.events))] == events
    assert found.events.offsets.tolist() == [o for each in decoded for o in each.event_offsets]
    assert found.unread == [pair for each in decoded for pair in each.unread]
    made = rows.columns_of(found.events, "here", DECLARED)
    assert made == rows.event_columns(events, found.events.offsets.tolist(), "here", DECLARED)


def test_every_form_of_a_record_is_read() -> None:
    """As msgpack may write them, not just as we do."""
    short = b"\x98\xa5event" + b"\x01" + b"\xa1a" + b"\xa1p" + b"\x00\xff" + b"\xc4\x00" * 2
    wide = (
        b"\x99\xa5event\xd3" + (7).to_bytes(8, "big") + b"\xda\x00\x01a\xdb\x00\x00\x00\x01p"
        b"\xcc\x02\xd2\xff\xff\xff\xff\xc5\x00\x00\xc6\x00\x00\x00\x02xy\xcd\x01\x00"
    )
    huge = _encode(KeptEvent(2**64 - 1, "a", "p", 0, 2**64 - 1, b"", b"", 2**64 - 1))
    later = _encode(
        [*msgspec.msgpack.decode(_encode(KeptEvent(1, "a", "p", 0, -1, b"", b"", 9))), "x"]
    )
    found = scan([batch_of([short, wide, huge, later])])
    assert not found.unread
    assert [found.events.record(row) for row in range(4)] == [
        KeptEvent(1, "a", "p", 0, -1, b"", b"", 0),
        KeptEvent(7, "a", "p", 2, -1, b"", b"xy", 256),
        KeptEvent(2**63 - 1, "a", "p", 0, 2**63 - 1, b"", b"", 2**63 - 1),
        KeptEvent(1, "a", "p", 0, -1, b"", b"", 9),
    ]
    made = rows.columns_of(found.events, "here", {}).to_pylist()
    assert [row["number"] for row in made] == [0, 256, INTEGER_MAX, 9]
    assert made[2]["attributes"] is None
    assert made[0]["attributes"] == []


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\x99",
        b"\x99\xa5event",
        b"\x99\xa5other" + b"\x01" * 8,
        _encode(["event", 1, b"\xff", "p", 0, -1, b"", b"", 1]),
        b"\x99\xa5event\x01\xa1\xff\xa1p\x00\xff\xc4\x00\xc4\x00\x01",
        _encode(["event", 1, "a", "p", 0, -1, b"", b"", 1]) + b"\0",
        _encode(["event", "1", "a", "p", 0, -1, b"", b"", 1]),
        _encode(["ledger", 1]),
    ],
)
def test_a_record_of_no_kind_does_not_hinder_the_others(broken: bytes) -> None:
    good = KeptEvent(1, "a", "p", 0, -1, pair("x", "1"), b"", 1)
    found = scan([batch_of([_encode(good), broken, _encode(good)], 7)])
    assert found.unread == [(8, broken)]
    assert found.events.offsets.tolist() == [7, 9]
    assert [found.events.record(row) for row in (0, 1)] == [good, good]


def test_payloads_that_are_elsewhere_are_not_in_the_column() -> None:
    events = [KeptEvent(1, "a", "p", 0, -1, b"", each, 1) for each in (b"ab", b"large", b"c")]
    found = scan([batch_of(list(map(_encode, events)))]).events
    made = rows.columns_of(found, "here", {}, refs={1: "payloads/x"})
    assert made["payload"].to_pylist() == [b"ab", None, b"c"]
    assert made["payload_ref"].to_pylist() == [None, "payloads/x", None]
    assert made["payload_bytes"].to_pylist() == [2, 5, 1]


def ledger_rows() -> st.SearchStrategy[Row]:
    small = st.integers(-5, 5)
    name = st.sampled_from(["", "a/b", "é"])
    size = st.integers(0, 2**40)
    return st.tuples(
        small, small, st.integers(1, 9), name, name, name, st.integers(0, 8),
        small, small, size, st.integers(0, 5), name, name, size,
    )  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(ledger_rows(), max_size=3), max_size=3))
def test_entries_of_the_ledger_become_rows(batches: list[list[Row]]) -> None:
    records: list[LedgerRecord] = []
    wanted = []
    first_number, first_ms = 1_763_000_000_000_000_000, 1_763_000_000_000
    for offset, each in enumerate(batches, 3):
        batch = LedgerBatch(first_number, first_ms)
        batch.rows = each
        records.append(record_of(batch, newest=0, taken_ms=1))
        for row in each:
            number, received = first_number + row[0], first_ms + row[1]
            times = (received, received + row[7], received + row[7] + row[8])
            moments = [datetime.fromtimestamp(ms / 1000, UTC) for ms in times]
            last = number + row[2] - 1
            names = (last, event_id(number), row[2], *row[3:6], outcome_name(row[6]))
            wanted.append(("here", offset, number, *names, *moments, *row[9:14], moments[2].date()))
    found = scan([batch_of(list(map(encode_ledger, records)), 3)] if records else [])
    assert found.ledger == records
    made = rows.ledger_columns(found.ledger, found.ledger_offsets, "here")
    assert made.schema == arrow_ledger()
    assert [tuple(row.values()) for row in made.to_pylist()] == wanted


def test_numbers_of_the_ledger_beyond_64_bits_do_not_end_it() -> None:
    record = LedgerRecord(
        1, 0, 0, 0, 2**64 - 1, 5, 1, _encode([(0, 0, 1, *"abc", 0, 0, 0, 1, 2, "", "", 3)])
    )
    made = rows.ledger_columns([record], [0], "here").to_pylist()
    assert made[0]["number"] == INTEGER_MAX
