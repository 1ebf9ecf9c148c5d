"""Persistent channels across real nodes: who comes later gets all there was, and then goes on."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

import accord
from accord.client.session import Session
from accord.client.subscription import Subscription
from tests.brokers import HOST, Broker, accord_only, free_port, start_accord
from tests.net_nodes import RunningNode, start_nodes, wait_until

LINE: Final = {"a": [], "c": ["a"], "b": ["c"]}
CHANNEL: Final = "chat/room"

pytestmark = pytest.mark.timeout(300)  # nodes are started again and again


def define(node: RunningNode, others: dict[str, RunningNode], *options: str) -> None:
    made = node.accord("channel", "create", "chat/#", "--persistent", *options)
    assert made.exit_code == 0, made.output
    for each in others.values():
        wait_until(lambda each=each: "chat/#" in each.accord("channel", "ls").output)  # type: ignore[misc]


async def say(session: Session, name: str, numbers: range) -> None:
    for number in numbers:
        await session.publish(CHANNEL, f"{name} {number}".encode(), qos=1)


async def hear(events: Subscription, count: int) -> list[str]:
    async with asyncio.timeout(90):
        return [(await anext(events)).payload.decode() for _ in range(count)]


def of(heard: list[str], name: str) -> list[int]:
    return [int(each.split()[1]) for each in heard if each.startswith(f"{name} ")]


async def is_silent(events: Subscription) -> bool:
    """Nothing else comes, for as long as it would take at least."""
    try:
        async with asyncio.timeout(1.5):
            await anext(events)
    except TimeoutError:
        return True
    return False


@accord_only
@pytest.mark.parametrize("template", ["routed", "reliable", "total_order"])
def test_who_comes_later_gets_all_there_was_then_what_is_live(template: str) -> None:
    with start_nodes(LINE) as nodes:
        define(nodes["a"], nodes, "--template", template)
        asyncio.run(_come_later(nodes))


async def _come_later(nodes: dict[str, RunningNode]) -> None:
    async with AsyncExitStack() as stack:
        at = {
            name: await stack.enter_async_context(accord.connect(node.url))
            for name, node in nodes.items()
        }
        await asyncio.gather(say(at["a"], "a", range(300)), say(at["b"], "b", range(300)))
        await say(at["c"], "c", range(50))
        # Publishing goes on while the past is handed over.
        talking = asyncio.gather(
            say(at["a"], "a", range(300, 900)), say(at["b"], "b", range(300, 900))
        )
        events = await stack.enter_async_context(at["c"].subscribe("chat/#", qos=1))
        await talking
        await say(at["a"], "a", range(900, 910))
        heard = await hear(events, 910 + 900 + 50)
        assert of(heard, "a") == list(range(910))
        assert of(heard, "b") == list(range(900))
        assert of(heard, "c") == list(range(50))
        await say(at["b"], "b", range(900, 920))
        assert of(await hear(events, 20), "b") == list(range(900, 920))
        assert await is_silent(events)


@accord_only
def test_a_predicate_a_moment_and_now_choose_what_is_had() -> None:
    with start_nodes({"a": [], "b": ["a"]}) as nodes:
        define(nodes["a"], nodes)
        asyncio.run(_choose(nodes["a"], nodes["b"]))


async def _choose(a: RunningNode, b: RunningNode) -> None:
    async with accord.connect(a.url) as publisher, accord.connect(b.url) as subscriber:
        for number in range(20):
            await publisher.publish(CHANNEL, f"a {number}".encode(), qos=1, level=number)
        async with subscriber.subscribe("chat/#", qos=1, where="level >= 15") as events:
            assert of(await hear(events, 5), "a") == list(range(15, 20))
        async with subscriber.subscribe("chat/#", qos=1, since="2100-01-01") as events:
            assert await is_silent(events)
        async with subscriber.subscribe("chat/#", qos=1, since="now") as events:
            assert await is_silent(events)
        async with subscriber.subscribe("#", qos=1) as events:
            first = await anext(events)
            assert first.attributes["accord-node"] == "a"
            assert of([first.payload.decode(), *await hear(events, 19)], "a") == list(range(20))


class Site:
    """Nodes that are killed and started again, with what they had on disk."""

    def __init__(self, folder: Path, neighbours: dict[str, list[str]]) -> None:
        self.folder = folder
        self.neighbours = neighbours
        self.links = {name: f"{HOST}:{free_port()}" for name in neighbours}
        self.http = {name: f"{HOST}:{free_port()}" for name in neighbours}
        self.stacks: dict[str, ExitStack] = {}
        self.brokers: dict[str, Broker] = {}

    def start(self, name: str) -> str:
        dialled = ", ".join(f'"{self.links[each]}"' for each in self.neighbours[name])
        config = f"""
