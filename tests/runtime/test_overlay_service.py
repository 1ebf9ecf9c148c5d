"""Nodes in one process, linked over real sockets, with real clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.brokers import HOST

import accord
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.router.rights import CHANNELS as CHANNEL_REQUESTS
from accord.core.router.rights import EVERYTHING, Rights
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.overlay_service import CHANNELS, NetOptions, OverlayService
from accord.runtime.users import Users

KEY = b"a secret of all nodes"
ANYWHERE = SocketAddress(HOST, 0)


def node(
    name: str, *neighbours: SocketAddress, key: bytes = KEY, data: Path | None = None,
    channels: tuple[ChannelDefinition, ...] = (), is_secondary: bool = False,
) -> Node:  # fmt: skip
    options = NetOptions(
        listen=() if is_secondary else (ANYWHERE,),
        is_secondary=is_secondary,
        neighbours=neighbours,
        key=key,
        overlay=OverlayOptions(ping_us=50_000),
        channels=channels,
    )
    settings = Settings(
        name=name, listeners=(ListenerSettings(ANYWHERE),), statistics_s=0, net=options, data=data
    )
    return Node(settings, Users(anonymous=EVERYTHING))


def net_of(one: Node) -> OverlayService:
    assert isinstance(one.net, OverlayService)
    return one.net


def link_of(one: Node) -> SocketAddress:
    return net_of(one).addresses[0]


def url_of(one: Node) -> str:
    return f"mqtt://{one.addresses[0]}"


async def until(is_so: Callable[[], object]) -> None:
    """The test's time-out is the limit."""
    while not is_so():
        await asyncio.sleep(0.01)


async def in_two_nodes(
    scene: Callable[[Node, Node], Awaitable[None]], *channels: ChannelDefinition
) -> None:
    async with node("a", channels=channels) as a, node("b", link_of(a)) as b:
        await until(net_of(a).overlay.used_neighbours)
        await until(net_of(b).overlay.used_neighbours)
        await scene(a, b)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_clients_of_two_nodes_meet(qos: int) -> None:
    async def scene(a: Node, b: Node) -> None:
        async with (
            accord.connect(url_of(a)) as publisher,
            accord.connect(url_of(b)) as subscriber,
            subscriber.subscribe("uav/#", qos=qos, where="level > 5") as events,
        ):
            await until(lambda: net_of(a).bridge.remote_interests.nodes)
            for level in range(10):
                await publisher.publish("uav/x", str(level), qos=qos, level=level)
            got = [(await anext(events)).payload for _ in range(4)]
            assert got == [b"6", b"7", b"8", b"9"]

    asyncio.run(in_two_nodes(scene))


def test_channels_that_tolerate_loss_go_by_datagrams() -> None:
    definition = ChannelDefinition("loose/#", options={"datagrams": "true"})

    async def scene(a: Node, b: Node) -> None:
        async with (
            accord.connect(url_of(a)) as publisher,
            accord.connect(url_of(b)) as subscriber,
            subscriber.subscribe("loose/#", qos=0) as events,
        ):
            await until(lambda: net_of(a).bridge.remote_interests.nodes)
            # Datagrams are used once the other side has confirmed that it hears them.
            while not net_of(a).links()[0].traffic.sent.datagrams.messages:
                await publisher.publish("loose/x", b"", qos=0)
                await anext(events)

    asyncio.run(in_two_nodes(scene, definition))


def test_nodes_without_the_key_are_not_linked() -> None:
    async def main() -> None:
        async with node("a") as a, node("b", link_of(a), key=b"another secret, a wrong one") as b:
            await until(lambda: net_of(b).status().links_down)
            await until(lambda: net_of(b).status().links_down[0].problem)
            assert not net_of(a).overlay.used_neighbours()

    asyncio.run(main())


@pytest.mark.parametrize("is_secondary", [False, True])
def test_who_has_the_name_of_another_node_is_refused_and_that_is_seen(is_secondary: bool) -> None:
    async def scene(a: Node, b: Node) -> None:
        async with node("b", link_of(a), is_secondary=is_secondary) as other:
            assert other.net is not None
            await until(lambda: net_of(a).status().refused)
            await until(lambda: other.net.status().links_down)  # type: ignore[union-attr]
            (refused,) = net_of(a).status().refused
            assert refused.node == "b"
            assert ("backbone" if is_secondary else "alive") in refused.problem
            assert refused.remedy == "give each node a name of its own"
            assert net_of(a).overlay.used_neighbours() == ["b"]
            assert net_of(b).overlay.used_neighbours() == ["a"]

    asyncio.run(in_two_nodes(scene))


