from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from tests.channel_nets import CHANNEL, LATENCY_US, Net

from accord.core.channels.reliable import (
    DEFAULT_STALL_TIMEOUT_US,
    EXPIRE_US,
    GONE,
    MISSED,
    QUEUE_FULL,
    SLOW_MEMBER,
    SLOW_MEMBERS,
    STALL_TIMEOUT,
    Reliable,
)
from accord.core.channels.streams.messages import Ack, Nack, StreamHeartbeat, messages
from accord.core.channels.streams.source_stream import WINDOW, SourceStream
from accord.core.channels.streams.stream_relay import StreamRelay
from accord.core.channels.streams.stream_sender import StreamSender
from accord.core.channels.streams.stream_tables import (
    InboundStreams,
    InFlightBudget,
    OutboundStreams,
)
from accord.core.model.units import NEVER_US
from accord.core.overlay.neighbour_outbox import EXPIRED
from accord.core.overlay.signalling import TransitEvent

S = 1_000_000
TEXTS = [str(number) for number in range(20)]


def said(net: Net, kind: type) -> list[tuple[str, str, Any]]:
    found = []
    for source, target, message in net.sent:
        if not isinstance(message, TransitEvent):
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
    assert reliable(net, "a").senders[CHANNEL].is_confirmed()
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
        isinstance(message, TransitEvent) and (source, target, message.payload) == ("b", "c", b"1")
    )
    for text in "012":
        net.publish("a", text)
    net.run(100_000)
    assert net.got("c") == ["0"]
    net.loses = lambda *_: False
    net.run(S)
    assert net.got("c") == ["0", "1", "2"]
    assert {(source, target) for source, target, _ in said(net, Nack)} == {("c", "b")}
    assert sum(target == "b" for _, target, each in net.sent if isinstance(each, TransitEvent)) == 3


def test_a_lost_end_is_noticed() -> None:
    net = Net(Reliable, "ab")
    net.join("b")
    net.loses = lambda _, __, message: isinstance(message, TransitEvent)
    net.publish("a", "1")
    net.run(50_000)
    net.loses = lambda *_: False
    net.run(S)
    assert said(net, StreamHeartbeat)
    assert net.got("b") == ["1"]


def test_acknowledgements_of_many_members_come_as_one() -> None:
    net = Net(Reliable, "ab bc bd be bf")
    net.join("c", "d", "e", "f")
    net.publish("a", "1")
    net.run(5 * S)
    acks = [ack for source, _, ack in said(net, Ack) if source == "b"]
    assert set(acks[-1].acked_through) == set("bcdef")
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
    net = Net(Reliable, "ab bc", {STALL_TIMEOUT: "5000"})
    net.join("b", "c")
    net.publish("a", "0")
    net.run(S)
    net.break_link("b", "c")
    net.publish("a", "1")
    net.run(20 * S)
    assert net.contexts["a"].lost == [SLOW_MEMBER]
    net.make_link("b", "c")
    net.publish("a", "2")
    net.run(5 * S)
    assert net.got("b") == ["0", "1", "2"]
    assert net.got("c") == ["0", "2"]
    assert net.contexts["c"].lost == [MISSED]
    assert net.contexts["b"].lost == []


def test_a_slow_member_slows_the_source_where_the_channel_waits() -> None:
    net = Net(Reliable, "ab bc", {SLOW_MEMBERS: "wait"})
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
    assert net.contexts["a"].lost == [QUEUE_FULL]
    net.loses = lambda *_: False
    net.run(100 * S)
    assert net.got("c") == [str(number) for number in range(published)]
    assert net.nodes["a"].has_room(CHANNEL)


def test_a_burst_that_is_too_much_gives_nobody_up() -> None:
    random = Random(1)  # noqa: S311
    net = Net(Reliable, "ab ac ad")
    net.join("b", "c", "d")
    net.loses = lambda _, target, __: target == "b" or random.random() < 0.05
    for number in range(10_000):
        net.publish("a", str(number))
    taken = 10_000 - len(net.contexts["a"].lost)
    assert taken > WINDOW
    assert set(net.contexts["a"].lost) == {QUEUE_FULL}
    net.run(S)
    net.loses = lambda *_: False
    net.run(30 * S)
    for name in "bcd":
        assert net.got(name) == [str(number) for number in range(taken)]
    assert set(net.contexts["a"].lost) == {QUEUE_FULL}


