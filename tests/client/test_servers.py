"""A session that may use several servers goes on at another when its own fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.ports import free_port

import accord
from accord.client.address import Address
from accord.client.transport import Stream
from accord.testing import MemoryNode
from tests.brokers import HOST, start_accord


def test_the_next_server_takes_over() -> None:
    async def scene() -> None:
        async with MemoryNode() as one, MemoryNode() as other:
            nodes = {"one": one, "other": other}
            tried: list[str] = []

            async def transport(address: Address) -> Stream:
                tried.append(address.host)
                if address.host not in nodes:
                    raise OSError("gone")
                return await nodes[address.host].connect(address)

            async with (
                accord.connect(["mqtt://one", "mqtt://other"], transport=transport) as session,
                session.subscribe("a/#") as events,
            ):
                del nodes["one"]
                one.break_connections()
                while not other.broker.sessions:
                    await asyncio.sleep(0.01)
                await session.publish("a/b", b"still here", qos=1)
                assert (await anext(events)).payload == b"still here"
                assert tried == ["one", "one", "other"]
                nodes["one"] = one
                other.break_connections()
                await session.publish("a/b", b"and here", qos=1)
                assert tried == ["one", "one", "other", "other"], "no need to move"

    asyncio.run(scene())


def test_one_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    async def scene(url: str) -> None:
        dead = f"mqtt://{HOST}:{free_port()}"
        async with accord.connect([dead, dead.replace("mqtt", "ws"), url]) as session:
            await session.publish("a/b", b"here", qos=1)

    with start_accord(tmp_path) as broker:
        asyncio.run(scene(f"mqtt://{HOST}:{broker.port}"))


def test_where_none_answers_all_are_named() -> None:
    async def transport(address: Address) -> Stream:
        raise OSError("gone")

    async def scene() -> None:
        with pytest.raises(accord.ConnectionFailedError, match=r"one:1883: gone; .*other:1883"):
            async with accord.connect(["mqtt://one", "mqtt://other"], transport=transport):
                pass
        with pytest.raises(ValueError, match="expected the URL"):
            async with accord.connect([]):
                pass

    asyncio.run(scene())