def test_former_options_of_channels_are_read_as_the_present_ones(tmp_path: Path) -> None:
    former = {"laggards": "wait", "patience_ms": "500", "persistent": "7d"}
    stored = [ChannelDefinition("chat", template="reliable", options=former)]
    (tmp_path / CHANNELS).write_bytes(msgspec.json.encode(stored))

    async def scene() -> None:
        async with node("a", data=tmp_path) as a:
            chat = net_of(a).overlay.directory.get("chat")
            assert chat is not None
            options = {"slow_members": "wait", "stall_timeout_ms": "500", "persistent": "7d"}
            assert chat.options == options

    asyncio.run(scene())


def test_channels_that_were_defined_are_there_after_a_restart(tmp_path: Path) -> None:
    definition = ChannelDefinition("uav/#", max_delay_us=200_000, paths=2)

    async def define() -> None:
        async with node("a", data=tmp_path) as a:
            assert net_of(a).create_channel(definition, replace=False) is None

    async def look() -> list[str]:
        async with node("a", data=tmp_path) as a:
            return [each.name for each in net_of(a).overlay.directory.all()]

    asyncio.run(define())
    assert asyncio.run(look()) == ["uav/#"]
    (tmp_path / CHANNELS).write_bytes(b'[["channel", "ua')
    assert asyncio.run(look()) == []


def test_the_configuration_can_be_changed_later(tmp_path: Path) -> None:
    one, other = (ChannelDefinition("uav/#", paths=paths) for paths in (2, 3))

    async def look(*said: ChannelDefinition) -> list[tuple[str, int]]:
        async with node("a", data=tmp_path, channels=said) as a:
            net_of(a).create_channel(ChannelDefinition("chat"), replace=True)
            return [(each.name, each.paths) for each in net_of(a).overlay.directory.all()]

    assert asyncio.run(look(one)) == [("chat", 1), ("uav/#", 2)]
    assert asyncio.run(look(other)) == [("chat", 1), ("uav/#", 3)]
    assert asyncio.run(look()) == [("chat", 1)]


def test_what_goes_up_from_a_secondary_node_may_be_wanted_somewhere() -> None:
    async def main() -> None:
        async with node("a") as a:
            options = NetOptions(neighbours=(link_of(a),), key=KEY, is_secondary=True)
            listeners = (ListenerSettings(ANYWHERE),)
            settings = Settings(name="x", listeners=listeners, statistics_s=0, net=options)
            async with (
                Node(settings, Users(anonymous=EVERYTHING)) as x,
                accord.connect(url_of(x)) as session,
            ):
                await until(lambda: not x.broker.router.traits("uav").is_ordered)  # it is known
                assert (await session.publish("uav", b"1", qos=1)).has_subscribers
                assert not (await session.publish("$uav", b"1", qos=1)).has_subscribers

    asyncio.run(main())


def test_who_may_not_define_channels_is_told() -> None:
    async def main() -> None:
        users = Users(anonymous=Rights(publish=("#",), subscribe=("#",)))
        async with (
            Node(node("a").settings, users) as a,
            accord.connect(url_of(a)) as session,
            session.subscribe("answers") as events,
        ):
            assert await session.channels() == ()
            with pytest.raises(
                accord.ChannelRefusedError, match=r"you may not use channels\.create"
            ):
                await session.create_channel("x")
            ask = msgspec.json.encode({"do": "delete", "name": "x"})
            await session.publish(CHANNEL_REQUESTS, ask, qos=0, response_topic="answers")
            assert msgspec.json.decode((await anext(events)).payload)["ok"] is False
            with pytest.raises(accord.RefusedError, match="that you are subscribed to"):
                await session.publish(CHANNEL_REQUESTS, ask, qos=1, response_topic="others")

    asyncio.run(main())


def test_a_template_that_is_not_installed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with node("a", channels=(ChannelDefinition("uav/#", template="telepathy"),)):
            pass

    asyncio.run(main())
    assert "channel: not usable for publishing" in caplog.text


def test_a_node_that_goes_is_not_needed_for_the_others() -> None:
    async def main() -> None:
        async with node("a") as a, node("c", link_of(a)) as c:
            async with node("b", link_of(a), link_of(c)):
                await until(lambda: len(net_of(a).overlay.used_neighbours()) == 2)
            await until(lambda: net_of(a).overlay.used_neighbours() == ["c"])
            async with (
                accord.connect(url_of(a)) as publisher,
                accord.connect(url_of(c)) as subscriber,
                subscriber.subscribe("uav") as events,
            ):
                await until(lambda: net_of(a).bridge.remote_interests.nodes)
                await publisher.publish("uav", b"still")
                assert (await anext(events)).payload == b"still"

    asyncio.run(main())
