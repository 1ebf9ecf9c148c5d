"""The extension and its twin `reference`: what both do, and that they agree on any input."""

from __future__ import annotations

import struct
from array import array
from functools import cache
from random import Random
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.frame_twins import (
    ALIASES,
    CLEAN,
    EXTENSION,
    LARGEST,
    LONG,
    MANY,
    NAMES,
    OTHERS,
    TEXTS,
    TOPICS,
    A,
    B,
    Read,
    alias,
    check_runs,
    check_scan,
    expiry,
    make_packet,
    publish,
    same,
    scanned,
    sized,
    user,
)
from tests.scenarios.fuzzing.corpus import make_corpus
from tests.scenarios.fuzzing.mutations import mutate

from accord.core.mqtt.wire import varint_bytes
from accord.core.native import reference

NOT_BUILT: Final = "the extension was not built"
both_built = pytest.mark.skipif(EXTENSION is None, reason=NOT_BUILT)


@pytest.fixture(params=["reference", "extension"])
def twin(request: pytest.FixtureRequest) -> Any:
    if request.param == "reference":
        return reference
    if EXTENSION is None:
        pytest.skip(NOT_BUILT)
    return EXTENSION


def test_a_scan_takes_frames_of_one_qos_and_labels_them_by_topic(twin: Any) -> None:
    clean = publish(A) + publish(B, user(b"h")) + publish(A, b"\x01\x01\x03\0\x01t")
    frames = scanned(twin, b"--" + clean + publish(A, packet_id=1), 2)
    assert (frames.count, frames.start, frames.end, frames.wanted) == (3, 2, 2 + len(clean), 0)
    assert (frames.ways, frames.qos, frames.is_v5) == (["A", "B/É"], 0, True)
    sizes = [len(publish(A)), len(publish(B, user(b"h")))]
    assert frames.sizes() == [(2, len(clean) - sizes[1]), (1, sizes[1])]
    assert frames.places(1) == [(2 + sizes[0], 2 + sum(sizes))]
    start, end = struct.unpack("=II", frames.spans(1))
    assert frames.data[start:end] == user(b"h")
    assert frames.places(7) == []
    assert frames.spans(7) == b""


@pytest.mark.parametrize(
    "packet",
    [
        b"\xc0\0", b"\x31" + publish(A)[1:], b"\x3a" + publish(A, packet_id=1)[1:],
        publish(A, packet_id=0), publish(b"unknown"), publish(b""), publish(b"", alias(3)),
        publish(b"", alias(9)), publish(b"", alias(0)), publish(A, alias(0)), publish(A, alias(1)),
        publish(A, expiry(1) * 2), publish(A, b"\x01\x02"), publish(A, b"\x08" + sized(A)),
        publish(A, b"\x0b\x01"), publish(A, b"\x02\0"), publish(A, b"\x77"),
        *(publish(A, user(name)) for name in NAMES[6:]), publish(A, user(b"n") * 257),
        *(publish(A, user(b"n", text)) for text in TEXTS[5:]),
        *(b"\x30" + length + publish(A)[2:] for length in (b"\x80\0", b"\xff\xff\xff\xff\1")),
    ],
    ids=lambda packet: packet[:20].hex(),
)  # fmt: skip
def test_a_scan_ends_before_what_is_not_clean(packet: bytes, twin: Any) -> None:
    before = publish(A, packet_id=7 if packet[0] == 0x32 else None)
    frames = scanned(twin, before + packet)
    assert (frames.count, frames.end, frames.wanted) == (1, len(before), 0)
    assert scanned(twin, packet) is None


@pytest.mark.parametrize("text", TEXTS[:5])
@pytest.mark.parametrize("name", NAMES[:6])
def test_other_names_and_texts_are_clean(name: bytes, text: bytes, twin: Any) -> None:
    assert scanned(twin, publish(A, user(name, text) * 256)).count == 1


