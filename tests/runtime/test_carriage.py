"""A node's own choice of what its channels go by."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.runtime.test_overlay_service import ANYWHERE, KEY, link_of, net_of, until, url_of

import accord
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import UDP, OverlayOptions, TransportRule
from accord.core.router.rights import EVERYTHING
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.overlay_service import NetOptions
from accord.runtime.users import Users


def node(
    name: str, *neighbours: SocketAddress, rules: tuple[TransportRule, ...] = (),
    channels: tuple[ChannelDefinition, ...] = (),
) -> Node:  # fmt: skip
    options = NetOptions(
        listen=(ANYWHERE,),
        neighbours=neighbours,
        key=KEY,
        overlay=OverlayOptions(ping_us=50_000),
        channels=channels,
        transport_rules=rules,
    )
    settings = Settings(
        name=name, listeners=(ListenerSettings(ANYWHERE),), statistics_s=0, net=options
    )
    return Node(settings, Users(anonymous=EVERYTHING))


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(main())


def datagrams(one: Node) -> int:
    return net_of(one).links()[0].traffic.sent.datagrams.messages


def test_only_the_node_that_says_so_sends_datagrams() -> None:
    rule = TransportRule(("video/#",), UDP)

    async def test() -> None:
        async with (
            node("a", rules=(rule,)) as a,
            node("b", link_of(a)) as b,
            accord.connect(url_of(a)) as at_a,
            accord.connect(url_of(b)) as at_b,
            at_a.subscribe("video/#", qos=1) as to_a,
            at_b.subscribe("video/#", qos=1) as to_b,
        ):
            await until(lambda: net_of(a).bridge.remote_interests.nodes)
            await until(lambda: net_of(b).bridge.remote_interests.nodes)
            while not datagrams(a):
                await at_a.publish("video/x", b"frame", qos=0)
                await anext(to_a)
                await anext(to_b)
                await at_b.publish("video/y", b"frame", qos=0)
                await anext(to_a)
                await anext(to_b)
            assert datagrams(b) == 0
            before = datagrams(a)
            for _ in range(5):
                await at_a.publish("video/x", b"order", qos=1)
                await anext(to_b)
            assert datagrams(a) == before, "they must not be lost"
            (carried,) = net_of(a).status().transports
            assert (carried.channels, carried.transport) == (("video/#",), "udp")
            assert carried.copies >= before
            assert carried.kept == 5
            assert net_of(b).status().transports == ()

    run(test)


def test_a_template_that_repairs_may_use_datagrams_whatever_the_qos() -> None:
    rule = TransportRule(("log/#",), UDP)
    definition = ChannelDefinition("log/#", template="reliable")

    async def test() -> None:
        async with (
            node("a", rules=(rule,), channels=(definition,)) as a,
            node("b", link_of(a)) as b,
            accord.connect(url_of(a)) as publisher,
            accord.connect(url_of(b)) as subscriber,
            subscriber.subscribe("log/#", qos=1) as events,
        ):
            await until(lambda: net_of(a).bridge.remote_interests.nodes)
            number = 0
            while datagrams(a) < 20:
                await publisher.publish("log/x", str(number), qos=1)
                assert (await anext(events)).payload == str(number).encode()
                number += 1
            (carried,) = net_of(a).status().transports
            assert carried.kept == 0

    run(test)
