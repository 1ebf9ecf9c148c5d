"""What fails over one event, client or part of a node costs others nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import pytest
from tests.runtime.test_overlay_service import in_two_nodes, net_of, node, until, url_of

import accord
from accord.core.channels.template import Context, Template
from accord.core.overlay.signalling import TransitEvent
from accord.runtime.fault_isolation import FAILED, FaultIsolation
from accord.runtime.logs import get_log
from accord.runtime.node import Node
from accord.runtime.server import MqttProtocol


class BrokenError(Exception):
    pass


def broken(*_: object) -> None:
    raise BrokenError


def test_each_kind_of_failure_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    containment = FaultIsolation(get_log("test"))
    for _ in range(3):
        containment.run("it failed", broken)
        containment.run("something else failed", broken)
    containment.run("nothing failed", lambda: None)
    assert containment.count == 6
    assert [each.message for each in caplog.records] == ["it failed", "something else failed"]


def test_an_event_that_can_not_be_handed_over_comes_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with node("a") as a, accord.connect(url_of(a)) as client:
            net = net_of(a)
            arrived = net.bridge.on_event

            def poisoned(event: TransitEvent) -> None:
                if event.payload == b"poison":
                    raise BrokenError
                arrived(event)

            net.bridge.on_event = poisoned  # type: ignore[method-assign]
            async with client.subscribe("uav") as events:
                for payload in (b"poison", b"poison", b"sane"):
                    net.overlay.deliveries.append(TransitEvent("b", 1, 1, (), "uav", payload))
                net.turn()
                assert not net.overlay.deliveries
                assert (await anext(events)).payload == b"sane"
                await client.publish("uav", b"local")
                assert (await anext(events)).payload == b"local"
            assert a.broker.context.counters.shed_causes.counts == {FAILED: 2}

    asyncio.run(scene())
    told = [each for each in caplog.records if each.message == "event: delivery failed"]
    assert len(told) == 1


def test_a_client_that_can_not_be_served_is_let_go_and_others_hear_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = MqttProtocol.write
    lines = []

    def write_or_fail(protocol: MqttProtocol, frames: list[bytes]) -> int:
        if protocol._connection in lines:
            raise BrokenError
        return write(protocol, frames)

    monkeypatch.setattr(MqttProtocol, "write", write_or_fail)

    async def scene() -> None:
        async with node("a") as a, AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(accord.connect(url_of(a), client_id=name))
                for name in ("one", "two", "three")
            ]
            subscribed = [
                await stack.enter_async_context(each.subscribe("uav")) for each in clients
            ]
            (line,) = [each for each in a.server.connections if each.client_id == "one"]
            lines.append(line)
            await clients[1].publish("uav", b"1")
            for events in subscribed[1:]:
                assert (await anext(events)).payload == b"1"
            await until(lambda: line not in a.server.connections)
            await until(lambda: len(a.server.connections) == 3)  # it is back

    asyncio.run(scene())


def test_a_part_of_the_node_that_fails_keeps_no_other_from_its_turn() -> None:
    async def scene() -> None:
        async with node("a") as a, accord.connect(url_of(a)) as client:
            assert a.quality is not None
            a.quality.turn = broken  # type: ignore[method-assign]
            async with client.subscribe("uav") as events:
                await client.publish("uav", b"1")
                assert (await anext(events)).payload == b"1"

    asyncio.run(scene())


class Failing(Template):
    def on_published(self, *_: object) -> None:
        raise BrokenError


def test_a_template_that_fails_is_refused_from_then_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: dict[str, type[Template] | None] = {"failing": Failing, "unmade": Unmade, "gone": None}
    loads = {name: partial(made.get, name) for name in made}
    monkeypatch.setattr("accord.runtime.overlay_service.installed_templates", lambda: loads)

    async def scene(a: Node, b: Node) -> None:
        async with accord.connect(url_of(a)) as publisher, accord.connect(url_of(b)) as other:
            await publisher.create_channel("uav", template="failing")
            async with publisher.subscribe("uav") as events, other.subscribe("uav"):
                await until(lambda: net_of(a).bridge.remote_interests.nodes)
                await publisher.publish("uav", b"1")
                assert (await anext(events)).payload == b"1"
                for _ in range(2):
                    with pytest.raises(accord.RefusedError, match="failing of uav failed at a"):
                        await publisher.publish("uav", b"2")
            (channel,) = await publisher.channels()
            assert channel.missing_at == ("a",)
            for name in ("unmade", "gone"):
                with pytest.raises(accord.ChannelRefusedError, match=f"{name} failed at a"):
                    await publisher.create_channel("other", template=name)

    asyncio.run(in_two_nodes(scene))
    assert [each.message for each in caplog.records].count("template: failed") == 2


class Unmade(Template):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        raise BrokenError
