from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.channel_nets import CHANNEL, Net, event

from accord.core.channels.tree_multicast import (
    NO_PATH,
    SPANNER,
    SingleSource,
    TreeHeader,
    Unreliable,
    factor_of,
)
from accord.core.channels.trees.tree import FACTOR
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.signalling import TransitEvent

S = 1_000_000


def events(net: Net) -> list[tuple[str, str, TransitEvent]]:
    return [each for each in net.sent if isinstance(each[2], TransitEvent)]


def has_tree(carried: TransitEvent) -> bool:
    return msgspec.msgpack.decode(carried.header, type=TreeHeader).tree is not None


@pytest.mark.parametrize("template", [SingleSource, Unreliable])
def test_an_event_goes_once_over_each_link_of_its_tree(template: type[SingleSource]) -> None:
    net = Net(template, "ab bc bd ca")
    net.join("c", "d")
    net.publish("a", "hello")
    net.run(S)
    assert net.got("c") == net.got("d") == ["hello"]
    assert net.got("b") == []  # it only passes on
    links = [(source, target) for source, target, _ in events(net)]
    assert len(links) == len(dict.fromkeys(links)) == 3


def test_the_tree_comes_with_events_until_it_is_confirmed() -> None:
    net = Net(SingleSource, "ab")
    net.join("b")
    for text in "123":
        net.publish("a", text)
    net.run(S)
    net.publish("a", "4")
    net.run(S)
    assert net.got("b") == ["1", "2", "3", "4"]
    assert [has_tree(each) for _, _, each in events(net)] == [True, True, True, False]


def test_who_lost_its_tree_gets_it_with_the_next_event() -> None:
    net = Net(SingleSource, "ab bc")
    net.join("c")
    net.publish("a", "1")
    net.run(S)
    net.start("b", incarnation=2)
    net.publish("a", "2")  # b does not know the tree any more
    net.run(S)
    net.publish("a", "3")
    net.run(S)
    assert net.got("c") == ["1", "3"]


def test_copies_count_once() -> None:
    net = Net(SingleSource, "ab")
    net.join("b")
    net.publish("a", "1")
    (source, target, copy), *_ = events(net)
    net.send(source, target, copy)
    net.run(S)
    assert net.got("b") == ["1"]


def test_another_way_where_a_link_fails() -> None:
    net = Net(SingleSource, "ab bc ac")
    net.join("c")
    net.publish("a", "1")
    net.break_link("a", "c")
    net.publish("a", "2")
    net.run(S)
    assert net.got("c") == ["1", "2"]
    assert ("b", "c") in [(source, target) for source, target, _ in events(net)]


def test_who_can_not_be_reached_is_told() -> None:
    net = Net(SingleSource, "ab bc")
    net.join("b", "c")
    net.break_link("b", "c")
    net.nodes["a"].on_published(event("1"), ["b", "c"], net.definition, 0)
    net.run(S)
    assert net.got("b") == ["1"]
    assert net.contexts["a"].lost == [NO_PATH]


def test_sources_that_are_members_share_one_tree() -> None:
    net = Net(Unreliable, "ab bc cd da ac")
    net.join("a", "b", "c", "d")
    for name in net.names:
        net.publish(name, name)
    net.run(S)
    notes = [msgspec.msgpack.decode(each.header, type=TreeHeader) for _, _, each in events(net)]
    assert len({note.digest for note in notes}) == 1
    assert [sorted(net.got(name)) for name in "ab"] == [["b", "c", "d"], ["a", "c", "d"]]


def test_the_tree_of_what_was_published_can_be_asked_for() -> None:
    net = Net(SingleSource, "ab bc")
    net.join("c")
    source = net.nodes["a"]
    assert isinstance(source, SingleSource)
    assert source.tree(CHANNEL) is None
    assert source.retained_state() == {"trees": 0, "grown": 0}  # asking makes none
    net.publish("a", "1")
    (_, _, carried), *_ = events(net)
    told = source.tree(CHANNEL)
    assert told is not None
    assert told == msgspec.msgpack.decode(carried.header, type=TreeHeader).tree
    assert told.links() == [("a", "b"), ("b", "c")]
    net.leave("c")
    assert source.tree(CHANNEL) is None


def test_nothing_is_kept_of_what_is_not_used() -> None:
    net = Net(Unreliable, "ab bc")
    net.join("c")
    net.publish("a", "1")
    net.run(S)
    assert any(net.nodes["b"].retained_state().values())
    net.leave("c")
    net.run(200 * S)
    assert not any(count for node in net.nodes.values() for count in node.retained_state().values())
    assert net.nodes["a"].next_due_us() is None


def test_nonsense_is_ignored() -> None:
    net = Net(SingleSource, "ab")
    net.join("b")
    bad: list[Any] = [
        msgspec.structs.replace(event("x"), header=b"?"),
        msgspec.structs.replace(
            event("x"), header=msgspec.msgpack.encode((b"12345678", (("a", "b"), (5,))))
        ),
    ]
    for each in bad:
        net.nodes["b"].on_event("a", each, 0)
    net.nodes["b"].on_message("a", CHANNEL, b"?", 0)
    assert net.got("b") == []
    assert net.nodes["b"].retained_state()["trees"] == 0


@pytest.mark.parametrize(
    ("given", "factor"), [("2.5", 2.5), ("0.1", FACTOR), ("nan", FACTOR), ("wide", FACTOR)]
)
def test_the_spanner_option(given: str, factor: float) -> None:
    assert factor_of(ChannelDefinition(name="a", options={SPANNER: given})) == factor
