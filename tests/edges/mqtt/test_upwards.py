"""What clients of a secondary node are told of the past that they don't get."""

from __future__ import annotations

import json

from accord.core.channels.persistent.options import PERSISTENT
from accord.core.overlay.registry import ChannelDefinition
from accord.core.tiers.child import Child
from accord.core.tiers.messages import Told, Trait
from accord.core.tiers.options import TierOptions
from accord.edges.mqtt.packets import Publish
from accord.edges.mqtt.upwards import Upwards
from tests.edges.mqtt.dialogue import Peer, Table


def secondary() -> Table:
    """The node x, whose parent has defined some channels."""
    table = Table()
    table.hub.node = "x"
    child = Child("x", 1, TierOptions())
    upwards = table.broker.abroad = Upwards(table.broker, lambda: 0, child)
    upwards.begin()
    child.link_up("a", 0, 0)
    page = (
        (ChannelDefinition("chat/#", options={PERSISTENT: "7d"}), "a"),
        (ChannelDefinition("other/#"), "a"),
    )
    child.lookups.hear("a", 1, 7, 0)
    child.lookups.told(Told(7, {"routed": Trait()}, page=page, after="", is_last=True), 1)
    return table


def told(peer: Peer) -> list[object]:
    return [json.loads(each.payload) for each in peer.hear() if isinstance(each, Publish)]


def test_who_subscribes_to_a_persistent_channel_hears_that_there_is_no_past() -> None:
    ada = secondary().join("ada").subscribe("$accord/past")
    ada.subscribe("chat/+")
    why = "x is a secondary node, which has no past to give: ask a backbone node for it"
    assert told(ada) == [{"filter": "chat/+", "state": "live", "missing": ["a"], "why": why}]
    ada.subscribe("other/#", "$share/all/chat/#", "$SYS/#")
    assert told(ada) == []
    ada.subscribe("#")
    assert len(told(ada)) == 1


def test_who_does_not_listen_is_not_told() -> None:
    ada = secondary().join("ada").subscribe("chat/#")
    assert told(ada) == []
