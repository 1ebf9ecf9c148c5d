"""Packets in bulk: the same as one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mqtt_strategies import packets

from accord.apps.load.clients import (
    CHUNK_BYTES,
    MAX_ID,
    PacketTemplate,
    latencies_ns,
    replies,
    split,
)
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, PacketType
from accord.core.mqtt.packets import Packet, Puback, Publish, Pubrel
from accord.core.mqtt.wire import Framer


def packets_in(data: bytes) -> list[bytes]:
    runs, end = split(data)
    found = [row.tobytes() for run in runs for row in run.packets]
    assert b"".join(found) == data[:end]
    return found


def decoded(data: bytes) -> list[Packet]:
    return [decode(head, body, V5) for head, body in Framer(1 << 20).feed(data)]


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
    data = encode(Puback(7), V5) * 10_000
    runs, _ = split(data)
    assert len(runs) < 10
    assert sum(len(run.packets) for run in runs) == 10_000
    assert {(run.kind, run.body_at) for run in runs} == {(PacketType.PUBACK, 2)}


def test_replies_to_all_at_once() -> None:
    data = b"".join(encode(Puback(number), V5) for number in (1, 700, MAX_ID))
    (run,), _ = split(data)
    answered = replies(0x62, run.ids(run.body_at))
    assert decoded(answered) == [Pubrel(1), Pubrel(700), Pubrel(MAX_ID)]
    assert replies(0x62, run.ids(run.body_at)[:0]) == b""


class TestTemplate:
    def test_of_quality_0(self) -> None:
        template = PacketTemplate("bench/x", 100, 0)
        assert template.count * template.packet_size <= CHUNK_BYTES
        published = decoded(template.packets(3, 5))
        assert published == [Publish("bench/x", (5).to_bytes(8, "big") + bytes(92))] * 3

    @pytest.mark.parametrize("qos", [1, 2])
    def test_packet_identifiers_go_round_and_are_never_0(self, qos: int) -> None:
        template = PacketTemplate("bench/x", 8, qos)
        seen: list[int] = []
        while len(seen) < MAX_ID + 10:
            for packet in decoded(template.packets(template.count, 1)):
                assert isinstance(packet, Publish)
                assert packet.qos == qos
                assert packet.payload == (1).to_bytes(8, "big")
                seen.append(packet.packet_id)
        assert seen[:MAX_ID] == list(range(1, MAX_ID + 1))
        assert seen[MAX_ID : MAX_ID + 3] == [1, 2, 3]

    def test_a_payload_larger_than_a_chunk(self) -> None:
        template = PacketTemplate("bench/x", 1_000_000, 1)
        assert template.count == 1
        (packet,) = decoded(template.packets(1, 1))
        assert isinstance(packet, Publish)
        assert len(packet.payload) == 1_000_000


@pytest.mark.parametrize("qos", [0, 1])
def test_how_old_payloads_are(qos: int) -> None:
    template = PacketTemplate("bench/x", 100, qos)
    data = template.packets(2, 1_000) + template.packets(1, 4_000)
    (run,), _ = split(data)
    assert latencies_ns(run, 100, 5_000).tolist() == [4_000, 4_000, 1_000]
    assert latencies_ns(run, 100, 5_000).dtype == np.int64
