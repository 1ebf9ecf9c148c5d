"""Admission as users see it: real nodes, unchanged MQTT clients."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from benchmarks.ports import free_port
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from tests.brokers import HOST, Broker, accord_only, start_accord
from tests.net_nodes import start_nodes, wait_until
from tests.scenarios.properties import properties_of
from tests.scenarios.test_paho import V5, V311, WAIT_S, Paho

pytestmark = accord_only

CONFIG = """
[node]
name = "gate"
[admission]
mode = "enforce"
event_bytes = 1000
[policies]
file = "policies.toml"
"""
# 10 events of 1000 bytes per second are 80 kbit/s.
POLICIES = """
client_bandwidth = "100 kbit/s"
[[policies]]
name = "best effort"
client = "free-*"
guarantee = "none"
[[policies]]
name = "three quarters"
client = "some-*"
guarantee = 0.75
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    file = tmp_path_factory.mktemp("policies") / "policies.toml"
    file.write_text(POLICIES)
    config = CONFIG.replace("policies.toml", str(file))
    with start_accord(config=config, extra=["--http", f"{HOST}:{free_port()}"]) as running:
        yield running


class Guest(Paho):
    """Also waits for what is answered to its messages."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._acknowledged: queue.Queue[int] = queue.Queue()
        self._unsubscribed: queue.Queue[None] = queue.Queue()
        self._client.on_publish = self._on_publish
        self._client.on_unsubscribe = self._on_unsubscribe

    def published(self, topic: str, payload: bytes, qos: int = 1) -> int:
        """The reason code of the answer."""
        self._client.publish(topic, payload, qos)
        return self._acknowledged.get(timeout=WAIT_S)

    def forget_acknowledged(self) -> None:
        while not self._acknowledged.empty():
            self._acknowledged.get()

    def unsubscribe(self, pattern: str) -> None:
        self._client.unsubscribe(pattern)
        self._unsubscribed.get(timeout=WAIT_S)

    def _on_publish(self, _: Any, __: Any, ___: int, reason: ReasonCode, *____: Any) -> None:
        self._acknowledged.put(reason.value)

    def _on_unsubscribe(self, *_: Any) -> None:
        self._unsubscribed.put(None)


@contextmanager
def joined(
    broker: Broker, client: str, protocol: MQTTProtocolVersion = V5, *, stays: bool = False
) -> Iterator[Guest]:
    paho = Guest(broker, protocol, client, stays=stays)
    try:
        yield paho
    finally:
        paho.leave()


def asked(client: Paho, do: str, **more: Any) -> dict[str, Any]:
    """What the node answers to a request about advertisements."""
    client.subscribed("answers/to/me")
    properties = properties_of(PacketTypes.PUBLISH, ResponseTopic="answers/to/me")
    body = json.dumps({"do": do, **more}).encode()
    client.publish("$accord/advertisements", body, 1, False, properties)
    answer: dict[str, Any] = json.loads(client.messages.get(timeout=WAIT_S).payload)
    return answer


def advertised(client: Paho, channel: str, rate_hz: float, where: str = "") -> None:
    answer = asked(client, "advertise", channel=channel, rate_hz=rate_hz, where=where)
    assert answer["ok"], answer


def facts(properties: Any) -> dict[str, str]:
    return dict(getattr(properties, "UserProperty", []))


def test_a_subscription_that_can_not_be_carried_is_refused_with_the_facts(broker: Broker) -> None:
    with joined(broker, "a-source") as source, joined(broker, "a-reader") as reader:
        advertised(source, "a/#", 20)
        reasons, properties = reader.subscribe("a/#")
        assert [each.value for each in reasons] == [0x97]
        assert facts(properties) == {
            "node": "gate",
            "resource": "bandwidth",
            "of": "client a-reader",
            "asked": "160000",
            "free": "100000",
        }
        assert "160 kbit/s" in properties.ReasonString
        assert "100 kbit/s" in properties.ReasonString


def test_what_is_given_back_can_be_had_again(broker: Broker) -> None:
    with joined(broker, "b-source") as source, joined(broker, "b-reader") as reader:
        advertised(source, "b/one", 8)
        advertised(source, "b/two", 8)
        reader.subscribed("b/one")
        reasons, _ = reader.subscribe("b/two")
        assert [each.value for each in reasons] == [0x97]
        reader.unsubscribe("b/one")
        reader.subscribed("b/two")
    with joined(broker, "b-source") as source, joined(broker, "b-reader") as reader:
        advertised(source, "b/one", 8)
        reader.subscribed("b/one")  # the session before it has ended, and what it held


def test_clients_of_the_old_protocol_are_refused_too(broker: Broker) -> None:
    with joined(broker, "c-source") as source, joined(broker, "c-reader", V311) as reader:
        advertised(source, "c", 20)
        reasons, _ = reader.subscribe("c")
        assert [each.value for each in reasons] == [0x80]


def test_policies_choose_the_guarantee(broker: Broker) -> None:
    with (
        joined(broker, "d-source") as source,
        joined(broker, "free-reader") as free,
        joined(broker, "some-reader") as some,
    ):
        advertised(source, "d", 20)
        free.subscribed("d")
        reasons, _ = some.subscribe("d")
        assert [each.value for each in reasons] == [0x97]  # the only node on the way says no
        reasons, properties = some.subscribe("other")
        assert [each.value for each in reasons] == [0]
        assert facts(properties) == {"admitted": "1"}


def test_who_publishes_more_than_advertised_is_limited_and_told(broker: Broker) -> None:
    with joined(broker, "e-source") as source, joined(broker, "e-reader") as reader:
        reader.subscribed("e", 1)
        advertised(source, "e", 0.001)
        source.subscribed("$accord/advice", 1)
        source.forget_acknowledged()
        answers = [source.published("e", b"%d" % number, 1) for number in range(4)]
        assert answers == [0, 0, 0x97, 0x97]
        advice = json.loads(source.messages.get(timeout=WAIT_S).payload)
        assert advice["advertisement"] == "e"
        assert advice["standing"] == "over"
        assert advice["rate_hz"] == 0.001
        reader.take("e", b"0", 1)
        reader.take("e", b"1", 1)
        assert reader.messages.empty()


def test_a_node_elsewhere_refuses_and_commands_show_it() -> None:
    config = """
