"""Subscriptions at several servers at the same time: each event once, whichever server fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

import accord
from accord.client.address import Address
from accord.client.session import Session
from accord.client.subscription import MirrorDedup, first_of
from accord.client.transport import Stream, transport_with
from accord.core.mqtt.packets import Publish
from accord.core.mqtt.properties import EVENT, NODE, Properties
from accord.testing import MemoryNode


class Site:
    """Nodes that are not linked: a publisher at each says what the network would bring there."""

    def __init__(self, **nodes: MemoryNode) -> None:
        self.nodes = nodes
        self.there = dict(nodes)

    async def transport(self, address: Address) -> Stream:
        if address.host not in self.there:
            raise OSError("gone")
        return await self.there[address.host].connect(address)

    def fail(self, name: str) -> None:
        self.there.pop(name).break_connections()

    def mirrored(
        self, names: list[str], client_id: str = ""
    ) -> AbstractAsyncContextManager[Session]:
        urls = [f"mqtt://{each}" for each in names]
        return accord.connect(urls, mirrored=True, client_id=client_id, transport=self.transport)


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    async with MemoryNode(name="one") as one, MemoryNode(name="other") as other:
        yield Site(one=one, other=other)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.01)


def subscribed(node: MemoryNode) -> bool:
    return any(session.subscriptions for session in node.broker.sessions.values())


def copy_of(node: str, event: str) -> Publish:
    return Publish("a", b"", properties=Properties(user=((EVENT, event), (NODE, node))))


def test_the_first_copy_counts_and_what_has_no_name_is_always_that() -> None:
    copies = MirrorDedup(most=2)
    assert copies.is_first(copy_of("seattle", "A"))
    assert copies.is_first(copy_of("denver", "A")), "another node's"
    assert not copies.is_first(copy_of("seattle", "A"))
    assert copies.is_first(Publish("a", b""))
    assert copies.is_first(Publish("a", b""))
    assert copies.is_first(copy_of("seattle", "B"))
    assert copies.is_first(copy_of("seattle", "A")), "so far behind that it was forgotten"
    assert copies.dropped == 1


def test_it_goes_on_at_whichever_server_is_there() -> None:
    async def scene() -> None:
        async with site() as there, there.mirrored(["one", "other"], "ada") as session:
            async with session.subscribe("a/#") as events:
                await until(lambda: all(subscribed(each) for each in there.nodes.values()))
                await session.publish("a/b", b"at one")
                assert (await anext(events)).payload == b"at one"
                there.fail("one")
                await session.publish("a/b", b"at the other")
                event = await anext(events)
                assert event.payload == b"at the other"
                assert event.id
                assert not event.is_kept
                assert not event.attributes, "names are none of the publisher's attributes"
                there.there["one"] = there.nodes["one"]
                there.fail("other")
                await session.publish("a/b", b"at one again")
                assert (await anext(events)).payload == b"at one again"
            await until(lambda: not subscribed(there.nodes["one"]))

    asyncio.run(scene())


def test_a_server_that_is_not_there_is_not_waited_for() -> None:
    async def scene() -> None:
        async with site() as there:
            other = there.there.pop("other")
            async with (
                there.mirrored(["one", "other"]) as session,
                session.subscribe("a/#") as events,
            ):
                await session.publish("a/b", b"1")
                assert (await anext(events)).payload == b"1"
                there.there["other"] = other
                await until(lambda: subscribed(other))

    asyncio.run(scene())


def test_no_server_falls_behind_while_another_brings_everything() -> None:
    async def scene() -> None:
        async with (
            site() as there,
            there.mirrored(["one", "other"]) as session,
            session.subscribe("a/#", queue=10) as events,
        ):
            await until(lambda: all(subscribed(each) for each in there.nodes.values()))
            for node in there.nodes.values():
                node.broker.context.node = "the same"  # so that they seem to bring the same events
                node.broker.context.number = 1_000
            for name in there.nodes:
                async with accord.connect(f"mqtt://{name}", transport=there.transport) as publisher:
                    for number in range(200):
                        await publisher.publish("a/b", str(number).encode())
            heard = [(await anext(events)).text for _ in range(200)]
            assert heard == [str(number) for number in range(200)]
            for node in there.nodes.values():
                mirror = next(each for each in node.broker.sessions.values() if each.subscriptions)
                await until(lambda mirror=mirror: len(mirror.unacknowledged) <= 20)  # type: ignore[misc]

    asyncio.run(scene())


def test_a_server_that_refuses_ends_it() -> None:
    async def scene() -> None:
        async with site() as there, there.mirrored(["one", "other"]) as session:
            with pytest.raises(accord.RefusedError, match="no predicate"):
                async with session.subscribe("a/#", where="this is no predicate"):
                    pass

    asyncio.run(scene())


def test_a_server_that_names_no_events_is_none() -> None:
    async def scene() -> None:
        connack = b"\x20\x03\x00\x00\x00"
        async with MemoryNode() as one:

            async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read(1_000)
                writer.write(connack)
                await reader.read()
                writer.close()

            server = await asyncio.start_server(plain, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            there = Site(one=one)

            async def transport(address: Address) -> Stream:
                if address.host == "one":
                    return await there.transport(address)
                return await transport_with(None)(address)

            urls = ["mqtt://one", f"mqtt://127.0.0.1:{port}"]
            async with accord.connect(urls, mirrored=True, transport=transport) as session:
                with pytest.raises(accord.ConnectionFailedError, match="event IDs"):
                    async with session.subscribe("a/#") as events:
                        await anext(events)
            server.close()
            await server.wait_closed()

    asyncio.run(scene())


def test_what_belongs_to_one_server_can_not_be_mirrored() -> None:
    async def scene() -> None:
        async with site() as there, there.mirrored(["one", "other"], "ada") as session:
            for options in (
                {"keep": True},
                {"no_local": True},
                {"since": "-1h"},
                {"user": {"since": "-1h"}},
                {"expect": [accord.Expectation(rate=1)]},
            ):
                with pytest.raises(ValueError, match="mirrored"):
                    session.subscribe("a/#", **options)
            with pytest.raises(ValueError, match="mirrored"):
                session.subscribe("$share/group/a")
            async with session.subscribe("a"):
                await until(lambda: "ada-mirror" in there.nodes["other"].broker.sessions)
            # Requests and what nodes tell of themselves go by the session's own connection.
            async with session.subscribe("$accord/advice"):
                assert "$accord/advice" in there.nodes["one"].broker.sessions["ada"].subscriptions

    asyncio.run(scene())


def test_the_first_that_succeeds_is_had_and_others_go_on() -> None:
    async def scene() -> None:
        late = asyncio.Event()

        async def slow() -> str:
            await late.wait()
            return "slow"

        async def fast() -> str:
            return "fast"

        async def failing() -> str:
            raise ValueError("no")

        found, left = await first_of([slow(), fast()])
        assert found == "fast"
        late.set()
        assert await left[0] == "slow"
        late.clear()
        with pytest.raises(ValueError, match="no"):
            await first_of([slow(), failing()])

    asyncio.run(scene())


def test_a_server_can_not_fill_the_memory_with_names() -> None:
    copies = MirrorDedup()
    for _ in range(2):
        assert copies.is_first(copy_of(60_000 * "n", "A"))
    assert copies.dropped == 0