def test_a_scan_says_how_long_the_packet_is_that_is_not_whole(twin: Any) -> None:
    whole = publish(A, b"", b"x" * 300)
    for size in range(len(whole)):
        frames = scanned(twin, publish(A) + whole[:size])
        assert frames.end == len(publish(A))
        assert frames.wanted == (len(whole) if size >= 3 else 0)
    for length in (127, 128, 16_383, 16_384, 2_097_151, 2_097_152, LARGEST - 5):
        header = b"\x30" + varint_bytes(length)
        assert scanned(twin, publish(A) + header).wanted == len(header) + length


def test_a_packet_is_no_longer_than_the_limit(twin: Any) -> None:
    long = publish(A, b"", b"x" * 300)
    for missing, limit, count, wanted in (
        (0, len(long), 2, 0), (0, len(long) - 1, 1, 0), (1, len(long), 1, len(long)),
        (1, len(long) - 1, 1, 0),
    ):  # fmt: skip
        data = publish(A) + long[: len(long) - missing]
        frames = twin.scan(data, 0, True, limit, TOPICS, ALIASES)
        assert (frames.count, frames.wanted) == (count, wanted)
    for start, limit in ((-1, 9), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            twin.scan(publish(A), start, True, limit, TOPICS, ALIASES)


def test_a_single_frame_is_known_by_its_topic(twin: Any) -> None:
    assert twin.single(publish(A), True, TOPICS) == ("A", -1, 0)
    assert twin.single(publish(A, expiry(5), packet_id=7), True, TOPICS) == ("A", 5, 7)
    assert twin.single(publish(A, expiry(0xFFFFFFFF)), True, TOPICS) == ("A", -1, 0)
    for data in (
        b"", b"\x30", publish(A) * 2, publish(A)[:-1], publish(A) + b"\0", publish(b"unknown"),
        publish(b"", alias(2)), publish(A, alias(2)), publish(A, packet_id=0), publish(A, b"\x77"),
        b"\x31" + publish(A)[1:], b"\x34" + publish(A, packet_id=1)[1:],
    ):  # fmt: skip
        assert twin.single(data, True, TOPICS) is None


def test_an_alias_is_replaced_by_its_topic(twin: Any) -> None:
    frames = scanned(twin, publish(A) + publish(b"", user(b"h") + alias(2) + expiry(5), b"p" * 9))
    expected = publish(LONG, user(b"h") + expiry(5), b"p" * 9)
    assert frames.take(b"\1\2") == (publish(A) + expected, b"\1\2", 5)
    assert frames.take(b"\0\xff\xff") == (expected, b"\xff", 5)
    assert frames.take(b"\3") == (publish(A), b"\3", -1)
    assert frames.relabel(1, array("I", [0]), ["X"]) == 2
    assert frames.take(b"\0\0\1")[0] == expected


def test_an_alias_that_stands_for_no_bytes_is_refused(twin: Any) -> None:
    with pytest.raises(TypeError):
        twin.scan(publish(b"", alias(1)), 0, True, 99, {"topic": 1}, {1: "topic"}).take(b"\1")


def test_the_least_expiry_is_told_and_the_greatest_is_none(twin: Any) -> None:
    seconds = (9, 0xFFFFFFFF, 0, 0xFFFFFFFE)
    topics = (A, B, *MANY[:2])
    blocks = [publish(topic, expiry(each)) for topic, each in zip(topics, seconds, strict=True)]
    frames = scanned(twin, b"".join(blocks))
    least = [frames.take(bytes(label) + b"\1")[2] for label in range(4)]
    assert least == [9, -1, 0, 0xFFFFFFFE]
    assert frames.take(b"\1\1\1\1")[2] == 0


def test_relabelling_gives_each_frame_a_way_of_its_own_or_changes_nothing(twin: Any) -> None:
    frames = scanned(twin, (publish(A) + publish(B)) * 3)
    assert frames.relabel(0, array("I", [1, 0, 1]), ["P", "Q"]) == 2
    assert frames.ways == ["A", "B/É", "P", "Q"]
    assert [count for count, _ in frames.sizes()] == [0, 3, 1, 2]
    for label, which, ways in (
        (1, [0, 0], ["P"]),
        (1, [0, 0, 1], ["P"]),
        (1, [0, 0, 0, 0], ["P"]),
        (4, [], ["P"]),
        (-1, [], ["P"]),
        (2**32 + 1, [0, 0, 0], ["P"]),
    ):
        with pytest.raises(ValueError, match="relabel"):
            frames.relabel(label, array("I", which), ways)
    with pytest.raises(ValueError, match="relabel"):
        frames.relabel(1, b"\0" * 13, ["P"])
    assert len(frames.ways) == len(frames.sizes()) == 4
    assert frames.relabel(0, array("I"), []) == 4


def test_pubacks_have_the_code_of_their_label_where_the_version_has_codes(twin: Any) -> None:
    for is_v5, coded in ((True, b"\x40\x03\0\5\x10"), (False, b"\x40\x02\0\5")):
        block = b"" if is_v5 else None
        data = publish(A, block, packet_id=0x1234) + publish(B, block, packet_id=5)
        frames = scanned(twin, data, is_v5=is_v5)
        assert frames.acks(b"\0\x10") == b"\x40\x02\x12\x34" + coded
        assert frames.acks(b"\xff\x10") == coded
        assert frames.acks(b"\0") == b"\x40\x02\x12\x34"


def test_rewriting_lowers_qos_patches_expiry_and_appends_properties(twin: Any) -> None:
    block, more = user(b"h") + expiry(9) + user(b"i"), b"\x0b\x07\x0b\x80\x01"
    frames = publish(A, block, packet_id=8) + publish(B)
    assert twin.rewrite(frames, True, True, 2, 0, b"") == frames
    assert twin.rewrite(frames, True, True, 0, 0, more) == publish(A, block + more) + publish(
        B, more
    )
    assert twin.rewrite(frames, True, False, 1, 5, more) == publish(A, None, packet_id=8) + publish(
        B, None
    )
    assert twin.rewrite(publish(A, None), False, True, 1, 5, more) == publish(A, more)
    for waited_s, left_s in ((4, 5), (9, 0), (10, 0), (0xFFFFFFFF, 0)):
        patched = publish(A, block.replace(expiry(9), expiry(left_s)), packet_id=8)
        assert twin.rewrite(frames, True, True, 1, waited_s, b"") == patched + publish(B)


def test_rewriting_refuses_what_no_packet_can_have(twin: Any) -> None:
    for qos, waited_s in ((-1, 0), (3, 0), (1, -1), (1, 2**32)):
        with pytest.raises(ValueError, match="rewrite"):
            twin.rewrite(publish(A), True, True, qos, waited_s, b"")
    with pytest.raises(ValueError, match="at most 268435455 bytes"):
        twin.rewrite(publish(A), True, True, 1, 0, bytes(LARGEST))


@pytest.mark.parametrize(
    "packet",
    [b"\xc0\0", b"\x30", b"\x30\1\0", b"\x30\2\0\1", b"\x30\2\0\0", b"\x32\4\0\0\0\1",
     publish(A)[:-1], publish(A, b"\x77"), publish(A, b"\x02\0"), publish(A, None, b"\2\1")],
)  # fmt: skip
def test_runs_are_of_whole_publish_packets(packet: bytes, twin: Any) -> None:
    calls = {"rewrite": (True, True, 1, 0, b""), "expired": (True, 0), "records": (True, b"", 0)}
    for frames in (packet, publish(A) + packet + publish(B)):
        for name, arguments in calls.items():
            with pytest.raises(ValueError, match=r"whole|properties"):
                getattr(twin, name)(frames, *arguments)


def test_numbers_wrap_from_65535_to_1(twin: Any) -> None:
    frames = b"".join(publish(A, packet_id=9) for _ in range(3))
    numbered = b"".join(publish(A, packet_id=number) for number in (65_534, 65_535, 1))
    assert twin.number(frames, 65_534) == numbered
    for first in (0, -1, 65_536, 2**40):
        with pytest.raises(ValueError, match="identifier"):
            twin.number(frames, first)
    with pytest.raises(ValueError, match="QoS 1"):
        twin.number(publish(A), 1)


def test_a_cut_has_the_wanted_bytes_or_at_most_the_largest_and_one_frame_at_least(
    twin: Any,
) -> None:
    size = len(publish(A))
    frames = publish(A) * 5 + b"not looked at"
    assert twin.cut(frames, 1, 1, 9) == (size, 1)
    assert twin.cut(frames, size + 1, 99, 9) == (2 * size, 2)
    assert twin.cut(frames, size + 1, 2 * size - 1, 9) == (size, 1)
    assert twin.cut(frames, size + 1, 2 * size, 9) == (2 * size, 2)
    assert twin.cut(frames, 99, 99, 3) == (3 * size, 3)
    assert twin.cut(frames, 0, 99, 3) == twin.cut(frames, 9, 99, 0) == (0, 0)
    with pytest.raises(ValueError, match="whole packets"):
        twin.cut(frames, 99, 99, 9)


def test_a_frame_expires_when_its_seconds_are_over(twin: Any) -> None:
    frames = publish(A, expiry(2)) + publish(A) + publish(A, expiry(0))
    assert [twin.expired(frames, True, ms) for ms in (-1, 1_999, 2_000)] == [
        b"\0\0\0", b"\0\0\1", b"\1\0\1",
    ]  # fmt: skip
    assert twin.expired(publish(A, None, expiry(0)), False, 9) == b"\0"


def test_acknowledged_identifiers_are_ranges_up_to_the_first_other_packet(twin: Any) -> None:
    ids = (1, 2, 3, 9, 8, 9, 65_535)
    acks = b"-" + b"".join(b"\x40\x02" + number.to_bytes(2, "big") for number in ids)
    ranges = [(1, 3), (9, 1), (8, 2), (65_535, 1)]
    for other in (b"", b"\x40\x02\0", b"\x40\x02\0\0", b"\x40\x03\0\4\x10", b"\xc0\0"):
        assert twin.acknowledged(acks + other, 1) == (ranges, len(acks))
    assert twin.acknowledged(acks, 99) == ([], 99)
    with pytest.raises(ValueError, match="negative"):
        twin.acknowledged(acks, -1)


def test_records_have_expiry_attributes_payload_and_number(twin: Any) -> None:
    frames = publish(A, user(b"h") + expiry(7), b"xy", 5) + publish(B, b"", b"")
    attributes = bytes((0xC6, 0, 0, 0, len(user(b"h")))) + user(b"h")
    assert twin.records(frames, True, b"head", 255) == [
        b"head\xce\0\0\0\7" + attributes + b"\xc6\0\0\0\2xy\xcf\0\0\0\0\0\0\0\xff\0\xc2",
        b"head\xff\xc6\0\0\0\0\xc6\0\0\0\0\xcf\0\0\0\0\0\0\1\0\0\xc2",
    ]
    with pytest.raises(ValueError, match="negative"):
        twin.records(frames, True, b"", -1)


EDITS: Final = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 3), st.binary(max_size=3)), max_size=3
)


