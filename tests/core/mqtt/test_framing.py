from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mqtt_strategies import packets

from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, ProtocolError, Reason
from accord.core.mqtt.packets import Pingreq, Publish
from accord.core.mqtt.wire import Framer


@given(some=st.lists(packets(V5), max_size=6), data=st.data())
def test_packets_come_out_however_the_stream_is_cut(
    some: list[Publish], data: st.DataObject
) -> None:
    stream = b"".join(encode(packet, V5) for packet in some)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    framer = Framer(1_000_000)
    frames: list[tuple[int, bytes]] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += framer.feed(stream[start:end])
    assert [decode(first, body, V5) for first, body in frames] == some


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_arbitrary_bytes_are_frames_or_a_protocol_error(chunks: list[bytes]) -> None:
    framer = Framer(1_000)
    try:
        frames = [frame for chunk in chunks for frame in framer.feed(chunk)]
    except ProtocolError:
        return
    size = sum(1 + (1 if len(body) < 128 else 2) + len(body) for _, body in frames)
    assert size <= sum(map(len, chunks))


def test_a_large_packet_in_small_pieces() -> None:
    packet = Publish("a", bytes(range(256)) * 4_000)
    stream = encode(packet, V5) + encode(Pingreq(), V5)
    framer = Framer(2_000_000)
    frames = [
        frame for at in range(0, len(stream), 100) for frame in framer.feed(stream[at : at + 100])
    ]
    assert [decode(first, body, V5) for first, body in frames] == [packet, Pingreq()]


def test_the_limit_counts_the_whole_packet() -> None:
    data = encode(Publish("a", bytes(200)), V5)
    assert len(Framer(len(data)).feed(data)) == 1
    with pytest.raises(ProtocolError, match=f"{len(data)} bytes") as caught:
        Framer(len(data) - 1).feed(data[:3])
    assert caught.value.reason == Reason.PACKET_TOO_LARGE


@pytest.mark.parametrize("text", ["30 ffffffff 01", "30 ffffffff", "30 8000", "30 80808000"])
def test_lengths_that_the_standard_forbids(text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        Framer(1_000_000).feed(bytes.fromhex(text))
    assert caught.value.reason == Reason.MALFORMED_PACKET


def test_an_unfinished_length_waits() -> None:
    framer = Framer(1_000_000)
    assert framer.feed(b"\x30") == []
    assert framer.feed(b"\x80") == []
    assert framer.feed(b"\x01") == []
    assert framer.feed(bytes(128)) == [(0x30, bytes(128))]