def test_each_event_that_a_member_is_not_waited_for_with_is_noted_at_both_ends() -> None:
    net = Net(Reliable, "ab ac ad", {STALL_TIMEOUT: "5000"})
    net.join("b", "c", "d")
    net.publish("a", "0")
    net.run(S)
    for away in "cd":  # so that one of them is given up while the other still holds the stream back
        net.break_link("a", away)
        net.publish("a", away)
        net.run(3 * S)
    net.run(10 * S)
    net.publish("a", "1")
    net.run(EXPIRE_US + 20 * S)
    assert net.contexts["a"].lost == [SLOW_MEMBER] * 3
    for back in "cd":
        net.make_link("a", back)
    net.run(10 * S)
    assert net.contexts["c"].lost == [MISSED] * 3
    assert net.contexts["d"].lost == [MISSED] * 2
    net.publish("a", "2")
    net.run(5 * S)
    assert [net.got(name) for name in "bcd"] == [
        ["0", "c", "d", "1", "2"],
        ["0", "2"],
        ["0", "c", "2"],
    ]
    assert net.contexts["a"].lost == [SLOW_MEMBER] * 3


def test_what_goes_by_while_nobody_wants_it_is_not_missed() -> None:
    net = Net(Reliable, "ab ac")
    net.join("b", "c")
    net.publish("a", "0")
    net.run(S)
    net.leave("c")
    net.publish("a", "1")
    net.run(S)
    net.join("c")
    net.publish("a", "2")
    net.run(S)
    assert net.got("c") == ["0", "2"]
    assert net.contexts["c"].lost == []


def test_who_was_given_up_is_waited_for_again_while_events_keep_coming() -> None:
    net = Net(Reliable, "ab", {STALL_TIMEOUT: "5000"})
    net.join("b")
    net.break_link("a", "b")
    for number in range(1_000):
        net.publish("a", str(number))
        net.run(10_000)
    net.make_link("a", "b")
    random = Random(1)  # noqa: S311
    net.loses = lambda *_: random.random() < 0.2
    for number in range(1_000, 2_000):
        net.publish("a", str(number))
        net.run(10_000)
    net.run(5 * S)
    got = dict.fromkeys([int(each) for each in net.got("b")], True)
    missed = [number for number in range(min(got), 2_000) if number not in got]
    assert not missed or max(missed) < 1_100  # before the source could know that it is back
    assert net.contexts["b"].lost == [MISSED] * len(missed)
    assert 1_000 <= len(net.contexts["a"].lost) < 1_100


def test_what_is_heard_again_after_long_is_handed_over_once() -> None:
    """A laggard keeps the source from going on, and who has everything hears nothing for long."""
    net = Net(Reliable, "ab ac", {STALL_TIMEOUT: "600000"})
    net.join("b", "c")
    net.publish("a", "0")
    net.run(2 * S)
    net.break_link("a", "c")
    net.publish("a", "1")
    net.run(EXPIRE_US + 20 * S)
    assert not reliable(net, "b").streams
    net.publish("a", "2")
    net.run(2 * S)
    assert net.got("b") == ["0", "1", "2"]
    net.make_link("a", "c")
    net.run(10 * S)
    assert net.got("c") == ["0", "1", "2"]
    assert not any(context.lost for context in net.contexts.values())


def test_a_node_that_is_gone_is_waited_for_once() -> None:
    net = Net(Reliable, "ab ac")
    net.join("b", "c")
    net.publish("a", "0")
    net.run(2 * S)
    net.stop("c")
    for _ in range(3):
        net.publish("a", "x")
        net.run(DEFAULT_STALL_TIMEOUT_US + 10 * S)
        assert reliable(net, "a").senders[CHANNEL].is_confirmed()
    began_us = net.now_us
    for number in range(3 * WINDOW):
        while not net.nodes["a"].has_room(CHANNEL):
            net.run(S)
        net.publish("a", str(number))
    assert net.now_us - began_us < DEFAULT_STALL_TIMEOUT_US


