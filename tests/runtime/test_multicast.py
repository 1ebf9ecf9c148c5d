"""Nodes in one process that are in a real multicast group, on the loopback interface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from benchmarks.ports import free_port
from tests.brokers import HOST
from tests.runtime.test_overlay_service import ANYWHERE, KEY, link_of, net_of, until, url_of

import accord
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import MULTICAST, OverlayOptions, TransportRule
from accord.core.router.rights import EVERYTHING
from accord.runtime.addresses import ListenError, SocketAddress
from accord.runtime.multicast_links import MulticastOptions, MulticastStatus
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.overlay_service import NetOptions
from accord.runtime.transports.udp import open_multicast
from accord.runtime.users import Users

GROUP = "239.255.77.3"
RULE = TransportRule(("video/#",), MULTICAST)


def multicast(port: int, interface: str = HOST) -> MulticastOptions:
    return MulticastOptions(group=SocketAddress(GROUP, port), interface=interface)


def node(
    name: str, *neighbours: SocketAddress, group: MulticastOptions | None, key: bytes = KEY,
    template: str = "routed",
) -> Node:  # fmt: skip
    options = NetOptions(
        listen=(ANYWHERE,),
        neighbours=neighbours,
        key=key,
        overlay=OverlayOptions(ping_us=50_000),
        channels=(ChannelDefinition("video/#", template=template),),
        transport_rules=(RULE,),
        multicast=group,
    )
    settings = Settings(
        name=name, listeners=(ListenerSettings(ANYWHERE),), statistics_s=0, net=options
    )
    return Node(settings, Users(anonymous=EVERYTHING))


def group_of(one: Node) -> MulticastStatus:
    found = net_of(one).group()
    assert found is not None
    return found


def run(test: Callable[[AsyncExitStack], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            await test(stack)

    asyncio.run(main())


@pytest.mark.parametrize("template", ["routed", "single_source"])
def test_one_datagram_serves_all_neighbours_of_the_group(template: str) -> None:
    async def test(stack: AsyncExitStack) -> None:
        port = free_port()
        a = await stack.enter_async_context(node("a", group=multicast(port), template=template))
        others = [
            await stack.enter_async_context(
                node(name, link_of(a), group=in_group, template=template)
            )
            for name, in_group in (
                ("b", multicast(port)), ("c", multicast(port)), ("d", multicast(port)), ("e", None)
            )
        ]  # fmt: skip
        publisher = await stack.enter_async_context(accord.connect(url_of(a)))
        streams = []
        for each in others:
            session = await stack.enter_async_context(accord.connect(url_of(each)))
            subscription = session.subscribe("video/#", qos=0)
            streams.append(await stack.enter_async_context(subscription))
        await until(lambda: len(net_of(a).bridge.remote_interests.nodes) == 4)
        await until(lambda: sorted(group_of(a).reached) == ["b", "c", "d"])

        async def show(number: int) -> None:
            await publisher.publish("video/x", str(number), qos=0)
            for stream in streams:
                assert (await anext(stream)).payload == str(number).encode()

        for number in range(3):
            await show(number)  # routes are established, trees are known
        before, links_before = group_of(a).sent.messages, sent_by_links(a)
        for number in range(20):
            await show(number)
        assert group_of(a).sent.messages - before == 20, "one for three neighbours"
        assert sent_by_links(a) - links_before == 20, "and one for who is not in the group"
        for each in others[:3]:
            assert group_of(each).received.messages >= 20
        assert net_of(others[3]).group() is None
        (carried,) = net_of(a).status().transports
        assert carried.transport == "multicast"
        before = group_of(a).sent.messages
        await publisher.publish("video/x", b"sure", qos=1)
        for stream in streams:
            assert (await anext(stream)).payload == b"sure"
        if template == "routed":
            assert group_of(a).sent.messages == before, "it must not be lost"

    run(test)


def sent_by_links(one: Node) -> int:
    return sum(
        link.traffic.sent.data.messages + link.traffic.sent.datagrams.messages
        for link in net_of(one).links()
    )


def test_forged_and_repeated_datagrams_do_no_harm() -> None:
    async def test(stack: AsyncExitStack) -> None:
        port = free_port()
        recorded: list[bytes] = []
        spy = await open_multicast(GROUP, port, interface=HOST)
        spy.receive = lambda data, _: recorded.append(data)
        stack.callback(spy.close)
        a = await stack.enter_async_context(node("a", group=multicast(port)))
        b = await stack.enter_async_context(node("b", link_of(a), group=multicast(port)))
        c = await stack.enter_async_context(node("c", link_of(a), group=multicast(port)))
        publisher = await stack.enter_async_context(accord.connect(url_of(a)))
        streams = []
        for each in (b, c):
            session = await stack.enter_async_context(accord.connect(url_of(each)))
            streams.append(await stack.enter_async_context(session.subscribe("video/#", qos=0)))
        await until(lambda: len(net_of(a).bridge.remote_interests.nodes) == 2)
        await until(lambda: sorted(group_of(a).reached) == ["b", "c"])
        while group_of(a).sent.messages < 5:
            await publisher.publish("video/x", b"once", qos=0)
            for stream in streams:
                await anext(stream)
        repeated, refused = group_of(b).repeated, group_of(b).refused
        again = list(recorded)
        for datagram in again:
            spy.send(datagram)
        for noise in (b"x", b"x" * 8, bytes(100), again[0][:-1], again[0] + b"x"):
            spy.send(noise)
        await until(lambda: group_of(b).refused - refused >= 5)
        assert group_of(b).repeated - repeated >= 5
        await publisher.publish("video/x", b"last", qos=1)
        for stream in streams:
            assert (await anext(stream)).payload == b"last"
        assert net_of(a).overlay.used_neighbours() == ["b", "c"]

    run(test)


def test_who_does_not_hear_the_group_is_served_by_its_link() -> None:
    """Its beacons come through, but nobody hears those of the other: a group on another port."""

    async def test(stack: AsyncExitStack) -> None:
        a = await stack.enter_async_context(node("a", group=multicast(free_port())))
        b = await stack.enter_async_context(node("b", link_of(a), group=multicast(free_port())))
        publisher = await stack.enter_async_context(accord.connect(url_of(a)))
        session = await stack.enter_async_context(accord.connect(url_of(b)))
        stream = await stack.enter_async_context(session.subscribe("video/#", qos=0))
        await until(lambda: net_of(a).bridge.remote_interests.nodes)
        for number in range(5):
            await publisher.publish("video/x", str(number), qos=0)
            assert (await anext(stream)).payload == str(number).encode()
        assert group_of(a).reached == ()
        assert group_of(a).sent.messages == 0

    run(test)


def test_a_group_that_can_t_be_joined() -> None:
    async def test(stack: AsyncExitStack) -> None:
        options = multicast(free_port(), "192.0.2.1")
        with pytest.raises(ListenError, match=r"can't listen on 239.*no such device"):
            await stack.enter_async_context(node("a", group=options))

    run(test)
