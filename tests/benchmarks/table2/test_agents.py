"""Publishers and subscribers as processes, on whatever answers."""

from __future__ import annotations

import socket
from functools import partial
from time import monotonic_ns

import pytest
from benchmarks.mqtt import Mqtt
from benchmarks.table2.agents import agent
from benchmarks.table2.cpu import SUBSCRIBERS, documents, predicates
from benchmarks.table2.plans import STAMP, Audience, Flow, Received, Sent
from benchmarks.table2.publisher import Frames
from benchmarks.table2.subscriber import note
from tests.benchmarks.relay import relay

from accord.apps.load.frames import LoadError
from accord.apps.load.traffic import LoadClient
from accord.core.model.document import Document
from accord.core.model.event import Event
from accord.predicates import parse

HOST = "127.0.0.1"
TOPIC = "table2/important"


def flow(port: int, bytes_per_s: float) -> Flow:
    return Flow(
        number=1, name="publisher", host=HOST, port=port, topic=TOPIC, sizes=(100, 3_000),
        bytes_per_s=bytes_per_s, window=10, seconds=0.4,
    )  # fmt: skip


@pytest.mark.parametrize("bytes_per_s", [0.0, 155_000.0])
def test_everything_that_was_sent_arrives_and_has_a_latency(bytes_per_s: float) -> None:
    with relay() as port:
        audience = Audience(host=HOST, port=port, topic=TOPIC, qos=1)
        with (
            agent("subscriber", audience) as subscriber,
            agent("publisher", flow(port, bytes_per_s)) as publisher,
        ):
            subscriber.wait_ready()
            publisher.wait_ready()
            publisher.tell(str(monotonic_ns()))
            sent = publisher.result(Sent)
            # What the relay has taken, it has passed on before it answers the next.
            subscriber.tell("stop")
            received = subscriber.result(Received)
    assert len(sent.due_ns) == len(sent.sizes) >= sent.sent > 2
    assert sent.sizes[:3] == [100, 3_000, 100]
    assert sent.refused == 0
    arrivals = received.flows[1]
    count = len(arrivals.numbers)
    assert 0 < count <= sent.sent
    assert arrivals.numbers == list(range(count))
    assert arrivals.due_ns == sent.due_ns[:count]
    assert arrivals.sizes == sent.sizes[:count]
    assert all(a > d for a, d in zip(arrivals.arrived_ns, arrivals.due_ns, strict=True))
    assert sum(received.tenths.values()) > sum(arrivals.sizes)
    if bytes_per_s:
        due = [at - sent.due_ns[0] for at in sent.due_ns]
        assert 350_000_000 < due[-1] <= 450_000_000
        assert sum(sent.sizes) == pytest.approx(0.4 * bytes_per_s, abs=3_100)


def test_a_process_that_can_t_begin_says_why() -> None:
    with relay() as port:
        pass
    with (
        agent("publisher", flow(port, 0.0)) as publisher,
        pytest.raises(LoadError, match="refused"),
    ):
        publisher.wait_ready()


def test_frames_are_stamped_in_their_payload() -> None:
    plan = Flow(
        number=7, name="p", host=HOST, port=1, topic=TOPIC, sizes=(40, 300), metadata=("<a/>",)
    )
    frames, received = Frames(plan), Received(flows={}, tenths={})
    stream = b"".join(bytes(frames.frame(number, 1_000 + number)) for number in range(5))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client = LoadClient(ours, Mqtt(level=5, qos=1))
        client.on_delivery = partial(note, received)
        for at in range(0, len(stream), 7):  # however it is cut
            theirs.sendall(stream[at : at + 7])
            client.take(bytearray(1_000), 2_000)
        answers = theirs.recv(1_000)
    assert received.flows[7].numbers == [0, 1, 2, 3, 4]
    assert received.flows[7].arrived_ns == [2_000] * 5
    assert received.flows[7].due_ns == [1_000, 1_001, 1_002, 1_003, 1_004]
    assert received.flows[7].sizes == [40, 300, 40, 300, 40]
    assert answers == b"".join(b"\x40\x02" + number.to_bytes(2) for number in range(1, 6))
    assert STAMP.size < 40
    assert Mqtt(level=5, qos=1).has_acks


def test_every_document_is_of_interest_to_one_subscriber() -> None:
    parsed = [parse(text) for text in predicates()]
    assert len(parsed) == SUBSCRIBERS
    for number, text in enumerate(documents()):
        event = Event(channel="table2/normal", metadata=Document(text.encode()))
        assert [place for place, each in enumerate(parsed) if each.matches(event)] == [number]