def test_nothing_waits_for_nobody() -> None:
    net = Net(Reliable, "ab", {STALL_TIMEOUT: "5000"})
    net.join("b")
    net.stop("b")
    for number in range(4 * WINDOW):
        net.publish("a", str(number))
    assert not net.nodes["a"].has_room(CHANNEL)
    net.run(10 * S)
    assert reliable(net, "a").senders[CHANNEL].is_confirmed()
    assert net.contexts["a"].lost == [SLOW_MEMBER] * (4 * WINDOW)


def test_a_node_that_is_gone_is_not_waited_for_in_another_channel() -> None:
    net = Net(Reliable, "ab ac")
    net.join("b", "c")
    net.stop("c")
    net.publish("a", "0")
    net.run(DEFAULT_STALL_TIMEOUT_US + 10 * S)
    node = reliable(net, "a")
    assert list(node.unreachable) == ["c"]
    del node.senders[CHANNEL]
    net.publish("a", "1")
    net.run(S)
    assert node.senders[CHANNEL].is_confirmed()
    net.make_link("a", "c")
    net.run(10 * S)
    assert not node.unreachable


def test_options_can_be_changed_while_a_channel_is_in_use() -> None:
    net = Net(Reliable, "ab ac", {SLOW_MEMBERS: "wait", STALL_TIMEOUT: "600000"})
    net.join("b", "c")
    net.loses = lambda _, target, __: target == "c"
    net.publish("a", "0")
    net.run(DEFAULT_STALL_TIMEOUT_US)
    assert not reliable(net, "a").senders[CHANNEL].is_confirmed()
    net.definition = msgspec.structs.replace(net.definition, options={STALL_TIMEOUT: "5000"})
    net.run(6 * S)
    assert reliable(net, "a").senders[CHANNEL].is_confirmed()


def behind_a_gap(net: Net) -> None:
    """The last events of a source that got to `b`: all but one."""
    net.join("b")
    net.loses = lambda _, __, message: isinstance(message, TransitEvent) and message.payload == b"1"
    for text in "012":
        net.publish("a", text)
    net.run(S)
    assert net.got("b") == ["0"]
    net.loses = lambda *_: False


def test_what_waits_behind_a_gap_is_handed_over_when_its_source_begins_anew() -> None:
    net = Net(Reliable, "ab")
    behind_a_gap(net)
    net.start("a", incarnation=2)
    net.publish("a", "3")
    net.run(S)
    assert net.got("b") == ["0", "2", "3"]
    assert net.contexts["b"].lost == [GONE]


def test_or_does_not_come_back() -> None:
    net = Net(Reliable, "ab")
    behind_a_gap(net)
    net.stop("a")
    net.run(EXPIRE_US + 20 * S)
    assert net.got("b") == ["0", "2"]
    assert net.contexts["b"].lost == [GONE]
    assert not any(net.nodes["b"].retained_state().values())


def test_but_not_while_its_source_may_wait() -> None:
    net = Net(Reliable, "ab", {STALL_TIMEOUT: "600000"})
    behind_a_gap(net)
    net.break_link("a", "b")
    net.run(EXPIRE_US + 20 * S)
    assert net.got("b") == ["0"]
    net.make_link("a", "b")
    net.run(10 * S)
    assert net.got("b") == ["0", "1", "2"]
    assert net.contexts["b"].lost == []


def test_of_too_many_streams_one_that_is_idle_gives_way() -> None:
    net = Net(Reliable, "ae be ce", {STALL_TIMEOUT: "600000"})
    reliable(net, "e").streams = InboundStreams(most=2)
    net.join("e", "d")  # who is not there, so that sources keep all they have sent
    for source in "ab":
        net.publish(source, source)
        net.run(20 * S)
    net.publish("a", "a1")
    net.run(S)
    net.publish("c", "c")  # there is room: b was not heard of for long
    net.run(S)
    assert [source for _, source in reliable(net, "e").streams] == ["a", "c"]
    net.publish("b", "b1")  # and now there is none
    net.run(S)
    assert net.got("e") == ["a", "b", "a1", "c"]
    net.run(20 * S)
    assert net.got("e") == ["a", "b", "a1", "c", "b1"]


