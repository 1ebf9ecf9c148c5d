"""Nodes as processes, and the MQTT clients that people have: one answers, another hears it."""

from __future__ import annotations

import asyncio
import json
import queue
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

import accord
from tests.brokers import HOST, accord_only, start_accord
from tests.net_nodes import RunningNode, start_nodes, wait_until
from tests.scenarios.test_mosquitto_clients import Listener
from tests.scenarios.test_net import until

pytestmark = accord_only

FEEDBACK: Final = "$accord/feedback"
WAIT_S: Final = 60.0
has_mosquitto: Final = pytest.mark.skipif(
    shutil.which("mosquitto_rr") is None, reason="mosquitto's clients are not installed"
)


def said(message: paho.MQTTMessage) -> Any:
    """Its properties: paho adds what there is to them."""
    return message.properties


class Client:
    """A paho client that knows nothing of Accord."""

    def __init__(self, node: RunningNode, name: str) -> None:
        self.heard: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.acknowledged: queue.Queue[ReasonCode] = queue.Queue()
        self._subscribed: queue.Queue[None] = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
        self.client.on_message = lambda _client, _data, message: self.heard.put(message)
        self.client.on_publish = lambda _client, _data, _id, reason, _said: self.acknowledged.put(
            reason
        )
        self.client.on_subscribe = lambda *_: self._subscribed.put(None)
        self.client.connect(HOST, node.broker.port)
        self.client.loop_start()

    def subscribe(self, *patterns: str) -> None:
        for pattern in patterns:
            self.client.subscribe(pattern, qos=1)
            self._subscribed.get(timeout=WAIT_S)

    def publish(self, topic: str, payload: bytes, **properties: Any) -> ReasonCode:
        packed = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        for name, value in properties.items():
            if value is not None:
                setattr(packed, name, value)
        self.client.publish(topic, payload, qos=1, properties=packed)
        return self.acknowledged.get(timeout=WAIT_S)

    def hear(self) -> paho.MQTTMessage:
        return self.heard.get(timeout=WAIT_S)

    def answer(self, message: paho.MQTTMessage, payload: bytes) -> ReasonCode:
        """As MQTT 5 says: to the response topic, with the correlation data."""
        properties = said(message)
        correlation = getattr(properties, "CorrelationData", None)
        return self.publish(properties.ResponseTopic, payload, CorrelationData=correlation)


@contextmanager
def client(node: RunningNode, name: str) -> Iterator[Client]:
    made = Client(node, name)
    try:
        yield made
    finally:
        made.client.disconnect()
        made.client.loop_stop()


def test_plain_clients_answer_each_other_across_nodes() -> None:
    with (
        start_nodes({"a": [], "b": ["a"]}) as nodes,
        client(nodes["a"], "camera") as camera,
        client(nodes["b"], "desk") as desk,
    ):
        camera.subscribe(FEEDBACK)
        desk.subscribe("uav/#", FEEDBACK)
        wait_until(
            lambda: any(each.name == "b" and each.interests for each in nodes["a"].status().nodes)
        )
        camera.publish("uav/x", b"image", ResponseTopic=FEEDBACK, CorrelationData=b"42")
        event = desk.hear()
        assert said(event).CorrelationData == b"42"
        assert not desk.answer(event, b"seen").is_failure
        answer = camera.hear()
        assert (answer.topic, answer.payload) == (FEEDBACK, b"seen")
        assert said(answer).CorrelationData == b"42"
        facts = dict(said(answer).UserProperty)
        assert (facts["accord-publisher"], facts["accord-node"]) == ("desk", "b")
        assert facts["accord-channel"] == "uav/x"
        assert not camera.answer(answer, b"thanks").is_failure
        thanks = desk.hear()
        assert (thanks.payload, said(thanks).CorrelationData) == (b"thanks", b"42")
        _forge(desk, said(event).ResponseTopic, nodes)
        desk.answer(thanks, b"still here")
        assert camera.hear().payload == b"still here"
        why = nodes["a"].accord("why", facts["accord-event"], "--json")
        assert why.exit_code == 0, why.stderr


