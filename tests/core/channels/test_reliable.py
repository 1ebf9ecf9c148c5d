from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.channel_nets import CHANNEL, Net

from accord.core.channels.reliable import (
    FORGET_US,
    LAGGARD,
    LAGGARDS,
    PATIENCE,
    QUEUE_FULL,
    Reliable,
)
from accord.core.channels.streams.messages import Ack, Nack, Sync, messages
from accord.core.channels.streams.stream import WINDOW
from accord.core.overlay.signals import Carried
from accord.core.overlay.transit import EXPIRED

S = 1_000_000
TEXTS = [str(number) for number in range(20)]


def said(net: Net, kind: type) -> list[tuple[str, str, Any]]:
    found = []
    for source, target, message in net.sent:
        if not isinstance(message, Carried):
            body = messages.decode(message[1])
            if isinstance(body, kind):
                found.append((source, target, body))
    return found


def reliable(net: Net, name: str) -> Reliable:
    node = net.nodes[name]
    assert isinstance(node, Reliable)
    return node


def is_quiet(net: Net) -> bool:
    net.sent.clear()
    net.run(10 * S)
    return not net.sent


def test_everything_comes_in_order_and_is_forgotten_then() -> None:
    net = Net(Reliable, "ab bc bd")
    net.join("c", "d")
    for text in TEXTS:
        net.publish("a", text)
    net.run(2 * S)
    assert net.got("c") == net.got("d") == TEXTS
    assert net.got("b") == []
    assert reliable(net, "a").senders[CHANNEL].is_done()
    assert all(not stream.events for stream in reliable(net, "b").streams.values())
    assert is_quiet(net)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_half_of_all_messages_is_lost(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    net = Net(Reliable, "ab bc bd ce de")
    net.join("b", "c", "d", "e")
    net.loses = lambda *_: random.random() < 0.5
    for text in TEXTS:
        net.publish("a", text)
        net.publish("e", f"e{text}")
        net.run(50_000)
    net.run(30 * S)
    for name in "cd":
        assert [each for each in net.got(name) if not each.startswith("e")] == TEXTS
        assert [each for each in net.got(name) if each.startswith("e")] == [
            f"e{text}" for text in TEXTS
        ]
    assert is_quiet(net)


def test_what_is_missing_is_asked_for_one_hop_up_only() -> None:
    net = Net(Reliable, "ab bc")
    net.join("c")
    net.loses = lambda source, target, message: (
        isinstance(message, Carried) and (source, target, message.payload) == ("b", "c", b"1")
    )
    for text in "012":
        net.publish("a", text)
    net.run(100_000)
    assert net.got("c") == ["0"]
    net.loses = lambda *_: False
    net.run(S)
    assert net.got("c") == ["0", "1", "2"]
    assert {(source, target) for source, target, _ in said(net, Nack)} == {("c", "b")}
    assert sum(target == "b" for _, target, each in net.sent if isinstance(each, Carried)) == 3


def test_a_lost_end_is_noticed() -> None:
    net = Net(Reliable, "ab")
    net.join("b")
    net.loses = lambda _, __, message: isinstance(message, Carried)
    net.publish("a", "1")
    net.run(50_000)
    net.loses = lambda *_: False
    net.run(S)
    assert said(net, Sync)
    assert net.got("b") == ["1"]


def test_acknowledgements_of_many_members_come_as_one() -> None:
    net = Net(Reliable, "ab bc bd be bf")
    net.join("c", "d", "e", "f")
    net.publish("a", "1")
    net.run(5 * S)
    acks = [ack for source, _, ack in said(net, Ack) if source == "b"]
    assert set(acks[-1].through) == set("bcdef")
    assert len(acks) <= 3


def test_when_a_node_on_the_way_fails_others_take_over() -> None:
    net = Net(Reliable, "ab bc ad dc")
    net.join("c")
    for text in TEXTS[:5]:
        net.publish("a", text)
    net.run(15_000)
    way = "b" if any(target == "b" for _, target, _ in net.sent) else "d"
    net.stop(way)
    for text in TEXTS[5:]:
        net.publish("a", text)
    net.run(5 * S)
    assert net.got("c") == TEXTS


def test_who_comes_back_in_time_gets_everything() -> None:
    net = Net(Reliable, "ab bc")
    net.join("b", "c")
    net.publish("a", "0")
    net.run(S)
    net.break_link("b", "c")
    for text in TEXTS[1:]:
        net.publish("a", text)
        net.run(S)
    assert net.got("b") == TEXTS
    net.make_link("b", "c")
    net.run(2 * S)
    assert net.got("c") == TEXTS


def test_who_does_not_is_given_up_and_learns_it() -> None:
    net = Net(Reliable, "ab bc", {PATIENCE: "5000"})
    net.join("b", "c")
    net.publish("a", "0")
    net.run(S)
    net.break_link("b", "c")
    net.publish("a", "1")
    net.run(20 * S)
    assert reliable(net, "a").dropped == 1
    assert LAGGARD in net.contexts["a"].lost
    net.make_link("b", "c")
    net.publish("a", "2")
    net.run(5 * S)
    assert net.got("b") == ["0", "1", "2"]
    assert net.got("c") == ["0", "2"]
    assert reliable(net, "c").skipped == 1


def test_a_slow_member_slows_the_source_where_the_channel_waits() -> None:
    net = Net(Reliable, "ab bc", {LAGGARDS: "wait"})
    net.join("b", "c")
    net.loses = lambda _, target, __: target == "c"
    published = 0
    while net.nodes["a"].has_room(CHANNEL):
        net.publish("a", str(published))
        published += 1
    assert published == 2 * WINDOW
    while not net.contexts["a"].lost:  # who goes on although there is no room
        net.publish("a", str(published))
        published += 1
    published -= 1
    assert net.contexts["a"].lost == [QUEUE_FULL]
    net.run(100 * S)
    assert reliable(net, "a").dropped == 0
    net.loses = lambda *_: False
    net.run(100 * S)
    assert net.got("c") == [str(number) for number in range(published)]
    assert net.nodes["a"].has_room(CHANNEL)


def test_what_is_past_its_deadline_leaves_no_hole() -> None:
    net = Net(Reliable, "ab")
    net.join("b")
    net.loses = lambda *_: True
    net.publish("a", "1", deadline_us=100_000)
    net.publish("a", "2")
    net.run(S)
    net.loses = lambda *_: False
    net.run(5 * S)
    assert net.got("b") == ["2"]
    assert net.contexts["b"].lost == [EXPIRED]


def test_a_source_that_begins_anew_is_heard() -> None:
    net = Net(Reliable, "ab")
    net.join("b")
    for text in "12":
        net.publish("a", text)
    net.run(S)
    net.start("a", incarnation=2)
    net.publish("a", "3")
    net.run(S)
    assert net.got("b") == ["1", "2", "3"]


def test_nothing_is_kept_when_members_have_left() -> None:
    net = Net(Reliable, "ab bc")
    net.join("b", "c")
    for text in TEXTS:
        net.publish("a", text)
    net.run(S)
    net.leave("b", "c")
    net.run(FORGET_US + 20 * S)
    assert not any(count for node in net.nodes.values() for count in node.left().values())
    assert all(node.next_due_us() is None for node in net.nodes.values())


def test_nonsense_is_ignored() -> None:
    net = Net(Reliable, "ab")
    net.nodes["b"].said("a", CHANNEL, b"?", 0)
    net.nodes["b"].carried("a", Carried("a", 1, 1, (), CHANNEL, b"", note=b"?"), 0)
    assert not any(net.nodes["b"].left().values())


def test_what_a_node_does_not_take_holds_its_source_back_and_no_other_member() -> None:
    net = Net(Reliable, "ab bc", {LAGGARDS: "wait"})
    net.join("b", "c")
    net.contexts["b"].room = 5
    count = 3 * WINDOW
    for number in range(count):
        net.publish("a", str(number))
    net.run(90 * S)
    assert net.got("b") == TEXTS[:5]
    assert net.got("c") == [str(number) for number in range(WINDOW + 5)]
    assert not net.nodes["a"].has_room(CHANNEL)
    assert len(reliable(net, "b").streams[CHANNEL, "a"].events) == WINDOW
    net.contexts["b"].room = count
    net.run(10 * S)
    assert net.got("b") == net.got("c") == [str(number) for number in range(count)]
    assert net.nodes["a"].has_room(CHANNEL)
    assert is_quiet(net)


def test_what_was_not_taken_is_when_its_source_waits_no_more_or_begins_anew() -> None:
    net = Net(Reliable, "ab", {PATIENCE: "5000"})
    net.join("b")
    net.contexts["b"].room = 0
    net.publish("a", "0")
    net.run(4 * S)
    assert net.got("b") == []
    net.run(2 * S)
    assert net.got("b") == ["0"]
    net.publish("a", "1")
    net.run(S)
    net.start("a", incarnation=2)
    net.publish("a", "2")
    net.run(S)
    assert net.got("b") == ["0", "1"]
    net.contexts["b"].room = 1
    net.run(S)
    assert net.got("b") == ["0", "1", "2"]