[node]
name = "{name}"
[net]
listen = "{self.links[name]}"
neighbours = [{dialled}]
ping_ms = 200
"""
        stack = self.stacks[name] = ExitStack()
        extra = ["--http", self.http[name]]
        data = self.folder / name
        started = start_accord(data=data, config=config, extra=extra, is_killed=True)
        self.brokers[name] = stack.enter_context(started)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"mqtt://{HOST}:{self.brokers[name].port}"

    def node(self, name: str) -> RunningNode:
        return RunningNode(
            name, self.url(name), f"http://{self.http[name]}", self.links[name], self.brokers[name]
        )

    def kill(self, name: str) -> None:
        process = self.brokers[name].process
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.stacks.pop(name).close()

    def close(self) -> None:
        for stack in self.stacks.values():
            stack.close()


@contextmanager
def start_site(folder: Path, neighbours: dict[str, list[str]]) -> Iterator[Site]:
    site = Site(folder, neighbours)
    try:
        for name in neighbours:
            site.start(name)
        define(site.node(next(iter(neighbours))), {name: site.node(name) for name in neighbours})
        yield site
    finally:
        site.close()


@accord_only
def test_a_node_that_is_killed_is_told_of_and_caught_up_with(tmp_path: Path) -> None:
    with start_site(tmp_path, {"c": [], "a": ["c"], "b": ["c"]}) as site:
        asyncio.run(_kill_a_source(site))


async def _kill_a_source(site: Site) -> None:
    async with accord.connect(site.url("a")) as a, accord.connect(site.url("b")) as b:
        await asyncio.gather(say(a, "a", range(200)), say(b, "b", range(200)))
    await asyncio.to_thread(site.kill, "a")
    await asyncio.to_thread(wait_until, lambda: _is_away(site.node("c"), "a"))
    async with (
        accord.connect(site.url("c")) as c,
        c.subscribe("$accord/past") as told,
        c.subscribe("chat/#", qos=1) as events,
        accord.connect(site.url("b")) as b,
    ):
        assert of(await hear(events, 200), "b") == list(range(200))
        form = json.loads((await anext(told)).payload)
        assert (form["filter"], form["state"], form["node"]) == ("chat/#", "missing", "a")
        await say(b, "b", range(200, 250))
        assert of(await hear(events, 50), "b") == list(range(200, 250))
        url = await asyncio.to_thread(site.start, "a")
        async with accord.connect(url) as a:
            await say(a, "a", range(200, 250))
        assert of(await hear(events, 250), "a") == list(range(250))
        # Killed once more, now that it is live: what it had sent and what it had not.
        async with accord.connect(url) as a:
            await say(a, "a", range(250, 300))
        await asyncio.to_thread(site.kill, "a")
        url = await asyncio.to_thread(site.start, "a")
        async with accord.connect(url) as a:
            await say(a, "a", range(300, 320))
        assert of(await hear(events, 70), "a") == list(range(250, 320))
        assert await is_silent(events)


def _is_away(node: RunningNode, name: str) -> bool:
    return any(each.name == name and not each.is_reachable for each in node.status().nodes)


@accord_only
def test_a_durable_session_goes_on_where_it_was_after_its_node_was_killed(tmp_path: Path) -> None:
    with start_site(tmp_path, {"a": [], "c": ["a"]}) as site:
        asyncio.run(_kill_own_node(site))


async def _kill_own_node(site: Site) -> None:
    async with accord.connect(site.url("a")) as a:
        await say(a, "a", range(300))
        async with connect(site.url("c")) as c, c.subscribe("chat/#", keep=True) as events:
            assert of(await hear(events, 300), "a") == list(range(300))
            assert await is_silent(events)  # the last one is acknowledged by that
            await asyncio.sleep(6)  # until that is noted
        await asyncio.to_thread(site.kill, "c")
        await say(a, "a", range(300, 400))
        url = await asyncio.to_thread(site.start, "c")
        got: list[int] = []
        async with connect(url) as c, c.subscribe("chat/#", keep=True) as events:
            while 399 not in got:
                got += of(await hear(events, 1), "a")
            assert await is_silent(events)
        # After a crash some may come twice, but it does not begin again.
        assert list(dict.fromkeys(each for each in got if each >= 300)) == list(range(300, 400))
        assert 0 not in got


def connect(url: str) -> AbstractAsyncContextManager[Session]:
    return accord.connect(url, client_id="ada", clean_start=False, session_expiry_s=3_600)
