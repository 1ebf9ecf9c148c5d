from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.journal import record
from accord.journal.record import (
    BATCH_HEADER,
    LOG,
    MAX_OFFSET,
    SEGMENT_HEADER,
    Batch,
    BatchHeader,
    SegmentHeader,
    Torn,
    decode_batch,
    decode_batch_header,
    decode_segment_header,
    encode_batch,
    encode_batches,
    encode_segment_header,
)

RECORDS = st.lists(st.binary(max_size=40), max_size=20)


def decode(data: bytes, position: int = 0) -> Batch | Torn:
    header = decode_batch_header(data, position)
    return header if isinstance(header, Torn) else decode_batch(data, position, header)


def test_the_format_does_not_change_by_accident() -> None:
    assert encode_segment_header(LOG, 7, 1_000).hex() == (
        "6163636f72642d6a010001000700000000000000e803000000000000444fa990"
    )
    header, body = encode_batch([b"ab", b"", b"c"], 7, 1_000)
    assert header.hex() == ("0f00000012214713070000000000000003000000e8030000000000008ee47ade")
    assert body.hex() == "020000000000000001000000616263"


@given(RECORDS, st.integers(0, MAX_OFFSET - 20), st.integers(0, 2**63), st.binary(max_size=9))
def test_batches_come_back_as_they_were(
    records: list[bytes], offset: int, time_ms: int, before: bytes
) -> None:
    data = before + b"".join(encode_batch(records, offset, time_ms)) + b"more"
    batch = decode(data, len(before))
    assert isinstance(batch, Batch)
    assert batch.records() == records
    assert batch.views() == records
    assert batch.data == b"".join(records)
    assert (batch.first_offset, batch.time_ms) == (offset, time_ms)
    assert (batch.count, batch.end_offset) == (len(records), offset + len(records))


@given(RECORDS.filter(bool), st.data())
def test_any_changed_byte_is_noticed(records: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(encode_batch(records, 5, 6)))
    index = data.draw(st.integers(0, len(whole) - 1))
    whole[index] ^= data.draw(st.integers(1, 255))
    assert isinstance(decode(bytes(whole)), Torn)


@given(RECORDS, st.data())
def test_a_batch_cut_anywhere_is_torn_where_it_begins(
    records: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(encode_batch(records, 5, 6))
    size = data.draw(st.integers(0, len(whole) - 1))
    torn = decode(b"xyz" + whole[:size], 3)
    assert isinstance(torn, Torn)
    assert torn.position == 3
    assert "cut short" in torn.why


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_torn_and_nothing_worse(data: bytes) -> None:
    assert isinstance(decode(data), Torn)
    assert isinstance(decode_segment_header(data), Torn)


@given(st.binary(max_size=60), st.integers(0, 2**32 - 1))
def test_a_body_that_contradicts_its_header_is_torn(body: bytes, count: int) -> None:
    """What only a mistake in the writer could make; the checksums are right."""
    header = BatchHeader(len(body), crc32(body), 0, count, 0)
    found = decode_batch(bytes(BATCH_HEADER) + body, 0, header)
    if isinstance(found, Batch):
        assert sum(found.lengths) + 4 * count == len(body)


def test_zeros_are_torn() -> None:
    assert isinstance(decode(bytes(BATCH_HEADER)), Torn)
    assert isinstance(decode_segment_header(bytes(SEGMENT_HEADER)), Torn)


@given(st.integers(0, MAX_OFFSET), st.integers(0, 2**63), st.data())
def test_segment_headers(offset: int, time_ms: int, data: st.DataObject) -> None:
    whole = encode_segment_header(LOG, offset, time_ms)
    assert len(whole) == SEGMENT_HEADER
    assert decode_segment_header(whole) == SegmentHeader(LOG, offset, time_ms)
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    assert isinstance(decode_segment_header(bytes(changed)), Torn)
    assert isinstance(decode_segment_header(whole[:-1]), Torn)


def test_another_version_is_named() -> None:
    fields = encode_segment_header(LOG, 0, 0)[:8] + b"\x63\0" + bytes(18)
    torn = decode_segment_header(fields + crc32(fields).to_bytes(4, "little"))
    assert torn == Torn(0, "format version 99, expected 1", 99)


@given(RECORDS.filter(bool), st.integers(1, 60))
def test_long_commits_become_several_batches(records: list[bytes], limit: int) -> None:
    data = b"".join(encode_batches(records, 100, 1, limit=limit))
    found: list[bytes] = []
    position = 0
    while position < len(data):
        batch = decode(data, position)
        assert isinstance(batch, Batch)
        assert batch.first_offset == 100 + len(found)
        assert batch.count == 1 or sum(batch.lengths) + 4 * batch.count <= limit
        found += batch.records()
        position = batch.start + sum(batch.lengths)
    assert found == records


@given(RECORDS, st.integers(0, 30), st.integers(0, 30))
def test_a_part_of_a_batch(records: list[bytes], first: int, end: int) -> None:
    batch = decode(b"".join(encode_batch(records, 5, 6)))
    assert isinstance(batch, Batch)
    numbered = list(enumerate(records, 5))
    part = batch.between(first, end)
    expected = [record for number, record in numbered if first <= number < end]
    assert part.records() == expected
    assert part.data == b"".join(expected)
    if expected:
        assert part.first_offset == max(first, 5)


def test_a_batch_beyond_all_bounds_is_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_BODY", 100)
    with pytest.raises(ValueError, match="a batch of 108 bytes, expected at most 100"):
        encode_batch([bytes(50), bytes(50)], 0, 0)
