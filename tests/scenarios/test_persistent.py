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
from benchmarks.ports import free_port

import accord
from accord.client.session import Session
from accord.client.subscription import Subscription
from tests.brokers import HOST, Broker, accord_only, start_accord
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
            assert dict(first.properties.user)["accord-node"] == "a"
            assert first.attributes == {"level": 0}
            assert of([first.payload.decode(), *await hear(events, 19)], "a") == list(range(20))


class Site:
    """Nodes that are killed and started again where they were, with what they had on disk."""

    def __init__(
        self, folder: Path, neighbours: dict[str, list[str]], secondary: tuple[str, ...] = ()
    ) -> None:
        self.folder = folder
        self.neighbours = neighbours
        self.secondary = secondary
        self.links = {name: f"{HOST}:{free_port()}" for name in neighbours}
        self.http = {name: f"{HOST}:{free_port()}" for name in neighbours}
        self.stacks: dict[str, ExitStack] = {}
        self.brokers: dict[str, Broker] = {}

    def start(self, name: str) -> str:
        dialled = ", ".join(f'"{self.links[each]}"' for each in self.neighbours[name])
        is_secondary = name in self.secondary
        place = 'tier = "secondary"' if is_secondary else f'listen = "{self.links[name]}"'
        config = f"""
[node]
name = "{name}"
[net]
{place}
neighbours = [{dialled}]
ping_ms = 200
"""
        stack = self.stacks[name] = ExitStack()
        extra = ["--http", self.http[name]]
        data = self.folder / name
        port = self.brokers[name].port if name in self.brokers else None
        started = start_accord(data=data, config=config, extra=extra, is_killed=True, port=port)
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
def start_site(
    folder: Path, neighbours: dict[str, list[str]], secondary: tuple[str, ...] = ()
) -> Iterator[Site]:
    site = Site(folder, neighbours, secondary)
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
        c.subscribe("$accord/history") as told,
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


TIERS: Final = {"a": [], "b": ["a"], "c": ["b"], "x": ["a", "b"]}


@accord_only
def test_clients_of_a_secondary_node_get_all_there_was_whatever_parent_fails(
    tmp_path: Path,
) -> None:
    with start_site(tmp_path, TIERS, ("x",)) as site:
        asyncio.run(_ask_through_parents(site))


async def _ask_through_parents(site: Site) -> None:
    async with (
        accord.connect(site.url("c")) as c,
        accord.connect(site.url("x")) as x,
        x.subscribe("$accord/history") as told,
    ):
        await asyncio.gather(say(c, "c", range(200)), say(x, "x", range(100)))
        talking = asyncio.gather(say(c, "c", range(200, 600)), say(x, "x", range(100, 200)))
        async with x.subscribe("chat/#", qos=1) as events:
            await talking
            heard = await hear(events, 800)
            assert of(heard, "c") == list(range(600))
            assert of(heard, "x") == list(range(200))
            assert json.loads((await anext(told)).payload) == {
                "filter": "chat/#", "state": "live", "missing": [],
            }  # fmt: skip
            # The active parent is killed while some of it is on its way, and comes back.
            talking = asyncio.gather(say(c, "c", range(600, 900)), say(x, "x", range(200, 300)))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(site.kill, "a")
            await talking
            heard = await hear_all(events, {"c": range(600, 900), "x": range(200, 300)})
            await asyncio.to_thread(site.start, "a")
            await say(c, "c", range(900, 910))
            heard += await hear_all(events, {"c": range(900, 910)})
            assert await is_silent(events)
            assert len(heard) == len(set(heard)) == 410
        # Who comes now gets what both parents kept, and each event once.
        async with x.subscribe("chat/room", qos=1) as events:
            heard = await hear_all(events, {"c": range(910), "x": range(300)})
            assert await is_silent(events)
            assert len(heard) == len(set(heard)) == 1_210


async def hear_all(events: Subscription, wanted: dict[str, range]) -> list[str]:
    """Until all of it has come, in whichever order."""
    left = {f"{name} {number}": True for name, numbers in wanted.items() for number in numbers}
    heard: list[str] = []
    try:
        while left:
            heard += await hear(events, 1)
            left.pop(heard[-1], None)
    except TimeoutError:
        raise AssertionError(f"missing: {list(left)[:20]}") from None
    return heard


@accord_only
def test_a_durable_session_of_a_secondary_node_goes_on_where_it_was(tmp_path: Path) -> None:
    with start_site(tmp_path, {"a": [], "c": ["a"]}, ("c",)) as site:
        asyncio.run(_kill_own_node(site))
