"""The node in memory, used as its users would."""

from __future__ import annotations

import asyncio

import pytest

import accord
from accord.client.errors import RefusedError
from accord.testing import MemoryNode


def test_predicates_decide_in_memory_too() -> None:
    async def scenario() -> list[bytes]:
        async with (
            MemoryNode() as node,
            accord.connect(transport=node.connect) as session,
            session.subscribe("uav/+", where="altitude_m > 300") as events,
        ):
            await session.publish("uav/a", b"low", altitude_m=200)
            await session.publish("uav/b", b"high", altitude_m=400)
            await session.publish("uav/c", b"higher", altitude_m=500)
            return [(await anext(events)).payload for _ in range(2)]

    assert asyncio.run(scenario()) == [b"high", b"higher"]


def test_a_bad_predicate_is_refused_with_the_place() -> None:
    async def scenario() -> None:
        async with (
            MemoryNode() as node,
            accord.connect(transport=node.connect) as session,
            session.subscribe("uav/+", where="altitude_m > > 300"),
        ):
            pass

    with pytest.raises(RefusedError, match="at character 14"):
        asyncio.run(scenario())


def test_a_session_goes_on_after_its_connection_broke() -> None:
    async def scenario() -> list[bytes]:
        async with (
            MemoryNode() as node,
            accord.connect(transport=node.connect, random=lambda: 0.0) as session,
            accord.connect(transport=node.connect) as other,
            session.subscribe("a", qos=1) as events,
        ):
            await other.publish("a", b"1")
            first = (await anext(events)).payload
            node.break_connections()
            await other.publish("a", b"2")
            return [first, (await anext(events)).payload]

    assert asyncio.run(scenario()) == [b"1", b"2"]


def test_statistics_tell_what_went_through() -> None:
    async def scenario() -> tuple[int, int]:
        async with MemoryNode() as node, accord.connect(transport=node.connect) as session:
            await session.publish("a", b"1", qos=0)
            await session.publish("a", b"2", qos=1)
            received = node.statistics().received.publishes
            return received.qos0, received.qos1

    assert asyncio.run(scenario()) == (1, 1)


def test_programs_may_advertise() -> None:
    async def main() -> None:
        async with MemoryNode() as node, accord.connect(transport=node.connect) as session:
            advertised = await session.advertise("a/#", rate_hz=5)
            assert (advertised.name, advertised.mode) == ("a/#", "off")
            await advertised.withdraw()

    asyncio.run(main())


def test_quality_is_negotiated_in_memory_too() -> None:
    async def scenario() -> list[object]:
        rate = accord.Capability("rate", 1, 50, current=2)
        often = accord.Expectation(rate=(5, 10))
        followed: list[object] = []
        async with (
            asyncio.timeout(60),
            MemoryNode() as node,
            accord.connect(transport=node.connect) as session,
            session.publisher("lab/t", capabilities=[rate]) as publisher,
            session.subscribe("lab/+", expect=[often]) as events,
        ):

            @publisher.on_advice
            def follow(advice: accord.Advice) -> object:
                followed.append(advice.property)
                return advice.target

            await events.expectations[0].wait_for("satisfied")
        return followed

    assert asyncio.run(scenario()) == ["rate"]


def test_there_are_no_channels_to_define() -> None:
    async def main() -> None:
        async with MemoryNode() as node, accord.connect(transport=node.connect) as session:
            with pytest.raises(accord.ChannelRefusedError, match="defines no channels"):
                await session.create_channel("x")

    asyncio.run(main())
