from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from tests.channel_nets import CHANNEL, Net, event

from accord.core.channels import total_order
from accord.core.channels.control_unicast import UnicastMessage
from accord.core.channels.members import rendezvous
from accord.core.channels.ordering.messages import (
    NO_EPOCH,
    Body,
    CurrentEpoch,
    Epoch,
    EpochPromise,
    HolderQuery,
    HolderReply,
    PositionGrant,
    PositionPending,
    PositionQuery,
    PositionRange,
    PositionRequest,
    PositionVoid,
    PrepareEpoch,
    encode,
    position_at,
)
from accord.core.channels.ordering.sequencer_manager import STARTUP_GRACE_US
from accord.core.channels.reliable import EXPIRE_US, SLOW_MEMBERS, STALL_TIMEOUT
from accord.core.channels.streams.messages import NOTHING, StreamHeader
from accord.core.channels.streams.source_stream import WINDOW, BufferedEvent
from accord.core.channels.streams.stream_sender import MAX_BYTES
from accord.core.channels.total_order import MAX_CHANNELS, TOO_LATE, TOO_MANY, TotalOrder
from accord.core.model.errors import decode_or_none
from accord.core.overlay.interests import Interest
from accord.core.overlay.signalling import TransitEvent

S = 1_000_000


def node(net: Net, name: str) -> TotalOrder:
    found = net.nodes[name]
    assert isinstance(found, TotalOrder)
    return found


def sequencer_of(net: Net) -> str:
    return rendezvous(CHANNEL, net.nodes)


def a_net(links: str = "ab bc cd da ac", members: str = "abcd") -> Net:
    net = Net(TotalOrder, links)
    net.join(*members)
    grow_up(net)
    return net


def grow_up(net: Net) -> None:
    """Until those that were just started have heard of the others."""
    for each in net.nodes.values():
        each.advance(net.now_us)
    net.run(STARTUP_GRACE_US)


def talk(net: Net, rounds: int, pause_us: int = 20_000, names: str = "abcd") -> None:
    for number in range(rounds):
        for name in names:
            net.publish(name, f"{name}{net.now_us // 1_000}-{number}")
        net.run(pause_us)


def test_all_get_everything_in_the_same_order_own_events_too() -> None:
    net = a_net()
    talk(net, 10)
    net.run(3 * S)
    assert len(net.got("a")) == 40
    assert net.got("a") == net.got("b") == net.got("c") == net.got("d")
    for name in net.names:
        own = [each for each in net.got("a") if each.startswith(name)]
        assert own == sorted(own, key=lambda each: int(each.rpartition("-")[2]))


@pytest.mark.parametrize("seed", range(10))
def test_also_where_half_of_all_messages_is_lost(seed: int) -> None:
    net = a_net()
    random = Random(seed)  # noqa: S311
    net.loses = lambda *_: random.random() < 0.5
    talk(net, 10)
    net.run(30 * S)
    assert len(net.got("a")) == 40
    assert net.got("a") == net.got("b") == net.got("c") == net.got("d")


