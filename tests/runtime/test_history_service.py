"""Persistent channels at nodes in one process, linked over real sockets, with real clients."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.runtime.test_overlay_service import link_of, net_of, node, until, url_of

import accord
from accord.client.session import Session
from accord.client.subscription import Subscription
from accord.core.channels.history.messages import PERSISTENT
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.runtime.history_service import CHECKPOINT, HistoryService
from accord.runtime.node import Node

CHAT = ChannelDefinition("chat/#", options={PERSISTENT: "true"})


async def say(session: Session, numbers: range) -> None:
    for number in numbers:
        await session.publish("chat/room", str(number), qos=1)


async def hear(events: Subscription, count: int) -> list[int]:
    return [int((await anext(events)).payload) for _ in range(count)]


async def met(a: Node, b: Node) -> None:
    await until(net_of(a).overlay.used_neighbours)
    await until(lambda: net_of(b).overlay.directory.look_up("chat/room"))


def test_the_past_of_both_nodes_comes_before_what_is_live(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            node("a", data=tmp_path / "a", channels=(CHAT,)) as a,
            node("b", link_of(a), data=tmp_path / "b") as b,
            accord.connect(url_of(a)) as at_a,
            accord.connect(url_of(b)) as at_b,
        ):
            await met(a, b)
            await say(at_a, range(100))
            await say(at_b, range(100, 150))
            async with at_b.subscribe("chat/#", qos=1) as events:
                heard = await hear(events, 150)
                # Those of two nodes are merged by clocks that need not agree.
                assert [each for each in heard if each < 100] == list(range(100))
                assert [each for each in heard if each >= 100] == list(range(100, 150))
                await say(at_a, range(150, 200))
                assert await hear(events, 50) == list(range(150, 200))
            assert a.history is not None
            assert isinstance(a.history, HistoryService)
            assert 100 <= a.history.exchange.sent <= 150  # none twice

    asyncio.run(main())


def test_a_node_that_was_started_again_keeps_at_once_what_was_persistent(tmp_path: Path) -> None:
    """Nobody is there to tell it yet."""

    async def main() -> None:
        async with (
            node("a", channels=(CHAT,)) as a,
            node("b", link_of(a), data=tmp_path) as b,
        ):
            await met(a, b)
        assert json.loads((tmp_path / CHECKPOINT).read_bytes())["channels"] == ["chat/#"]
        async with node("b", data=tmp_path) as b, accord.connect(url_of(b)) as session:
            await say(session, range(3))
            async with session.subscribe("chat/#", qos=1) as events:
                assert await hear(events, 3) == [0, 1, 2]

    asyncio.run(main())


def test_what_can_not_be_read_of_before_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_text("{")

    async def main() -> None:
        async with (
            node("b", data=tmp_path, channels=(CHAT,)) as b,
            accord.connect(url_of(b)) as session,
        ):
            await say(session, range(3))
            async with session.subscribe("chat/#", qos=1) as events:
                assert await hear(events, 3) == [0, 1, 2]

    asyncio.run(main())


def test_a_node_without_a_disk_has_no_past_but_gets_that_of_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            node("a", data=tmp_path, channels=(CHAT,)) as a,
            node("b", link_of(a)) as b,
            accord.connect(url_of(a)) as at_a,
            accord.connect(url_of(b)) as at_b,
        ):
            await met(a, b)
            await say(at_a, range(5))
            await say(at_b, range(5, 8))
            async with at_b.subscribe("chat/#", qos=1) as events:
                assert await hear(events, 5) == list(range(5))
                await say(at_b, range(8, 10))
                assert await hear(events, 2) == [8, 9]

    asyncio.run(main())
