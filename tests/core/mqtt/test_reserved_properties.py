"""Events have one name wherever they are received, for clients that ask for it."""

from __future__ import annotations

from typing import Final

import pytest
from tests.core.broker.dialogue import Peer, Table
from tests.core.broker.tier_net import TierNet

from accord.core.mqtt.codes import V311
from accord.core.mqtt.event_mapping import EVENT_NAMES
from accord.core.mqtt.packets import Connack, Connect, Publish
from accord.core.mqtt.properties import EVENT, NODE, Properties

ASKING: Final = Properties(user=(EVENT_NAMES,))
WITH_ALIAS: Final = Properties(user=(EVENT_NAMES,), topic_alias_maximum=4)


def names(peer: Peer) -> list[tuple[str, str]]:
    heard = [dict(each.properties.user) for each in peer.hear() if isinstance(each, Publish)]
    return [(each[NODE], each[EVENT]) for each in heard]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("source", ["a", "c", "x"])
def test_the_name_of_an_event_is_the_same_everywhere(source: str, qos: int) -> None:
    net = TierNet("abc", {"x": "ab", "y": "bc"})
    peers = [at.join(f"at {name}", properties=ASKING) for name, at in net.tables.items()]
    for peer in peers:
        peer.subscribe("uav/#", qos=2)
    net.settle()
    publisher = net.tables[source].join("camera")
    for number in range(3):
        publisher.publish("uav/x", str(number).encode(), qos)
    net.settle()
    first, *others = [names(peer) for peer in peers]
    assert len({*first}) == 3
    assert all(each == first for each in others)
    assert {node for node, _ in first} == {source}


@pytest.mark.parametrize("asked", [ASKING, WITH_ALIAS])
def test_only_who_asks_for_names_gets_them(asked: Properties) -> None:
    table = Table()
    (welcome,) = table.open().send(Connect("ada", properties=asked)).hear()
    assert isinstance(welcome, Connack)
    assert EVENT_NAMES in welcome.properties.user
    ada = table.join("bob", properties=asked).subscribe("a")
    eve = table.join("eve").subscribe("a")
    table.open(V311).send(Connect("old", V311))
    eve.publish("a", b"1", properties=Properties(user=(("height", "3"),)))
    ((height, event, node),) = [
        each.properties.user for each in ada.hear() if isinstance(each, Publish)
    ]
    assert (height, event[0], node[0]) == (("height", "3"), EVENT, NODE)
    (plain,) = eve.hear()
    assert isinstance(plain, Publish)
    assert plain.properties.user == (("height", "3"),)


def test_what_the_node_itself_says_has_no_name() -> None:
    table = Table()
    ada = table.join("ada", properties=ASKING).subscribe("$SYS/#")
    table.broker.publish_as_node("$SYS/now", b"1")
    table.turn()
    (told,) = ada.hear()
    assert isinstance(told, Publish)
    assert not told.properties.user
