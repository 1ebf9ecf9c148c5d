"""Negotiated quality at a node in this process, over real sockets, with several libraries."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions
from tests.scenarios.properties import properties_of

import accord
from accord.core.mqtt.codes import Reason
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.quality.mechanisms import Direction
from accord.core.quality.messages import ApplyMechanism, MechanismStep, WithdrawMechanism
from accord.core.quality.properties import QualityError
from accord.core.router.rights import EVERYTHING, Rights
from accord.core.tiers.channel_cache import ChannelCache
from accord.core.tiers.messages import ChannelLookupReply, TemplateTraits, TierOptions
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.overlay_service import NetOptions, OverlayService
from accord.runtime.quality import QualityOptions, order_by
from accord.runtime.users import Users

V5 = MQTTProtocolVersion.MQTTv5
V311 = MQTTProtocolVersion.MQTTv311
EXPECTATIONS = "$accord/expectations"
CAPABILITIES = "$accord/capabilities"
PROPERTIES = "$accord/properties"
ADVICE = "$accord/advice"


def a_node(data: Path | None = None, **more: Any) -> Node:
    settings = Settings(
        name="here",
        listeners=(ListenerSettings(SocketAddress("127.0.0.1", 0)),),
        data=data,
        statistics_s=0,
        **more,
    )
    return Node(settings, Users(anonymous=EVERYTHING))


class Paho:
    """A client of another library; what it hears waits in queues."""

    def __init__(self, node: Node, name: str, version: MQTTProtocolVersion = V5) -> None:
        self.heard: Queue[tuple[str, Any]] = Queue()
        self.grants: Queue[tuple[list[int], str]] = Queue()
        self.connected: Queue[int] = Queue()
        self.is_v5 = version == V5
        self._client = Client(CallbackAPIVersion.VERSION2, name, protocol=version)
        self._client.on_connect = lambda *a: self.connected.put(a[3].value)
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = lambda _c, _u, m: self.heard.put((m.topic, m.payload))
        address = node.addresses[0]
        self._place = (address.host, address.port)

    def __enter__(self) -> Paho:
        self._client.connect(*self._place)
        self._client.loop_start()
        assert self.connected.get(timeout=20) == 0
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def subscribe(self, pattern: str, *expect: object, qos: int = 1) -> tuple[list[int], str]:
        """The reasons and the explanation of the SUBACK."""
        if not self.is_v5:
            self._client.subscribe(pattern, qos)
            return self.grants.get(timeout=20)
        texts = [each if isinstance(each, str) else json.dumps(each) for each in expect]
        user = [("expect", text) for text in texts]
        properties = properties_of(PacketTypes.SUBSCRIBE, UserProperty=user) if user else None
        self._client.subscribe(pattern, options=SubscribeOptions(qos), properties=properties)
        return self.grants.get(timeout=20)

    def ask(self, topic: str, **request: object) -> dict[str, Any]:
        """A request and its answer."""
        if self.is_v5:
            properties = properties_of(PacketTypes.PUBLISH, ResponseTopic="answers")
            self._client.publish(topic, json.dumps(request), 1, properties=properties)
            return self.next("answers")
        self._client.publish(topic, json.dumps(request), 1)
        return self.next(topic)

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 1) -> None:
        self._client.publish(topic, payload, qos).wait_for_publish(20)

    def next(self, topic: str) -> dict[str, Any]:
        """What is heard next there; what was heard elsewhere stays."""
        others = []
        try:
            while True:
                heard = self.heard.get(timeout=20)
                if heard[0] == topic:
                    found: dict[str, Any] = json.loads(heard[1])
                    return found
                others.append(heard)
        finally:
            for each in others:
                self.heard.put(each)

    def _on_subscribe(self, *arguments: Any) -> None:
        reasons, properties = arguments[3], arguments[4]
        explanation = getattr(properties, "ReasonString", "") if properties else ""
        self.grants.put(([each.value for each in reasons], explanation))


def run(conversation: Callable[[Node], None], node: Node | None = None) -> None:
    """Clients on a thread of their own, beside the node."""

    async def both() -> None:
        async with node or a_node() as running, asyncio.timeout(60):
            await asyncio.to_thread(conversation, running)
            assert running.quality is not None
            running.quality.quality.check_invariants()

    asyncio.run(both())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


def test_a_subscription_with_an_expectation_and_a_publisher_that_is_advised() -> None:
    def conversation(node: Node) -> None:
        with Paho(node, "sensor") as sensor, Paho(node, "desk") as desk:
            sensor.subscribe("answers")
            sensor.subscribe(ADVICE)
            desk.subscribe(EXPECTATIONS)
            rate = {"range": [1, 50], "current": 2, "cost": {"base": 0, "slope": 0.5}}
            said = sensor.ask(
                CAPABILITIES, do="register", channel="lab/t", capabilities={"rate": rate}
            )
            assert said == {"ok": True}
            granted = desk.subscribe("lab/+", {"rate": [5, 10], "utility": 3, "id": "often"})
            assert granted == ([1], "")
            advice = sensor.next(ADVICE)
            assert advice["kind"] == "advice"
            assert (advice["channel"], advice["property"]) == ("lab/t", "rate")
            assert 5 <= advice["target"] <= 10
            state = desk.next(EXPECTATIONS)
            assert (state["expectation"], state["channel"]) == ("often", "lab/+")
            assert (state["state"], state["decision"]) == ("satisfiable", "adapting")
            assert state["reasons"] == [{"property": "rate", "now": 2}]
            current = {"rate": advice["target"]}
            assert sensor.ask(CAPABILITIES, do="update", channel="lab/t", current=current)["ok"]
            assert desk.next(EXPECTATIONS)["state"] == "satisfied"
            usage = sensor.next(ADVICE)
            assert usage == {
                "kind": "usage", "channel": "lab/t", "expectations": 1, "utility": 3,
            }  # fmt: skip

    run(conversation)


def test_a_client_of_an_older_version_asks() -> None:
    def conversation(node: Node) -> None:
        with Paho(node, "desk", V311) as desk:
            desk.subscribe(EXPECTATIONS)
            desk.subscribe("lab/t")
            said = desk.ask(EXPECTATIONS, do="register", channel="lab/t", expect={"rate": 5})
            # The state of a new expectation is told first, then what was asked is answered.
            assert (said["expectation"], said["state"]) == ("desk/lab/t#1", "unsatisfied")
            answered = desk.next(EXPECTATIONS)
            assert answered["ok"]
            assert answered["expectations"][0]["expect"]["rate"] == [5, None]

    run(conversation)


def test_answers_are_for_who_asked_only() -> None:
    def conversation(node: Node) -> None:
        with Paho(node, "desk") as desk, Paho(node, "other") as other:
            desk.subscribe("answers")
            other.subscribe("#")
            assert desk.ask(EXPECTATIONS, do="list") == {"ok": True, "expectations": []}
            desk.publish("after", b"{}")
            assert other.heard.get(timeout=20)[0] == "after"

    run(conversation)


def test_expectations_of_many_clients_that_come_and_go() -> None:
    async def test() -> None:
        async with asyncio.timeout(60), a_node() as node:
            assert node.quality is not None
            quality = node.quality.quality
            url = f"mqtt://{node.addresses[0]}"
            expect = [accord.Expectation(rate=5, utility=each) for each in (1, 2)]
            for _ in range(2):
                async with accord.connect(url) as session, contextlib.AsyncExitStack() as stack:
                    for number in range(100):
                        events = session.subscribe(f"lab/{number}", expect=expect)
                        await stack.enter_async_context(events)
                    assert len(quality.negotiation.expectations) == 200
                await until(
                    lambda: not quality.clients and len(quality.negotiation.expectations) == 0
                )
            quality.check_invariants()

    asyncio.run(test())


def test_definitions_are_kept_and_configured_ones_read(tmp_path: Path) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "a.properties").write_text("name = colour\nlevels = grey < full\nbetter = higher\n")
    options = QualityOptions(properties=shipped)

    def define(node: Node) -> None:
        with Paho(node, "desk") as desk:
            desk.subscribe("answers")
            text = "name = depth\nrange = 0..100\nbetter = lower\nunit = m\n"
            assert desk.ask(PROPERTIES, do="define", text=text)["properties"] == ["depth"]

    def look(node: Node) -> None:
        with Paho(node, "desk") as desk:
            desk.subscribe("answers")
            found = {each["name"]: each for each in desk.ask(PROPERTIES, do="list")["properties"]}
            assert found["colour"]["levels"] == ["grey", "full"]
            assert (found["depth"]["range"], found["depth"]["unit"]) == ([0, 100], "m")

    run(define, a_node(tmp_path / "data", quality=options))
    run(look, a_node(tmp_path / "data", quality=options))
    (shipped / "b.properties").write_text("name = x\nlevels = a\n")
    with pytest.raises(QualityError, match=r"b\.properties, line 1: 'x': expected better"):
        run(look, a_node(quality=options))
    with pytest.raises(QualityError, match="expected a folder"):
        run(look, a_node(quality=QualityOptions(properties=tmp_path / "nowhere")))


def test_a_damaged_file_of_definitions_is_told_and_left(tmp_path: Path) -> None:
    folder = tmp_path / "properties"
    folder.mkdir()
    (folder / "defined.properties").write_text("nonsense")
    run(lambda _: None, a_node(tmp_path))
    assert (folder / "defined.properties").read_text() == "nonsense"


def test_without_a_right_to_it_nobody_expects_or_offers() -> None:
    rights = Rights(publish=("mine/#",), subscribe=("mine/#", "answers"))
    node = Node(a_node().settings, Users(anonymous=rights))

    def conversation(running: Node) -> None:
        with Paho(running, "desk") as desk:
            desk.subscribe("answers")
            assert desk.subscribe("lab/t", {"rate": 5})[0] == [Reason.NOT_AUTHORIZED]
            assert desk.subscribe(EXPECTATIONS)[0] == [1]
            assert desk.subscribe(ADVICE)[0] == [1]
            rate = {"rate": {"range": [1, 5], "current": 1}}
            for channel, is_allowed in (("lab/t", False), ("mine/t", True)):
                said = desk.ask(CAPABILITIES, do="register", channel=channel, capabilities=rate)
                assert said["ok"] is is_allowed
            assert not desk.ask(PROPERTIES, do="define", text="name = a")["ok"]

    run(conversation, node)


def test_a_path_is_added_and_withdrawn() -> None:
    defined = ChannelDefinition(name="lab/u", max_delay_us=50_000)
    net = NetOptions(listen=(SocketAddress("127.0.0.1", 0),), channels=(defined,))

    async def test() -> None:
        async with a_node(net=net) as node:
            assert node.quality is not None
            assert isinstance(node.net, OverlayService)
            quality, registry = node.quality.quality, node.net.overlay.directory
            for number, channel in enumerate(("lab/t", "lab/u"), start=1):
                for _ in range(2):  # the same again is the same
                    quality.handle_notices(
                        [
                            ApplyMechanism(
                                number, MechanismStep.ADD_PATH, "p", channel, "reliability", 99.0
                            )
                        ]
                    )
                found = registry.look_up(channel)
                assert found is not None
                assert (found.name, found.paths) == (channel, 2)
                assert found.max_delay_us == (50_000 if channel == "lab/u" else 0)
            quality.handle_notices(
                [WithdrawMechanism(1), WithdrawMechanism(2), WithdrawMechanism(3)]
            )
            assert registry.look_up("lab/t") is None
            again = registry.look_up("lab/u")
            assert again is not None
            assert again.paths == 1

    asyncio.run(test())


def test_paths_that_reactions_add_are_not_kept_and_all_go_again(tmp_path: Path) -> None:
    net = NetOptions(listen=(SocketAddress("127.0.0.1", 0),))

    def paths_of(node: Node, channel: str) -> int:
        assert isinstance(node.net, OverlayService)
        found = node.net.overlay.directory.get(channel)
        return 0 if found is None else found.paths

    async def test() -> None:
        async with a_node(tmp_path, net=net) as node:
            assert node.quality is not None
            assert isinstance(node.net, OverlayService)
            quality = node.quality.quality
            node.net.create_channel(ChannelDefinition(name="kept", paths=2), replace=False)
            for number, channel in enumerate(("lab/t", "lab/t", "kept"), start=1):
                quality.handle_notices(
                    [
                        ApplyMechanism(
                            number, MechanismStep.ADD_PATH, "p", channel, "reliability", 99.0
                        )
                    ]
                )
            assert (paths_of(node, "lab/t"), paths_of(node, "kept")) == (3, 3)
            quality.handle_notices([WithdrawMechanism(1)])
            assert paths_of(node, "lab/t") == 2
            node.net.create_channel(ChannelDefinition(name="other"), replace=False)
        async with a_node(tmp_path, net=net) as node:
            assert (paths_of(node, "lab/t"), paths_of(node, "kept")) == (0, 2)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("definition", "order"),
    [
        (ChannelDefinition(name="lab/t"), "publisher"),
        (ChannelDefinition(name="lab/t", paths=2), "none"),
        (ChannelDefinition(name="lab/t", template="unreliable"), "none"),
        (ChannelDefinition(name="lab/t", template="reliable"), "publisher"),
        (ChannelDefinition(name="lab/t", template="total_order"), "total"),
    ],
)
def test_the_order_of_events_is_what_the_template_makes_of_it(
    definition: ChannelDefinition, order: str
) -> None:
    async def test() -> None:
        net = NetOptions(listen=(SocketAddress("127.0.0.1", 0),), channels=(definition,))
        async with a_node(net=net) as node:
            assert node.quality is not None
            assert node.quality.quality.monitor.order_of("lab/t") == order

    asyncio.run(test())


def test_a_node_offers_only_what_it_can_do() -> None:
    async def test(net: NetOptions) -> list[str]:
        async with a_node(net=net) as node:
            assert node.quality is not None
            negotiation = node.quality.quality.negotiation
            reliability = negotiation.registry.get("reliability")
            return [each.name for each in negotiation.repository.of(reliability, Direction.UP)]

    assert asyncio.run(test(NetOptions())) == []
    linked = NetOptions(listen=(SocketAddress("127.0.0.1", 0),))
    assert asyncio.run(test(linked)) == ["second-path"]


@pytest.mark.parametrize(
    ("template", "paths", "order"),
    [
        ("routed", 1, "publisher"),
        ("routed", 2, "none"),
        ("reliable", 1, "publisher"),
        ("unreliable", 1, "none"),
        ("total_order", 1, "total"),
    ],
)
def test_a_secondary_node_knows_the_order_of_a_channel(
    template: str, paths: int, order: str
) -> None:
    lookups = ChannelCache(TierOptions())
    assert order_by(lookups, "room") == "publisher"  # as long as nothing is known
    lookups.on_directory_version("a", 1, 1, 0)
    traits = {
        "routed": TemplateTraits(),
        "unreliable": TemplateTraits(),
        "reliable": TemplateTraits(keeps_order=True),
        "total_order": TemplateTraits(is_ordered=True, keeps_order=True),
    }
    defined = ChannelDefinition(name="room", template=template, paths=paths)
    lookups.on_reply(ChannelLookupReply(1, traits, (), ((defined, "a"),), "", is_last=True), 0)
    assert order_by(lookups, "room") == order
