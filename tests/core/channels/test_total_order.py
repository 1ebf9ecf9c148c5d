from __future__ import annotations

from random import Random

import pytest
from tests.channel_nets import CHANNEL, Net

from accord.core.channels.reliable import FORGET_US
from accord.core.channels.rendezvous import rendezvous
from accord.core.channels.total_order import TotalOrder

S = 1_000_000


def node(net: Net, name: str) -> TotalOrder:
    found = net.nodes[name]
    assert isinstance(found, TotalOrder)
    return found


def sequencer_of(net: Net) -> str:
    return rendezvous(CHANNEL, net.nodes)


def a_net() -> Net:
    net = Net(TotalOrder, "ab bc cd da ac")
    net.join(*net.names)
    return net


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
    epochs = {node(net, name).desks[CHANNEL].latest for name in others}
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
    talk(net, 5)
    net.run(5 * S)
    got = net.got(others[0])
    assert len(got) == 20 + 15 + 20
    assert got == net.got(others[1]) == net.got(others[2])
    assert net.got(first) == got[-35:]  # with what it missed in between


def test_parts_go_on_alone_and_agree_on_what_both_have() -> None:
    net = Net(TotalOrder, "ab cd bc")
    net.join(*net.names)
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
    net = Net(TotalOrder, "ab bc cd da ac")
    net.join("a", "b")
    talk(net, 5)
    net.run(2 * S)
    net.join("c")
    talk(net, 5)
    net.run(5 * S)
    assert net.got("c") == net.got("a")[20:]


def test_places_of_a_source_that_failed_do_not_hold_up_the_others() -> None:
    net = Net(TotalOrder, "ab bc cd da ac bd")
    net.join(*net.names)
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


def test_nothing_is_kept_when_members_have_left() -> None:
    net = a_net()
    talk(net, 5)
    net.run(S)
    net.leave(*net.names)
    net.run(2 * FORGET_US)
    assert not any(count for each in net.nodes.values() for count in each.left().values())
    assert all(each.next_due_us() is None for each in net.nodes.values())


def test_without_members_nothing_is_done() -> None:
    net = Net(TotalOrder, "ab")
    net.publish("a", "1")
    assert not any(node(net, "a").left().values())
    assert net.sent == []


def test_nonsense_is_ignored() -> None:
    net = Net(TotalOrder, "ab")
    net.nodes["b"].said("a", CHANNEL, b"?", 0)
    node(net, "b").letters.post("b", CHANNEL, b"?", 0)
    assert not any(net.nodes["b"].left().values())
