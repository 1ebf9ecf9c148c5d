"""Messages differ in what they carry and not in size, the same for every contender."""

from __future__ import annotations

import pytest
from benchmarks.contents import FIVE, ONE, Content
from benchmarks.mqtt import Mqtt

TOPICS = ("bench/0/0", "bench/0/1")


@pytest.mark.parametrize("content", [ONE, FIVE], ids=lambda content: content.name)
@pytest.mark.parametrize("qos", [0, 1])
def test_frames_are_of_one_size_and_differ(content: Content, qos: int) -> None:
    dialect = Mqtt(5, qos)
    frames = content.frames(dialect, TOPICS, 100, range(1, 2_001))
    assert {len(frame) for frame in frames} == {len(content.frame(dialect, TOPICS[0], 100))}
    assert len(set(frames)) == len(frames)
    assert len({len(each["speed"]) for each in content.properties(2_000)}) > 2
    assert content.frames(dialect, TOPICS, 100, range(1, 2_001)) == frames


def test_packet_identifiers_and_topics_go_round() -> None:
    dialect = Mqtt(5, qos=1)
    frames = ONE.frames(dialect, TOPICS, 100, [7, 258])
    for frame, topic, number in zip(frames, TOPICS, (7, 258), strict=True):
        id_at = dialect.delivery_of(frame).id_at
        assert id_at is not None
        assert frame[id_at : id_at + 2] == number.to_bytes(2)
        assert topic.encode() in frame
