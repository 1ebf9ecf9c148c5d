from __future__ import annotations

import pytest

from accord.core.overlay.budgets import Budgets
from accord.core.overlay.neighbour_outbox import NeighbourOutboxes
from accord.core.overlay.options import (
    MULTICAST,
    TCP,
    UDP,
    TransportRule,
    TransportSelector,
)
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.status import TransportStatus


def event(
    channel: str, *, qos: int = 0, may_be_lost: bool = False, template: str = ""
) -> TransitEvent:
    return TransitEvent(
        "a", 1, 1, (), channel, b"x", qos=qos, is_droppable=may_be_lost, template=template
    )


def test_without_rules_the_channel_decides() -> None:
    carriage = TransportSelector()
    assert carriage.select(event("video/a")) == TCP
    assert carriage.select(event("video/a", may_be_lost=True)) == UDP
    assert carriage.status() == ()


def test_the_first_rule_that_selects_a_channel_counts() -> None:
    carriage = TransportSelector(
        [
            TransportRule(("video/front", "audio/#"), TCP),
            TransportRule(("video/#",), UDP),
            TransportRule(("#",), MULTICAST),
        ]
    )
    assert carriage.select(event("video/front", may_be_lost=True)) == TCP, "its site knows better"
    assert carriage.select(event("video/rear")) == UDP
    assert carriage.select(event("audio/x")) == TCP
    assert carriage.select(event("log")) == MULTICAST
    carriage.check_invariants()


def test_what_must_not_be_lost_stays_on_tcp_and_is_counted() -> None:
    carriage = TransportSelector(
        [TransportRule(("video/#",), UDP)], lambda name: name == "reliable"
    )
    assert carriage.select(event("video/a", qos=1)) == TCP
    assert carriage.select(event("video/a", qos=2, template="total_order")) == TCP
    assert carriage.select(event("video/a", qos=1, template="reliable")) == UDP, "it repairs that"
    assert carriage.select(event("video/a", qos=1, may_be_lost=True)) == UDP, "its template says so"
    assert carriage.status() == (
        TransportStatus(channels=("video/#",), transport=UDP, copies=2, kept=2),
    )


def test_a_rule_for_tcp_never_counts_as_kept() -> None:
    carriage = TransportSelector([TransportRule(("#",), TCP)])
    assert carriage.select(event("a", qos=1)) == TCP
    assert carriage.status()[0].copies == 1
    assert carriage.status()[0].kept == 0


def test_many_channels_are_not_all_remembered() -> None:
    carriage = TransportSelector([TransportRule(("odd/+",), UDP)])
    for number in range(10_000):
        assert carriage.select(event(f"{'odd' if number % 2 else 'even'}/{number}")) == (
            UDP if number % 2 else TCP
        )
        carriage.check_invariants()


def test_what_is_no_transport() -> None:
    with pytest.raises(ValueError, match="expected one of"):
        TransportSelector([TransportRule(("#",), "pigeon")])


def test_copies_are_counted_however_an_event_is_passed_on() -> None:
    transits = NeighbourOutboxes("a", Budgets(), bytes_limit=1_000_000)
    transits.transport_selector = TransportSelector([TransportRule(("#",), UDP)])
    transits.forward(event("routed"), {"b": [1], "c": [2]}, 0)
    for neighbour in "bc":  # as trees do
        transits.forward(event("tree"), {neighbour: []}, 0)
    assert transits.transport_selector.status()[0].copies == 4


def test_transits_ask_it() -> None:
    transits = NeighbourOutboxes("a", Budgets(), bytes_limit=1_000_000)
    transits.transport_selector = TransportSelector(
        [TransportRule(("video/#",), UDP), TransportRule(("calm/#",), TCP)]
    )
    transits.open("b")
    for each in (event("video/a"), event("video/a", qos=1), event("calm/a", may_be_lost=True)):
        transits.forward(each, {"b": [1]}, 0)
    loose = transits.all["b"].take_droppable(10_000, 10_000, 0)
    assert [(each.channel, each.qos) for each in loose] == [("video/a", 0)]
    rest = transits.all["b"].take(10_000, 0)
    assert [(each.channel, each.qos) for each in rest] == [("video/a", 1), ("calm/a", 0)]