def _forge(desk: Client, topic: str, nodes: dict[str, RunningNode]) -> None:
    """Truncated it is refused at once; altered where it would have been made."""
    assert desk.publish(topic[:-10], b"cut").is_failure
    altered = topic[:-10] + ("A" if topic[-10] != "A" else "B") + topic[-9:]
    assert not desk.publish(altered, b"forged").is_failure

    def is_counted() -> bool:
        status = nodes["a"].accord("status", "--json")
        assert status.exit_code == 0, status.stderr
        counted: dict[str, int] = json.loads(status.stdout)["statistics"]["shed"]["causes"]
        return counted.get("forged receipt") == 1

    wait_until(is_counted)


def test_the_python_client_across_three_nodes() -> None:
    with start_nodes({"a": [], "b": ["a"], "c": ["b"]}, '[channels."uav/#"]\npaths = 1\n') as nodes:
        asyncio.run(_dialogue(nodes["a"], nodes["c"]))


async def _dialogue(a: RunningNode, c: RunningNode) -> None:
    async with (
        accord.connect(a.url, client_id="camera") as camera,
        accord.connect(c.url, client_id="desk") as desk,
        desk.subscribe("uav/#") as events,
        camera.feedback() as answers,
        desk.feedback() as back,
    ):
        await until(a, "c", 1)
        for number in range(20):
            await camera.publish("uav/x", str(number), feedback=True)
            event = await anext(events)
            await event.feedback(f"seen {event.text}")
            answer = await anext(answers)
            assert answer.text == f"seen {number}"
            await answer.feedback(f"thanks {number}")
            assert (await anext(back)).text == f"thanks {number}"


def test_a_receipt_outlives_a_killed_node(tmp_path: Path) -> None:
    """Its durable session, too: the answer waits there for the source."""
    with start_accord(tmp_path, is_killed=True) as broker:
        topic = asyncio.run(_publish(f"mqtt://{HOST}:{broker.port}"))
    with start_accord(tmp_path) as broker:
        assert asyncio.run(_answer(f"mqtt://{HOST}:{broker.port}", topic)) == b"seen"


async def _publish(url: str) -> str:
    async with (
        accord.connect(url, client_id="camera", clean_start=False) as camera,
        camera.feedback(keep=True),
        camera.subscribe("uav/#") as events,
    ):
        await camera.publish("uav/x", feedback=True)
        topic = (await anext(events)).properties.response_topic
        assert topic is not None
        return topic


async def _answer(url: str, topic: str) -> bytes:
    async with accord.connect(url) as desk:
        await desk.publish(topic, b"seen")
    async with (
        accord.connect(url, client_id="camera", clean_start=False) as camera,
        camera.feedback() as answers,
    ):
        return (await anext(answers)).payload


@has_mosquitto
def test_from_the_command_line() -> None:
    """mosquitto_rr asks and prints the answer, mosquitto_sub and mosquitto_pub give it."""
    with start_accord() as broker:
        at = ["-h", HOST, "-p", str(broker.port), "-V", "mqttv5"]
        wait = ["-W", str(int(WAIT_S))]
        receiver = Listener(
            ["mosquitto_sub", *at, "-t", "uav/#", "-C", "1", *wait, "-F", ">%R %D %p"]
        )
        try:
            receiver.wait_until_subscribed()
            asking = ["mosquitto_rr", *at, "-t", "uav/x", "-e", FEEDBACK, "-m", "image", *wait]
            asking += ["-D", "publish", "correlation-data", "42"]
            source = subprocess.Popen(asking, stdout=subprocess.PIPE, text=True)
            try:
                topic, correlation, payload = receiver.printed()[0].split(" ")
                assert (correlation, payload) == ("42", "image")
                answering = ["mosquitto_pub", *at, "-q", "1", "-t", topic, "-m", "seen"]
                subprocess.run(answering, timeout=WAIT_S, check=True)
                output, _ = source.communicate(timeout=WAIT_S)
            finally:
                source.kill()
                source.wait()
        finally:
            receiver.kill()
    assert output.strip() == "seen"