@st.composite
def reads(draw: st.DrawFn) -> Read:
    is_v5 = draw(st.booleans())
    several = range(draw(st.integers(1, 5)))
    found = [make_packet(lambda few: draw(st.sampled_from(few)), is_v5) for _ in several]
    if draw(st.booleans()):
        found = [each for each in found if each[0] == found[0][0]]
    before = draw(st.sampled_from([b"", b"", b"\xc0\0"]))
    data = bytearray(before + b"".join(found))
    for place, removed, inserted in draw(EDITS) if draw(st.booleans()) else ():
        data[place : place + removed] = inserted
    size = draw(st.integers(0, len(data))) if draw(st.integers(0, 3)) == 0 else len(data)
    return Read(bytes(data[:size]), len(before), is_v5)


TABLES: Final = st.lists(st.binary(max_size=4), max_size=2).map(lambda few: [*few, b"\1\2\3\4\5"])
STEPS: Final = st.lists(
    st.tuples(
        st.integers(-1, 5),
        st.integers(0, 2) | st.binary(max_size=13),
        st.lists(st.sampled_from("xyz"), max_size=3),
    ),
    max_size=3,
)
WHOLE: Final = st.sampled_from([0, 1, 2, 5, 59, 65_534, 65_535, 65_536, 2**31, 2**32 - 1, 2**32])
ACKS: Final = st.sampled_from(
    [b"\x40\2\0\1", b"\x40\2\0\2", b"\x40\2\xff\xff", b"\x40\3\0\3\0", b"\x40\2\0\0", b"\x40"]
)


