from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from accord.core.overlay.retransmission import (
    WINDOW,
    ReceiveWindow,
    RetransmissionBuffer,
    UnackedEvent,
)
from accord.core.overlay.signalling import Acknowledge, DeliverySequence, TransitEvent


def event(number: int, size: int = 10) -> TransitEvent:
    return TransitEvent("a", 1, number, (), "uav", bytes(size), qos=1)


def acknowledge(incoming: ReceiveWindow) -> Acknowledge:
    return Acknowledge("a", 1, "b", 1, incoming.received_through, incoming.bits())


class Link:
    """Loses, repeats and reorders what goes either way."""

    def __init__(self, seed: int, loss: float) -> None:
        self.random = Random(seed)  # noqa: S311
        self.loss = loss
        self.outgoing = RetransmissionBuffer("b", bytes_limit=1 << 20)
        self.incoming = ReceiveWindow()
        self.arrived: list[int] = []
        self.now_us = 0
        self._under_way: list[tuple[int, object]] = []

    def publish(self, number: int) -> None:
        self.outgoing.add(UnackedEvent(event(number), 1 << 60))
        self._send_all(self.outgoing.release())

    def _send_all(self, events: Iterable[tuple[int, UnackedEvent]]) -> None:
        for number, kept in events:
            self.outgoing.on_sent(kept, self.now_us)
            self._send(
                (DeliverySequence("b", number, self.outgoing.window_base), kept.carried.number)
            )

    def step(self) -> None:
        self.now_us += 50_000
        self._send_all(self.outgoing.due(self.now_us))
        due = [each for each in self._under_way if each[0] <= self.now_us]
        self._under_way = [each for each in self._under_way if each[0] > self.now_us]
        for _, said in due:
            if isinstance(said, Acknowledge):
                self.outgoing.acknowledge(said, self.now_us)
            else:
                assert isinstance(said, tuple)
                if self.incoming.is_new(said[0]):
                    self.arrived.append(said[1])
                self._send(acknowledge(self.incoming))
        self.outgoing.check_invariants()
        self.incoming.check_invariants()

    def _send(self, said: object) -> None:
        while self.random.random() > self.loss:
            self._under_way.append((self.now_us + self.random.randrange(300_000), said))
            if self.random.random() > 0.1:  # else it comes once more
                return


@pytest.mark.parametrize("seed", range(40))
def test_everything_arrives_once_over_a_link_that_loses(seed: int) -> None:
    link = Link(seed, loss=0.5)
    for number in range(200):
        link.publish(number)
        link.step()
    while link.outgoing.unacked:
        link.step()
    assert sorted(link.arrived) == list(range(200))
    assert link.outgoing.bytes == 0
    assert (link.incoming.received_through, link.incoming.bitmap) == (200, 0)


def test_with_new_routes_what_should_be_there_goes_again_at_once() -> None:
    outgoing = RetransmissionBuffer("b", bytes_limit=1 << 20)
    kept = [UnackedEvent(event(number), 1 << 60) for number in range(4)]
    for each in kept[:3]:
        outgoing.add(each)
    assert [number for number, _ in outgoing.release()] == [1, 2, 3]
    outgoing.on_sent(kept[0], 0)
    outgoing.acknowledge(Acknowledge("a", 1, "b", 1, 1), 60_000)
    assert outgoing.round_trip_us == 60_000
    outgoing.on_sent(kept[1], 100_000)
    outgoing.on_sent(kept[2], 200_000)
    outgoing.add(kept[3])
    assert [number for number, _ in outgoing.release()] == [4]
    outgoing.postpone(kept[3], 230_000)
    assert list(outgoing.due(230_000)) == []
    outgoing.shorten_timeouts(230_000)
    found = []
    for number, each in outgoing.due(230_000):
        outgoing.on_sent(each, 230_000)
        found.append(number)
    assert found == [2, 4], "not the one that may still be acknowledged"
    assert outgoing.next_due_us() == 320_000
    outgoing.check_invariants()


def test_what_is_given_up_is_not_waited_for() -> None:
    outgoing, incoming = RetransmissionBuffer("b", bytes_limit=1 << 20), ReceiveWindow()
    for number in range(3):
        outgoing.add(UnackedEvent(event(number), 1))
    third = DeliverySequence("b", 3, outgoing.window_base)
    assert incoming.is_new(third)
    outgoing.abandon(1)
    outgoing.abandon(2)
    assert incoming.is_new(DeliverySequence("b", 4, outgoing.window_base))
    assert not incoming.is_new(third)
    assert (incoming.received_through, incoming.bitmap) == (4, 0)


def test_a_destination_that_begins_anew_goes_on_where_its_source_is() -> None:
    incoming = ReceiveWindow()
    assert incoming.is_new(DeliverySequence("b", 501, 500))
    assert incoming.is_new(DeliverySequence("b", 500, 500))
    assert incoming.received_through == 501


def test_only_so_much_waits() -> None:
    outgoing = RetransmissionBuffer("b", bytes_limit=10_000)
    kept = 0
    while outgoing.has_room(UnackedEvent(event(0, 1_000), 1).size):
        outgoing.add(UnackedEvent(event(0, 1_000), 1))
        kept += 1
    assert kept == 9


def test_no_more_than_a_window_is_on_its_way() -> None:
    outgoing = RetransmissionBuffer("b", bytes_limit=1 << 30)
    for _ in range(WINDOW + 100):
        outgoing.add(UnackedEvent(event(0, 0), 1))
    for number, each in outgoing.release():
        outgoing.on_sent(each, number)
    assert [number for number, _ in outgoing.release()] == []
    outgoing.shorten_timeouts(10**9)
    assert max(number for number, _ in outgoing.due(10**10)) == WINDOW
    assert outgoing.acknowledge(Acknowledge("a", 1, "b", 1, 1, b"\x02"), 1) == [1, 3]
    assert [number for number, _ in outgoing.release()] == [WINDOW + 1]
    outgoing.abandon(2)
    assert [number for number, _ in outgoing.release()] == [WINDOW + 2, WINDOW + 3]
    outgoing.check_invariants()


@pytest.mark.parametrize(
    "receipt", [DeliverySequence("b", 1 << 62, 1), DeliverySequence("b", -5, -9)]
)
def test_numbers_out_of_all_bounds_are_not_new(receipt: DeliverySequence) -> None:
    incoming = ReceiveWindow()
    assert not incoming.is_new(receipt)
    incoming.check_invariants()