[admission]
mode = "enforce"
event_bytes = 1000
link_bandwidth = "100 kbit/s"
"""
    with (
        start_nodes({"denver": (), "boston": ("denver",)}, config) as nodes,
        joined(nodes["denver"].broker, "source") as source,
        joined(nodes["boston"].broker, "reader") as reader,
    ):
        advertised(source, "uav/#", 8)
        advertised(source, "uav/image", 10)
        boston = nodes["boston"]
        wait_until(lambda: "uav/image" in boston.accord("admission").output)
        reasons, properties = reader.subscribe("uav/+")
        assert [each.value for each in reasons] == [0x97]
        said = facts(properties)
        assert 0 < float(said.pop("free")) <= 100_000  # what nodes say to each other counts, too
        assert said == {
            "node": "denver",
            "resource": "bandwidth",
            "of": "link boston",
            "asked": "144000",
        }
        reader.subscribed("uav/position")
        shown = boston.accord("admission").output
        assert "uav/# 18/s 2 8/s by 1" in " ".join(shown.split())
        assert "node denver lacks bandwidth of link boston: 144 kbit/s asked" in shown
        asked = boston.accord("admission", "check", "uav/image")
        assert asked.exit_code == 1
        assert "No: node denver lacks bandwidth of link boston" in asked.output
        status = json.loads(boston.accord("admission", "--json").stdout)
        assert status["decided"]["refused"] >= 1
        reader.unsubscribe("uav/position")
        wait_until(lambda: boston.accord("admission", "check", "uav/position").exit_code == 0)