@pytest.mark.parametrize("at_us", range(0, 200_000, 15_000))
def test_another_takes_over_when_the_sequencer_fails(at_us: int) -> None:
    net = a_net()
    first = sequencer_of(net)
    others = "".join(name for name in net.names if name != first)
    talk(net, 10, at_us // 10, others)
    net.stop(first)
    talk(net, 10, 20_000, others)
    net.run(30 * S)
    assert len(net.got(others[0])) == 60
    assert net.got(others[0]) == net.got(others[1]) == net.got(others[2])
    epochs = {node(net, name).queues[CHANNEL].latest for name in others}
    assert len(epochs) == 1
    assert epochs.pop()[:2] == (2, sequencer_of(net)) or at_us == 0


def test_when_it_comes_back_it_goes_on_after_the_others() -> None:
    net = a_net()
    first = sequencer_of(net)
    others = "".join(name for name in net.names if name != first)
    talk(net, 5)
    net.run(S)
    ends = list(net.links)
    net.stop(first)
    talk(net, 5, names=others)
    net.run(5 * S)
    net.names = sorted(net.names)
    net.start(first, incarnation=2)
    for one, other in ends:
        if first in (one, other):
            net.make_link(one, other)
    grow_up(net)
    talk(net, 5)
    net.run(5 * S)
    got = net.got(others[0])
    assert len(got) == 20 + 15 + 20
    assert got == net.got(others[1]) == net.got(others[2])
    assert net.got(first) == got[-35:]  # with what it missed in between


def test_parts_go_on_alone_and_agree_on_what_both_have() -> None:
    net = a_net("ab cd bc")
    talk(net, 5)
    net.run(S)
    net.break_link("b", "c")
    talk(net, 5, S)
    net.run(40 * S)
    net.make_link("b", "c")
    talk(net, 5, S)
    net.run(40 * S)
    for one in net.names:
        for other in net.names:
            mine, theirs = dict.fromkeys(net.got(one)), dict.fromkeys(net.got(other))
            assert [each for each in mine if each in theirs] == [
                each for each in theirs if each in mine
            ]
    assert net.got("a")[-20:] == net.got("d")[-20:]
    assert all(len(set(net.got(name))) == len(net.got(name)) for name in net.names)


def test_who_joins_later_begins_in_the_midst() -> None:
    net = a_net(members="ab")
    talk(net, 5)
    net.run(2 * S)
    net.join("c")
    talk(net, 5)
    net.run(5 * S)
    assert net.got("c") == net.got("a")[20:]


def test_places_of_a_source_that_failed_do_not_hold_up_the_others() -> None:
    net = a_net("ab bc cd da ac bd")
    talk(net, 2)
    net.run(S)
    first = sequencer_of(net)
    source, *others = [name for name in net.names if name != first]
    net.publish(source, "never")
    net.run(12_000)  # it has been given its place by now, and does not know it
    net.stop(source)
    for name in others:
        net.publish(name, "next")
    net.run(20 * S)
    assert net.got(others[0])[-2:] == ["next", "next"]
    assert net.got(others[0]) == net.got(others[1]) == net.got(first)


def test_where_there_was_no_sequencer_nobody_is_taken_for_lost() -> None:
    net = a_net()
    net.publish("a", "first")
    net.run(S)
    assert not any(
        node(net, name).manager.detector.is_suspected("", net.now_us) for name in net.names
    )


def test_nothing_is_kept_when_members_have_left() -> None:
    net = a_net()
    talk(net, 5)
    net.run(S)
    net.leave(*net.names)
    net.run(2 * EXPIRE_US)
    assert not any(count for each in net.nodes.values() for count in each.retained_state().values())
    assert all(each.next_due_us() is None for each in net.nodes.values())


def test_without_members_nothing_is_done() -> None:
    net = Net(TotalOrder, "ab")
    net.publish("a", "1")
    assert not any(node(net, "a").retained_state().values())
    assert net.sent == []


def test_a_node_that_only_seems_to_be_cut_off_is_waited_for() -> None:
    """All pings of its links are lost, but not what else goes over them."""
    net = a_net("ab bc cd da")
    talk(net, 5)
    first = sequencer_of(net)
    for context in net.contexts.values():
        for one, other in net.links:
            if first in (one, other):
                context.map.set_link(one, other, 10_000, 0.0, False, 0.0)
    talk(net, 20, S)
    net.run(20 * S)
    assert len(net.got("a")) == 100
    assert net.got("a") == net.got("b") == net.got("c") == net.got("d")
    assert all(node(net, name).queues[CHANNEL].latest[:2] == (1, first) for name in net.names)


def test_a_sequencer_that_fails_while_it_takes_over() -> None:
    net = a_net("ab ac ad ae bc bd be cd ce de", "abcde")
    first = sequencer_of(net)
    talk(net, 3, names="abcde")
    net.run(S)
    net.stop(first)
    second = sequencer_of(net)
    names = "".join(name for name in net.nodes if name != second)
    talk(net, 3, names=names)
    while second not in {epoch[1] for epoch in latest(net)}:
        net.run(10_000)
    net.stop(second)
    talk(net, 3, names=names)
    net.run(30 * S)
    assert len(net.got(names[0])) == 15 + 2 * 9
    assert net.got(names[0]) == net.got(names[1]) == net.got(names[2])
    assert len({*latest(net)}) == 1


def latest(net: Net) -> list[Epoch]:
    return [node(net, name).queues[CHANNEL].latest for name in net.nodes]


def test_after_parts_have_met_there_is_one_sequencer() -> None:
    net = a_net("ab cd bc")
    talk(net, 3)
    net.run(S)
    net.break_link("b", "c")
    talk(net, 5, 2 * S)
    net.run(10 * S)
    assert len({*latest(net)}) == 2
    net.make_link("b", "c")
    talk(net, 2, S)
    net.run(10 * S)
    assert len({*latest(net)}) == 1
    before = len(net.got("a"))
    talk(net, 5, S)
    net.run(10 * S)
    assert net.got("a")[before:] == net.got("d")[-20:]
    assert net.got("a")[-20:] == net.got("b")[-20:] == net.got("c")[-20:] == net.got("d")[-20:]


def test_what_the_own_part_has_published_is_not_missed_when_parts_meet() -> None:
    """The sequencer of the others does not know of it: who is in touch with its source asks."""
    net = a_net("ab cd bc")
    source, member, other = "abc" if sequencer_of(net) in "ab" else "dcb"
    talk(net, 3)
    net.run(S)
    net.break_link("b", "c")
    talk(net, 5, 2 * S, other)
    net.run(5 * S)
    (begun,) = {each[1] for each in latest(net) if each[0] == 2}
    net.loses = lambda _, target, message: (
        (target == member and isinstance(message, TransitEvent) and message.source == source)
        or letter_between(source, begun, message)
    )
    net.publish(source, "late")
    net.run(S // 2)
    net.make_link("b", "c")
    talk(net, 3, S // 5, other)
    assert "late" not in net.got(member)
    net.loses = lambda *_: False
    net.run(5 * S)
    assert "late" in net.got(member)
    assert net.got(member) == net.got(source)
    assert len({*latest(net)}) == 1


def test_who_was_cut_off_learns_of_the_others_before_it_says_something() -> None:
    """Else what it publishes has a place of an epoch that all others have behind them."""
    net = a_net("ab bc cd da ac", "")
    first = sequencer_of(net)
    others = "".join(name for name in net.names if name != first)
    net.join(*others)
    talk(net, 3)
    net.run(S)
    ends = [each for each in net.links if first in each]
    for each in ends:
        net.break_link(*each)
    talk(net, 5, 2 * S, others)
    net.run(5 * S)
    for each in ends:
        net.make_link(*each)
    net.run(10 * S)
    assert len({*latest(net)}) == 1
    for number in range(10):
        net.publish(first, f"late {number}")
    net.run(5 * S)
    for name in others:
        assert net.got(name)[-10:] == [f"late {number}" for number in range(10)]


def test_one_that_others_are_in_touch_with_is_not_left_out() -> None:
    """A node that hears nothing from the sequencer begins no epoch without it."""
    net = a_net("ab bc cd da ac bd", "")
    first = sequencer_of(net)
    lonely = next(name for name in net.names if name != first)
    members = [name for name in net.names if name != lonely]
    net.join(*members)
    talk(net, 3)
    net.run(S)
    for other in members:  # it takes all its links for failed
        net.contexts[lonely].map.set_link(lonely, other, 10_000, 0.0, False, 0.0)
    net.loses = lambda _, target, message: (
        (target == first and isinstance(message, TransitEvent) and message.source == lonely)
        or letter_between(first, lonely, message)
    )
    talk(net, 10, S, first + lonely)
    assert any(epoch[1] == lonely for epoch in latest(net))
    net.loses = lambda *_: False
    net.run(10 * S)
    for name in members:
        assert net.contexts[name].lost == []
        assert len(net.got(name)) == 12 + 20
        assert net.got(name) == net.got(first)


def letter_between(one: str, other: str, message: Any) -> bool:
    if not isinstance(message, tuple):
        return False
    letter = decode_or_none(msgspec.msgpack.Decoder(UnicastMessage), message[1])
    return letter is not None and {letter.origin, letter.to} == {one, other}


def test_parts_that_never_knew_of_each_other_agree_when_they_do() -> None:
    net = Net(TotalOrder, "ab cd")
    for name in net.names:
        context = net.contexts[name]
        own, others = ("ab", "cd") if name in "ab" else ("cd", "ab")
        context.map.drop_link(*others)
        context.map.drop_link(*reversed(others))
        for watcher in context.watchers:
            for member in own:
                watcher(member, "1", msgspec.msgpack.encode(Interest(CHANNEL)))
    grow_up(net)
    talk(net, 3)
    net.run(S)
    assert len({*latest(net)}) == 2
    for ends in ("ab", "cd", "bc"):
        net.make_link(*ends)
    net.run(10 * S)
    assert len({*latest(net)}) == 1
    net.join(*net.names)
    talk(net, 2)
    net.run(5 * S)
    assert net.got("a")[-8:] == net.got("b")[-8:] == net.got("c")[-8:] == net.got("d")[-8:]


def test_a_member_that_comes_back_does_not_go_back() -> None:
    net = a_net()
    member = next(name for name in net.names if name != sequencer_of(net))
    talk(net, 3)
    net.run(S)
    position = node(net, member).receivers[CHANNEL].position
    assert position is not None
    net.leave(member)
    net.run(20 * S)
    net.join(member)
    before = net.got(member).copy()
    early = msgspec.structs.replace(event("early"), source="x", incarnation=1)
    stamp = (*position[:3], position[3] - 1)
    node(net, member).on_ready(
        BufferedEvent(early, StreamHeader(NOTHING, 0, stamp), net.now_us), net.now_us
    )
    net.run(5 * S)
    assert net.got(member) == before
    assert net.contexts[member].lost == [TOO_LATE]
    talk(net, 1)
    net.run(5 * S)
    assert len(net.got(member)) == len(before) + 4


def test_a_member_does_not_go_back_when_a_channel_was_quiet_for_long() -> None:
    net = a_net()
    talk(net, 3)
    net.run(2 * EXPIRE_US)
    for name in net.names:
        left = node(net, name).retained_state()
        assert {what for what, count in left.items() if count} == {"positions"}
    talk(net, 3)
    net.run(5 * S)
    assert all(context.lost == [] for context in net.contexts.values())
    assert len(net.got("a")) == 24
    assert net.got("a") == net.got("b") == net.got("c") == net.got("d")
    early = msgspec.structs.replace(event("early"), source="x", incarnation=1)
    stamp = (1, sequencer_of(net), 1, 99)
    net.run(2 * EXPIRE_US)
    node(net, "a").on_ready(
        BufferedEvent(early, StreamHeader(NOTHING, 0, stamp), net.now_us), net.now_us
    )
    assert net.contexts["a"].lost == [TOO_LATE]
    net.leave(*net.names)
    net.run(2 * EXPIRE_US)
    assert not any(any(node(net, name).retained_state().values()) for name in net.names)


def test_an_epoch_is_never_begun_again() -> None:
    """Not even where the sequencer has forgotten it, and a member has not."""
    net = a_net()
    first = sequencer_of(net)
    source, other, _ = (name for name in net.names if name != first)
    talk(net, 3)
    net.run(S)
    for name in (first, source):
        node(net, name).manager.expire(net.now_us, net.now_us)
        node(net, name).queues.pop(CHANNEL)
        node(net, name).receivers.pop(CHANNEL)
    talk(net, 2, names=source)
    net.run(5 * S)
    assert net.got(other)[-2:] == net.got(source)[-2:]
    assert len(net.got(other)) == len(net.got(source)) == 14
    assert net.contexts[other].lost == []


def test_a_source_that_is_started_again_goes_on_in_its_order() -> None:
    net = a_net()
    source = next(name for name in net.names if name != sequencer_of(net))
    other = next(name for name in net.names if name not in (source, sequencer_of(net)))
    for number in range(3):
        for text in "xyz":
            net.publish(source, f"{number}{text}")
        net.run(5 * S)
        net.start(source, incarnation=number + 2)
    net.publish(source, "last")
    net.run(10 * S)
    assert net.got(other) == [f"{number}{text}" for number in range(3) for text in "xyz"] + ["last"]


def test_a_member_that_leaves_and_comes_back_at_once() -> None:
    net = a_net()
    member = next(name for name in net.names if name != sequencer_of(net))
    other = next(name for name in net.names if name not in (member, sequencer_of(net)))
    for _ in range(5):
        talk(net, 2, names=other)
        net.leave(member)
        net.run(1_000)
        talk(net, 1, names=other)
        net.join(member)
        net.run(3 * S)
    talk(net, 5, names=other)
    net.run(3 * S)
    got = [each for each in net.got(other) if each in net.got(member)]
    assert net.got(member) == got
    assert net.got(member)[-5:] == net.got(other)[-5:]


HELD = PositionRange((9, "q", 1), 1, 1, "b", 1)
NONSENSE = [
    PositionGrant(1, HELD),
    PositionGrant(1, PositionRange((9, "q", 1), 1, 1 << 60, "b", 1)),
    PositionGrant(1, PositionRange((9, "q", 1), 1, 1, "else", 1)),
    EpochPromise((1, "b", 1), NO_EPOCH, (HELD,) * 3_000),
    EpochPromise((1, "b", 1), NO_EPOCH, (HELD,)),
    HolderReply(
        None,
        (1, "a", 1, 1),
        "",
        (PositionRange((1, "a", 1), -5, 1 << 60, "b", 1),),
        is_complete=True,
    ),
    PositionQuery(PositionRange((1, "a", 1), 1, 1 << 60, "b", 1)),
    PositionQuery(HELD),
    PositionVoid(HELD),
    PositionPending(HELD),
    HolderQuery((5, "x", 1, 1), (1, "x", 1, -1)),
    PositionRequest(1, -1, -1, NO_EPOCH),
]


@pytest.mark.parametrize("body", NONSENSE, ids=lambda body: type(body).__name__)
def test_what_nobody_could_mean_does_no_harm(body: Body) -> None:
    net = a_net()
    talk(net, 1)
    for name in net.names:
        node(net, name).unicast.send(name, CHANNEL, encode(body), net.now_us)
        node(net, name).unicast.send(name, "elsewhere", encode(body), net.now_us)
    net.run(100_000)
    talk(net, 5)
    net.run(10 * S)
    assert len(net.got("a")) == 24
    assert net.got("a") == net.got("b") == net.got("c") == net.got("d")


def test_letters_about_many_channels_are_not_remembered_without_end() -> None:
    net = a_net("ab", "ab")
    for number in range(MAX_CHANNELS + 10):
        body = encode(PrepareEpoch((1, "a", 1)))
        node(net, "b").unicast.send("b", f"channel/{number}", body, net.now_us)
    assert len(node(net, "b").queues) == MAX_CHANNELS
    node(net, "b").check_invariants()


def a_channel(net: Net, name: str, channel: str) -> None:
    """Something is published to another channel, which everybody wants."""
    sent = msgspec.structs.replace(event("x"), channel=channel)
    net.nodes[name].on_published(sent, [], net.definition, net.now_us)


def want_all(net: Net) -> None:
    for context in net.contexts.values():
        for watcher in context.watchers:
            for member in net.names:
                watcher(member, "all", msgspec.msgpack.encode(Interest("#")))


def test_of_many_channels_the_least_used_is_forgotten_and_none_in_use() -> None:
    net = a_net("ab", "ab")
    want_all(net)
    net.loses = lambda *_: True
    a_channel(net, "a", "busy")  # it waits for its place, or to be sent
    net.loses = lambda *_: False
    net.run(S)
    net.loses = lambda *_: True
    a_channel(net, "a", "waiting")
    body = encode(PrepareEpoch((1, "a", 1)))
    for number in range(MAX_CHANNELS + 10):
        node(net, "a").unicast.send("a", f"channel/{number}", body, net.now_us)
        node(net, "a").unicast.send("a", "busy", body, net.now_us)
    desks = node(net, "a").queues
    assert "busy" in desks  # in use
    assert "waiting" in desks  # not empty
    assert "channel/0" not in desks
    assert len(desks) == MAX_CHANNELS
    node(net, "a").check_invariants()


def test_where_all_channels_are_in_use_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(total_order, "MAX_CHANNELS", 3)
    net = a_net("ab", "ab")
    want_all(net)
    net.loses = lambda *_: True
    for number in range(4):
        a_channel(net, "a", f"channel/{number}")
    assert list(node(net, "a").queues) == ["channel/0", "channel/1", "channel/2"]
    assert net.contexts["a"].lost == [TOO_MANY]
    net.loses = lambda *_: False
    net.run(10 * S)
    a_channel(net, "a", "channel/3")
    net.run(10 * S)
    assert net.got("a") == net.got("b") == ["x"] * 4
    assert net.contexts["a"].lost == [TOO_MANY]


def a_deaf_member(options: dict[str, str] | None = None) -> tuple[Net, dict[str, bool]]:
    """Sources a, b and d, members m and c; m hears nothing of those sources in the answer."""
    net = Net(TotalOrder, "am bm dm ac bc dc mc", options)
    assert sequencer_of(net) == "c"
    net.join("m", "c")
    grow_up(net)
    for name in "abd":
        net.publish(name, name)
    net.run(5 * S)
    silent: dict[str, bool] = {}
    net.loses = lambda source, target, _: source in silent and target == "m"
    return net, silent


def test_a_member_that_lacks_many_places_gets_them_all() -> None:
    net, silent = a_deaf_member()
    silent |= dict.fromkeys("abd", True)
    for number in range(5):
        net.publish("a", f"a{number}")
        net.run(50_000)
    for number in range(90):
        net.publish("b", f"b{number}")
        net.run(50_000)
    net.publish("d", "d0")
    for name in "dba":
        net.run(S)
        del silent[name]
    net.run(20 * S)
    assert len(net.got("c")) == 3 + 5 + 90 + 1
    assert net.got("m") == net.got("c")
    assert net.contexts["m"].lost == []


def test_what_waits_for_its_turn_slows_its_source() -> None:
    net, silent = a_deaf_member()
    silent["a"] = True
    net.publish("a", "slow")
    net.run(200_000)
    for number in range(5_000):
        net.publish("b", str(number))
        if number % 10 == 0:
            net.run(2_000)
    net.run(S)
    assert len(node(net, "m").receivers[CHANNEL]) == WINDOW
    assert not net.nodes["b"].has_room(CHANNEL)
    assert "slow" in net.got("c")
    silent.clear()
    net.run(30 * S)
    assert len(net.got("c")) == 3 + 1 + 5_000
    assert net.got("m") == net.got("c")
    assert net.nodes["b"].has_room(CHANNEL)
    assert not any(context.lost for context in net.contexts.values())


def test_also_what_its_own_clients_publish_waits_within_limits() -> None:
    net, silent = a_deaf_member()
    net.leave("c")
    silent["a"] = True
    net.publish("a", "slow")
    net.run(200_000)
    for number in range(5_000):
        net.publish("m", str(number))
        if number % 10 == 0:
            net.run(2_000)
    net.run(S)
    assert len(node(net, "m").receivers[CHANNEL]) == WINDOW
    assert not net.nodes["m"].has_room(CHANNEL)
    silent.clear()
    net.run(30 * S)
    assert net.got("m")[3:] == ["slow", *map(str, range(5_000))]
    assert net.nodes["m"].has_room(CHANNEL)


def test_large_events_wait_within_limits() -> None:
    net, silent = a_deaf_member()
    silent["a"] = True
    net.publish("a", "slow")
    net.run(200_000)
    text = "x" * (MAX_BYTES // 8)
    published = 0
    while net.nodes["b"].has_room(CHANNEL):
        net.publish("b", text)
        published += 1
        net.run(20_000)
    assert len(node(net, "m").receivers[CHANNEL]) == 8
    assert published == 2 * 8
    silent.clear()
    net.run(10 * S)
    assert net.got("m") == net.got("c")
    assert len(net.got("m")) == 3 + 1 + published


def test_nothing_is_waited_for_longer_than_half_of_the_patience() -> None:
    net, silent = a_deaf_member({STALL_TIMEOUT: "10000"})
    silent["a"] = True
    net.publish("a", "slow")
    net.run(200_000)
    net.publish("b", "next")
    net.run(4 * S)
    assert "next" not in net.got("m")
    net.run(2 * S)
    assert "next" in net.got("m")
    silent.clear()
    net.run(2 * S)
    assert "slow" not in net.got("m")
    assert net.contexts["m"].lost == [TOO_LATE]


def test_where_the_channel_waits_it_is_waited_for_who_can_be_reached() -> None:
    net, silent = a_deaf_member({STALL_TIMEOUT: "10000", SLOW_MEMBERS: "wait"})
    silent["a"] = True
    net.publish("a", "slow")
    net.run(200_000)
    net.publish("b", "next")
    net.run(100 * S)
    assert "next" not in net.got("m")
    silent.clear()
    net.run(2 * S)
    assert net.got("m") == net.got("c")
    assert not any(context.lost for context in net.contexts.values())


def test_what_a_source_does_not_wait_for_waits_for_nobody_else() -> None:
    net, silent = a_deaf_member()
    silent["a"] = True
    net.publish("a", "slow")
    net.run(200_000)
    net.publish("b", "next")
    net.run(S)
    assert "next" not in net.got("m")
    node(net, "b").senders[CHANNEL].drop("m", net.now_us)
    node(net, "b").update_load(CHANNEL)
    net.run(S)
    assert net.got("m")[-1] == "next"
    silent.clear()
    net.publish("b", "last")
    net.run(5 * S)
    assert net.contexts["m"].lost == [TOO_LATE]
    assert net.got("m") == [each for each in net.got("c") if each != "slow"]


def test_who_has_published_nothing_for_long_gets_places_again() -> None:
    net, _ = a_deaf_member()
    for number in range(60):
        net.publish("b", str(number))
        net.run(EXPIRE_US // 20)
    assert CHANNEL not in node(net, "a").queues
    net.publish("a", "again")
    net.run(5 * S)
    assert net.got("m")[-1] == net.got("c")[-1] == "again"


def test_where_nobody_wants_an_event_no_order_is_remembered_for_it() -> None:
    """It may come from a stream that ends long after all have left."""
    net = Net(TotalOrder, "ab")
    late = msgspec.structs.replace(event("late"), source="a", incarnation=1)
    node(net, "b").on_ready(BufferedEvent(late, StreamHeader(NOTHING, 0, (1, "a", 1, 1)), 0), 0)
    assert not any(node(net, "b").retained_state().values())


def test_nonsense_is_ignored() -> None:
    net = Net(TotalOrder, "ab")
    net.nodes["b"].on_message("a", CHANNEL, b"?", 0)
    node(net, "b").unicast.send("b", CHANNEL, b"?", 0)
    assert not any(net.nodes["b"].retained_state().values())


@pytest.mark.parametrize("count", [2**64 - 1, 2**63, 2**40])
def test_an_epoch_that_somebody_made_up_ends_no_channel(count: int) -> None:
    net = a_net()
    talk(net, 2)
    net.run(3 * S)
    before = len(net.got("a"))
    made_up: Epoch = (count, "d", 1)
    for name in "abc":
        for body in (
            PositionRequest(1, 1, 1, made_up),
            CurrentEpoch(made_up),
            PrepareEpoch(made_up),
        ):
            net.nodes["d"].unicast.send(name, CHANNEL, encode(body), net.now_us)  # type: ignore[attr-defined]
    net.run(1 * S)
    talk(net, 2)
    net.run(5 * S)
    assert len(net.got("a")) == before + 8
    assert net.got("a") == net.got("b") == net.got("c")


def test_an_event_with_a_stamp_that_nobody_gave_is_no_event() -> None:
    net = a_net()
    talk(net, 1)
    net.run(3 * S)
    one = node(net, "a")
    assert one.is_valid_header(
        CHANNEL, StreamHeader(NOTHING, 0, position_at(one.queues[CHANNEL].latest, 9))
    )
    assert not one.is_valid_header(CHANNEL, StreamHeader(NOTHING, 0, (2**62, "d", 1, 1)))
    assert not one.is_valid_header(CHANNEL, StreamHeader(NOTHING, 2**62))


def test_a_node_that_takes_no_more_gets_the_rest_in_the_same_order_later() -> None:
    net = a_net()
    talk(net, 2)
    net.run(2 * S)
    net.contexts["c"].room = 3
    talk(net, 20)
    net.run(40 * S)  # longer than is waited for what does not come
    assert len(net.got("c")) == 8 + 3
    assert len(net.got("a")) == len(net.got("b")) == 8 + 80
    net.contexts["c"].room = 100
    net.run(5 * S)
    assert net.got("a") == net.got("b") == net.got("c")


def test_who_joins_when_room_is_found_is_told_until_it_has_heard() -> None:
    """What is due of a stream is planned, wherever it turns out to be."""
    net = Net(TotalOrder, "ab ac")
    net.join("a", "b")
    net.run(4 * S)
    net.publish("a", "0")
    net.run(12 * S)
    net.contexts["a"].room = 0
    net.publish("a", "1")
    net.run(2 * S)
    net.join("c")
    net.contexts["a"].room = 9
    is_lost = [True]
    net.loses = lambda source, target, _: (source, target) == ("a", "c") and any(is_lost)
    net.run(S // 2)
    is_lost.clear()
    net.run(2 * S)
    assert net.got("a") == net.got("b") == ["0", "1"]
