"""Quality negotiated between clients of secondary nodes and of the backbone, all processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.brokers import accord_only
from tests.net_nodes import RunningNode, start_nodes, wait_until
from tests.scenarios.test_paho import Paho
from tests.scenarios.test_quality import EXPECTATIONS, ask, expecting, heard, joined, until_state
from tests.scenarios.test_tiers import active

ADVICE = "$accord/advice"
TIERS = {"a": [], "b": ["a"], "x": ["a", "b"], "y": ["b"]}

pytestmark = accord_only


def advised(sensor: Paho) -> Any:
    """Do as advised."""
    while (advice := heard(sensor, ADVICE))["kind"] != "advice":
        pass
    ask(sensor, do="update", channel="lab/t", current={advice["property"]: advice["target"]})
    return advice["target"]


def states(node: RunningNode) -> dict[str, str]:
    channels = json.loads(node.accord("quality", "--json").stdout)["channels"]
    return {each["id"]: each["state"] for of in channels for each in of["expectations"]}


def names(node: RunningNode) -> list[str]:
    return node.accord("quality", "properties").stdout.split()


def test_advice_crosses_tiers_and_survives_a_parent(tmp_path: Path) -> None:
    colour = tmp_path / "colour.properties"
    colour.write_text("name = colour\nlevels = grey < few < full\nbetter = higher\n")
    with (
        start_nodes(TIERS, secondary=["x", "y"], killed=["a"]) as nodes,
        joined(nodes["x"].broker, "sensor", "answers", ADVICE) as sensor,
        joined(nodes["b"].broker, "desk", EXPECTATIONS) as desk,
        joined(nodes["y"].broker, "wall", EXPECTATIONS) as wall,
    ):
        wait_until(lambda: active(nodes["x"]) == "a")
        assert nodes["y"].accord("quality", "define", str(colour)).exit_code == 0
        wait_until(lambda: all("colour" in names(node) for node in nodes.values()))
        rate = {"range": [1, 50], "current": 2}
        shades = {"range": ["grey", "full"], "current": "full"}
        ask(
            sensor,
            do="register",
            channel="lab/t",
            capabilities={"rate": rate, "colour": shades},
        )
        expecting(desk, "lab/t", rate=[5, 20], latency=[None, 1_000], id="desk")
        assert advised(sensor) >= 5
        until_state(desk, "satisfied")
        expecting(wall, "lab/#", rate=[10, 20], colour="few", id="wall")
        assert advised(sensor) >= 10
        until_state(wall, "satisfied")
        nodes["a"].broker.process.kill()
        wait_until(lambda: active(nodes["x"]) == "b")
        wait_until(lambda: states(nodes["b"]) == {"desk": "satisfied"})
        assert states(nodes["y"]) == {"wall": "satisfied"}
        assert wall.messages.empty(), "it was told of another state meanwhile"
        expecting(wall, "lab/+", rate=[30, None], id="more")
        assert advised(sensor) >= 30
        assert until_state(wall, "satisfied")["expectation"] == "more"
        ask(sensor, do="revoke", channel="lab/t")
        until_state(wall, "unsatisfied")


def test_a_client_of_a_secondary_node_is_served_by_publishers_elsewhere() -> None:
    with (
        start_nodes({"a": [], "b": ["a"], "x": ["a", "b"]}, secondary=["x"]) as nodes,
        joined(nodes["b"].broker, "sensor", "answers", ADVICE) as sensor,
        joined(nodes["x"].broker, "desk", EXPECTATIONS) as desk,
    ):
        ask(
            sensor,
            do="register",
            channel="lab/t",
            capabilities={"rate": {"range": [1, 50], "current": 2}},
        )
        expecting(desk, "lab/t", rate=[10, 20], latency=[None, 1_000], id="often")
        assert advised(sensor) >= 10
        until_state(desk, "satisfied")