def test_and_one_in_which_all_is_done_does_at_once() -> None:
    net = Net(Reliable, "ae be ce")
    reliable(net, "e").streams = InboundStreams(most=2)
    net.join("e")
    for turn in range(5):
        for source in "abc":
            net.publish(source, f"{source}{turn}")
            net.run(S // 2)
    assert net.got("e") == [f"{source}{turn}" for turn in range(5) for source in "abc"]


def test_many_senders_are_looked_at_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing else waits for all of them; and all of them are."""
    monkeypatch.setattr("accord.core.channels.reliable._AT_A_TIME", 4)
    monkeypatch.setattr(SourceStream, "next_due_us", lambda _: NEVER_US)
    net = Net(Reliable, "ab")
    net.wanted = "#"
    net.join("b")
    net.loses = lambda *_: True
    channels = [f"c{number}" for number in range(10)]
    for channel in channels:
        net.publish("a", channel, channel=channel)
    looked: list[tuple[int, str]] = []
    tend = Reliable._update_sender

    def noted(template: Reliable, sender: StreamSender, now_us: int) -> None:
        looked.append((now_us, sender.stream.channel))
        tend(template, sender, now_us)

    net.leave("b")
    monkeypatch.setattr(Reliable, "_update_sender", noted)
    net.run(7 * S)
    assert sorted(channel for _, channel in looked) == channels
    times = [now_us for now_us, _ in looked]
    assert [times.count(each) for each in sorted(set(times))] == [4, 4, 2]
    assert all(sender.is_confirmed() for sender in reliable(net, "a").senders.values())


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
    net.run(EXPIRE_US + 20 * S)
    assert not any(count for node in net.nodes.values() for count in node.retained_state().values())
    assert all(node.next_due_us() is None for node in net.nodes.values())


def test_nonsense_is_ignored() -> None:
    net = Net(Reliable, "ab")
    net.nodes["b"].on_message("a", CHANNEL, b"?", 0)
    net.nodes["b"].on_event("a", TransitEvent("a", 1, 1, (), CHANNEL, b"", header=b"?"), 0)
    assert not any(net.nodes["b"].retained_state().values())


def test_what_a_node_does_not_take_holds_its_source_back_and_no_other_member() -> None:
    net = Net(Reliable, "ab bc", {SLOW_MEMBERS: "wait"})
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
    net = Net(Reliable, "ab", {STALL_TIMEOUT: "5000"})
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


def test_nothing_is_said_of_what_waits_for_its_link() -> None:
    """But how far the stream had come before, once and then seldom."""
    net = Net(Reliable, "ab")
    net.join("b")
    net.publish("a", "0")
    net.run(S)
    net.sent.clear()
    net.loses = lambda _, __, message: isinstance(message, TransitEvent)
    net.contexts["a"].waiting = {("b", CHANNEL, "a", number) for number in (2, 3)}
    net.publish("a", "1")
    net.publish("a", "2")
    net.run(20 * S)
    assert said(net, Nack) == []
    told = [body.state.last_sent for _, _, body in said(net, StreamHeartbeat)]
    assert told == [1] * len(told)
    assert 5 < len(told) < 15
    assert sum(isinstance(message, TransitEvent) for _, _, message in net.sent) == 2
    net.loses = lambda *_: False
    net.contexts["a"].waiting.clear()  # as if they had been sent, and lost
    net.run(S)
    assert net.got("b") == ["0", "1", "2"]
    assert is_quiet(net)


def test_what_waits_for_its_link_is_not_sent_twice() -> None:
    net = Net(Reliable, "ab")
    net.join("b")
    is_late = True

    def loses(_: str, target: str, message: object) -> bool:
        return (
            target == "b" and is_late and isinstance(message, TransitEvent) and message.number < 3
        )

    net.loses = loses
    net.contexts["a"].waiting = {("b", CHANNEL, "a", 2)}
    for text in "012":
        net.publish("a", text)
    net.run(20 * S)
    sent = [message.number for _, _, message in net.sent if isinstance(message, TransitEvent)]
    assert sent.count(2) == 1
    assert sent.count(1) > 10, "as it is missing"
    asked = len(said(net, Nack))
    assert 40 < asked < 100, "less often where that is in vain"
    is_late = False
    net.contexts["a"].waiting.clear()
    net.run(S)
    assert net.got("b") == ["0", "1", "2"]


def test_many_channels_share_what_a_source_may_have_on_its_way() -> None:
    net = Net(Reliable, "ab", {SLOW_MEMBERS: "wait"})
    reliable(net, "a").load = InFlightBudget(100)
    net.wanted = "#"
    net.join("b")
    net.loses = lambda *_: True
    taken = []
    for channel in "pqr":
        count = 0
        while net.nodes["a"].has_room(channel):
            net.publish("a", str(count), channel=channel)
            count += 1
        taken.append(count)
    assert taken == [50, 25, 13]
    assert net.nodes["a"].has_room("s")
    while not net.contexts["a"].lost:  # who goes on although there is no room
        net.publish("a", "more", channel="p")
        taken[0] += 1
    taken[0] -= 1
    assert sum(taken) == 200
    assert net.contexts["a"].lost == [QUEUE_FULL]
    net.nodes["a"].check_invariants()
    net.loses = lambda *_: False
    net.run(10 * S)
    assert len(net.got("b")) == 200
    assert net.nodes["a"].has_room("p")


def test_of_many_senders_one_that_is_done_gives_way() -> None:
    net = Net(Reliable, "ab")
    reliable(net, "a").senders = OutboundStreams("a", 1, most=3)
    net.wanted = "#"
    net.join("b")
    for channel in "pqr":
        net.publish("a", channel, channel=channel)
        net.run(S)
    net.loses = lambda *_: True
    net.publish("a", "p2", channel="p")
    net.publish("a", "s", channel="s")
    assert list(reliable(net, "a").senders) == ["r", "p", "s"], "that of q was used first"
    net.publish("a", "r2", channel="r")
    net.publish("a", "t", channel="t")
    assert list(reliable(net, "a").senders) == ["p", "s", "r", "t"], "all of them have to do"
    net.loses = lambda *_: False
    net.run(S)
    net.publish("a", "q2", channel="q")
    net.run(S)
    assert sorted(net.got("b")) == ["p", "p2", "q", "q2", "r", "r2", "s", "t"]


def test_only_what_is_due_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(Reliable, "ab")
    net.wanted = "#"
    net.join("b")
    net.loses = lambda _, __, message: (
        isinstance(message, TransitEvent) and message.channel == "lost"
    )
    for number in range(100):
        net.publish("a", "", channel=str(number))
    net.publish("a", "", channel="lost")
    net.run(S)
    tended: list[str] = []
    tend = StreamRelay.run_due

    def noted(relay: StreamRelay, stream: SourceStream, now_us: int) -> None:
        tended.append(stream.channel)
        tend(relay, stream, now_us)

    monkeypatch.setattr(StreamRelay, "run_due", noted)
    net.run(S)
    assert set(tended) == {"lost"}


def test_who_answers_late_is_asked_less_often() -> None:
    """What it does not answer at once it can't answer sooner by being asked again."""

    def asked(late_us: int) -> tuple[int, int]:
        net = Net(Reliable, "ab")
        net.wanted = "#"
        net.join("b")
        net.late_us = late_us
        for number in range(20):
            net.publish("a", str(number), channel=f"c{number}")
            net.run(S)
        net.run(30 * S)
        assert net.got("b") == [str(number) for number in range(20)]
        carried = sum(isinstance(message, TransitEvent) for _, _, message in net.sent)
        return len(said(net, StreamHeartbeat)), carried

    at_once, at_once_carried = asked(0)
    late, late_carried = asked(S)
    assert at_once_carried == late_carried == 20
    assert late < 3 * at_once


def test_an_answer_is_to_the_question_it_names() -> None:
    """So nothing that was lost makes a neighbour look slow."""
    random = Random(1)  # noqa: S311
    net = Net(Reliable, "ab")
    net.join("b")
    net.loses = lambda *_: random.random() < 0.5
    for text in TEXTS:
        net.publish("a", text)
        net.run(2 * S)
    assert net.got("b") == TEXTS
    assert (
        0 < reliable(net, "a").relay.response_times.estimate_us("b", net.now_us) <= 2 * LATENCY_US
    )


def test_who_was_late_once_is_not_for_ever() -> None:
    """Nobody is asked while all is well, so nothing new is learnt then."""
    net = Net(Reliable, "ab", {STALL_TIMEOUT: "4000"})
    net.join("b")
    net.late_us = 3 * S // 2
    for _ in range(10):
        net.publish("a", "late")
        net.run(5 * S)
    net.late_us = 0
    for _ in range(60):
        net.publish("a", "in time")
        net.run(S)
    is_lost = [True]
    net.loses = lambda _, __, message: isinstance(message, TransitEvent) and any(is_lost)
    net.publish("a", "last")
    net.run(10_000)
    is_lost.clear()
    net.run(S)
    assert net.got("b")[-1] == "last"


def test_of_a_burst_on_a_slow_link_little_is_sent_twice() -> None:
    """Though what comes first tells of all of it, and that is asked for."""
    net = Net(Reliable, "ab")
    net.join("b")
    context = net.contexts["a"]
    queue: list[TransitEvent] = []

    def pass_on(neighbour: str, event: TransitEvent) -> None:
        queue.append(event)
        context.waiting.add((neighbour, event.channel, event.source, event.number))

    context.forward = pass_on  # type: ignore[method-assign]
    for number in range(WINDOW + 100):
        net.publish("a", str(number))
    while queue:
        event = queue.pop(0)
        context.waiting.discard(("b", event.channel, event.source, event.number))
        net.send("a", "b", event)
        net.run(20_000)
    net.run(S)
    assert net.got("b") == [str(number) for number in range(WINDOW + 100)]
    assert sum(isinstance(message, TransitEvent) for _, _, message in net.sent) < 1.2 * WINDOW


def test_streams_that_are_stuck_do_not_keep_others_out() -> None:
    net = Net(Reliable, "ae be ce")
    reliable(net, "e").streams = InboundStreams(most=40)
    net.wanted = "#"
    net.join("e")
    net.loses = lambda source, _, message: (
        source == "a" and isinstance(message, TransitEvent) and message.number == 1
    )
    for number in range(16):
        net.publish("a", "", channel=f"stuck{number}")
        net.publish("a", "", channel=f"stuck{number}")
    net.run(S // 10)
    net.stop("a")
    for number in range(24):
        net.publish("b", "", channel=f"done{number}")
        net.run(S)
    net.publish("c", "new", channel="fresh")
    net.run(10 * S)
    assert "new" in net.got("e")


def test_nor_do_senders_that_have_something_to_tell() -> None:
    net = Net(Reliable, "ab ac", {STALL_TIMEOUT: "1000"})
    reliable(net, "a").senders = OutboundStreams("a", 1, most=100)
    net.wanted = "told/#"
    net.join("c")
    net.wanted = "#"
    net.join("b")
    net.loses = lambda _, target, __: target == "c"  # it is given up, and is to be told so
    for number in range(64):
        net.publish("a", "", channel=f"told/{number}")
    net.run(10 * S)
    for number in range(200):
        net.publish("a", "", channel=f"done/{number}")
        net.run(S // 5)
    assert len(reliable(net, "a").senders) <= 110


def late_copy(net: Net, number: int) -> TransitEvent:
    """Of what a has published to a channel `p`, which everybody has forgotten at once."""
    events = [message for _, _, message in net.sent if isinstance(message, TransitEvent)]
    return next(each for each in events if (each.channel, each.number) == ("p", number))


def test_a_late_copy_of_an_older_stream_is_not_handed_over() -> None:
    net = Net(Reliable, "ae be")
    reliable(net, "a").senders = OutboundStreams("a", 1, most=1)
    reliable(net, "e").streams = InboundStreams(most=1)
    net.wanted = "#"
    net.join("e")
    for text, channel in (("one", "p"), ("q", "q"), ("two", "p")):
        net.publish("a", text, channel=channel)
        net.run(S)
    net.publish("b", "b", channel="b")
    net.run(S)
    net.send("a", "e", late_copy(net, 1))
    net.run(S)
    assert net.got("e") == ["one", "q", "two", "b"]


def test_nor_is_anything_asked_for_that_nobody_has_any_more() -> None:
    net = Net(Reliable, "ae be")
    reliable(net, "e").streams = InboundStreams(most=1)
    net.wanted = "#"
    net.join("e")
    for number in range(5):
        net.publish("a", str(number), channel="p")
    net.run(S)
    net.publish("b", "b", channel="b")
    net.run(S)
    copy = late_copy(net, 5)
    net.sent.clear()
    net.send("a", "e", copy)
    net.run(20 * S)
    assert len(said(net, Nack)) <= 2
    assert net.got("e") == [*"01234", "b"]
