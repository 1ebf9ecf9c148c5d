"""Packets in bulk: the same as one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mqtt_strategies import packets

from accord.apps.load.frames import Buffer, LoadCounts, Run
from accord.apps.load.load import CHUNK_BYTES, MAX_ID, StampedEvents, latencies_ns
from accord.apps.load.mqtt import Mqtt
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from accord.core.mqtt.wire import Framer

MQTT = Mqtt()


def runs_of(data: Buffer) -> Iterator[Run]:
    run = Run(MQTT)
    run.read(bytearray(data), len(data))
    while run.advance():
        yield run


def first_run(data: Buffer) -> Run:
    return next(runs_of(data))


def packets_in(data: bytes) -> list[bytes]:
    return [
        bytes(run.buffer[at : at + run.size])
        for run in runs_of(data)
        for at in range(run.start, run.end, run.size)
    ]


def decoded(data: Buffer) -> list[Packet]:
    return [decode(head, body, V5) for head, body in Framer(1 << 20).feed(bytes(data))]


@given(
    runs=st.lists(st.tuples(packets(V5), st.integers(1, 40)), max_size=6),
    cut=st.integers(0, 200),
)
def test_splits_as_one_by_one(runs: list[tuple[Packet, int]], cut: int) -> None:
    whole = [encode(packet, V5) for packet, count in runs for _ in range(count)]
    data = b"".join(whole)
    data = data[: max(len(data) - cut, 0)]
    expected, size = [], 0
    for packet in whole:
        size += len(packet)
        if size <= len(data):
            expected.append(packet)
    assert packets_in(data) == expected


def test_a_run_is_found_as_a_whole() -> None:
    run = first_run(encode(Puback(7), V5) * 10_000)
    assert (run.head, run.size, run.number) == (b"\x40\x02", 4, 10_000)


@pytest.mark.parametrize(
    ("received", "reply"),
    [
        (lambda each: Publish("a", b"x", 1, packet_id=each), Puback),
        (lambda each: Publish("a", b"x", 2, packet_id=each), Pubrec),
        (Pubrec, Pubrel),
        (Pubrel, Pubcomp),
    ],
)
def test_replies_to_all_at_once(
    received: Callable[[int], Packet], reply: Callable[[int], Packet]
) -> None:
    ids = (1, 700, MAX_ID)
    run = first_run(b"".join(encode(received(each), V5) for each in ids))
    counts = LoadCounts()
    assert decoded(MQTT.handle(run, counts)) == [reply(each) for each in ids]
    assert counts.delivered == (3 if isinstance(received(1), Publish) else 0)
    assert counts.acknowledged == counts.refused == 0


def test_what_is_refused_is_counted_and_not_released() -> None:
    reasons = (0x87, 0x10, 0x97)
    run = first_run(b"".join(encode(Puback(1, each), V5) for each in reasons))
    counts = LoadCounts()
    assert MQTT.handle(run, counts) == b""
    assert (counts.acknowledged, counts.refused) == (3, 2)
    run = first_run(b"".join(encode(Pubrec(7 + each, each), V5) for each in reasons))
    assert decoded(MQTT.handle(run, counts)) == [Pubrel(7 + 0x10)]
    assert (counts.acknowledged, counts.refused) == (5, 4)


class TestStampedEvents:
    def test_of_quality_0(self) -> None:
        events = StampedEvents("bench/x", 100, 0)
        assert events.count * events.packet_size <= CHUNK_BYTES
        data, count = events.take(3)
        run = first_run(data)
        published = decoded(data)
        assert count == run.number == 3
        (payload,) = {packet.payload for packet in published if isinstance(packet, Publish)}
        assert published == [Publish("bench/x", payload)] * 3
        assert payload[8:] == bytes(92)
        assert events.take(1_000_000)[1] == events.count

    @pytest.mark.parametrize("qos", [1, 2])
    def test_packet_identifiers_go_round_and_are_never_0(self, qos: int) -> None:
        events = StampedEvents("bench/x", 8, qos)
        seen: list[int] = []
        while len(seen) < MAX_ID + 10:
            for packet in decoded(events.take(events.count)[0]):
                assert isinstance(packet, Publish)
                assert (packet.qos, len(packet.payload)) == (qos, 8)
                seen.append(packet.packet_id)
        assert seen[:MAX_ID] == list(range(1, MAX_ID + 1))
        assert seen[MAX_ID : MAX_ID + 3] == [1, 2, 3]

    def test_a_payload_larger_than_a_chunk(self) -> None:
        data, count = StampedEvents("bench/x", 1_000_000, 1).take(5)
        assert count == 1
        (packet,) = decoded(data)
        assert isinstance(packet, Publish)
        assert len(packet.payload) == 1_000_000


@pytest.mark.parametrize("qos", [0, 1])
def test_how_old_payloads_are(qos: int) -> None:
    stamps = (1_000, 1_000, 4_000)
    run = first_run(
        b"".join(Mqtt(V5, qos).message("a", each.to_bytes(8) + bytes(92), 9) for each in stamps)
    )
    assert latencies_ns(run, 100, 5_000).tolist() == [4_000, 4_000, 1_000]
    assert latencies_ns(run, 100, 5_000).dtype == np.int64