@both_built
@settings(max_examples=500)
@given(reads(), st.sampled_from([LARGEST, LARGEST, 100, 10, 0, -1]), STEPS, TABLES)
def test_the_twins_scan_alike(
    read: Read, limit: int, steps: list[Any], tables: list[bytes]
) -> None:
    check_scan(read, limit, steps, tables)


@both_built
@settings(max_examples=500)
@given(reads(), st.tuples(WHOLE, WHOLE, WHOLE), st.binary(max_size=6))
@example(Read(publish(A, expiry(1) + expiry(2)), 0, True), (1, 1, 1), b"\1")
def test_the_twins_handle_runs_alike(read: Read, numbers: tuple[int, ...], extra: bytes) -> None:
    check_runs(read.data[read.start :], read.is_v5, numbers, extra)


@both_built
@given(st.lists(ACKS), st.integers(-1, 30))
def test_the_twins_read_acknowledgements_alike(parts: list[bytes], start: int) -> None:
    same((EXTENSION, reference), "acknowledged", b"".join(parts), start)


@both_built
@given(st.lists(st.sampled_from(MANY), min_size=50, max_size=200), TABLES)
def test_the_twins_label_many_topics_alike(topics: list[bytes], tables: list[bytes]) -> None:
    data = b"".join(publish(topic, packet_id=1) for topic in topics)
    check_scan(Read(data, 0, True), LARGEST, [(3, 1, ["x", "y"])], [*tables, bytes(range(100))])


