"""Subscriptions at a secondary node are admitted by all nodes on the way, all of them processes."""

from __future__ import annotations

import json
from typing import Any

from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes, wait_until
from tests.scenarios.test_admission import advertised, facts, joined
from tests.scenarios.test_tiers import active

TIERS = {"a": [], "b": ["a"], "x": ["a", "b"]}
# 10 events of 1000 bytes per second are 80 kbit/s.
CONFIG = """
[admission]
mode = "enforce"
event_bytes = 1000
link_bandwidth = "100 kbit/s"
"""

pytestmark = accord_only


def knows(node: RunningNode, channel: str) -> bool:
    return channel in node.accord("admission").output


def refusal(node: RunningNode, channel: str) -> str:
    """Why a subscription would be refused; empty where it would not be."""
    asked = node.accord("admission", "check", channel)
    return asked.output if asked.exit_code else ""


def promised(node: RunningNode, of: str) -> float:
    pools: list[dict[str, Any]] = json.loads(node.accord("admission", "--json").stdout)["pools"]
    found = [each for each in pools if (each["node"], each["of"]) == (node.name, of)]
    return sum(float(each["promised"]) for each in found)


def test_a_parent_asks_for_its_child_and_another_takes_over() -> None:
    with (
        start_nodes(TIERS, secondary=["x"], killed=["a"], everywhere=CONFIG) as nodes,
        joined(nodes["b"].broker, "source") as source,
        joined(nodes["x"].broker, "reader") as reader,
        joined(nodes["x"].broker, "sensor") as sensor,
        joined(nodes["b"].broker, "desk") as desk,
    ):
        a, b, x = nodes.values()
        wait_until(lambda: active(x) == "a")
        advertised(source, "uav/#", 8)
        advertised(source, "uav/image", 10)
        advertised(sensor, "lab/#", 20)
        everywhere = ("uav/#", "uav/image", "lab/#")
        wait_until(lambda: all(knows(node, each) for node in (a, b) for each in everywhere))

        reasons, properties = reader.subscribe("uav/+")
        assert [each.value for each in reasons] == [0x97]
        said = facts(properties)
        assert (said["node"], said["resource"], said["asked"]) == ("a", "bandwidth", "144000")
        assert said["of"] == "link x"
        reader.subscribed("uav/position")
        assert promised(a, "link x") == 64_000
        assert promised(b, "link a") == 64_000
        assert promised(x, "client reader") == 64_000

        reasons, properties = desk.subscribe("lab/#")
        assert [each.value for each in reasons] == [0x97]
        assert facts(properties)["node"] == "a"
        assert facts(properties)["of"] == "link b"

        a.broker.process.kill()
        wait_until(lambda: active(x) == "b")
        wait_until(lambda: promised(b, "link x") == 64_000)
        assert "node b lacks bandwidth of link x" in refusal(x, "uav/other")
        desk.subscribed("lab/#")  # nobody is on the way any more
        reader.unsubscribe("uav/position")
        wait_until(lambda: promised(b, "link x") == 0)
        assert refusal(x, "uav/other") == ""