@both_built
def test_the_twins_know_the_same_texts() -> None:
    """All pairs of a first and a second byte, with as many behind them as is right, or not."""
    for first in range(256):
        for second in range(256):
            for more in (b"", b"\x80") if first < 0xF0 else (b"\x80", b"\x80\x80", b"\xbf\xc0"):
                text = b"12345678" + bytes((first, second)) + more
                data = publish(A, user(b"n", text), b"\x80")
                assert (scanned(EXTENSION, data) is None) == (scanned(reference, data) is None)


@both_built
def test_the_twins_agree_on_each_property_and_first_byte() -> None:
    pairs = (user(name, text) for name in NAMES for text in TEXTS)
    several = (first + last for first in CLEAN for last in CLEAN)
    reads = [bytes((first,)) + publish(A, b"", b"", 9)[1:] for first in range(256)]
    reads.append(publish(A, packet_id=0))
    for block in (*CLEAN, *OTHERS, *pairs, *several):
        reads += publish(A, block), publish(b"", block + alias(2)), publish(A, block, b"", 9)
    for data in reads:
        for table in (b"\1\1", b"\xfe\xfe", b"\xff\xff"):
            check_scan(Read(data + data, 0, True), LARGEST, [(0, 0, ["x"])], [table])
        check_runs(data + data, True, (59, 1, 1), b"\1\2")


@cache
def corpus() -> list[bytes]:
    return [packet for packet in make_corpus([]).all() if len(packet) < 5_000]


@both_built
@pytest.mark.parametrize("seed", range(3))
def test_the_twins_agree_on_packets_of_all_kinds_and_their_mutations(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    for packet in corpus():
        for data in (packet, mutate(random, packet, corpus())):
            for is_v5 in (False, True):
                check_scan(Read(data, 0, is_v5), LARGEST, [(0, 0, ["x"])], [b"\1"])
                check_runs(data, is_v5, (random.randrange(70), 1, 1), b"\1\2")
