"""Quality with a real node: from what somebody expects to advice at a publisher's socket."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Any, Final

from accord.apps.agent.program import Program
from accord.apps.agent.settings import read_settings
from accord.client.quality import Advice
from accord.client.session import Session, connect
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    TopicFilter,
    Unsuback,
    Unsubscribe,
)
from accord.core.mqtt.properties import Properties
from accord.core.mqtt.wire import Framer
from benchmarks.options import Options, progress
from benchmarks.ports import free_ports
from benchmarks.processes import started
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "A node in a process of its own, and its clients in another, on the same machine. 100 clients "
    "publish with profiles on 100 channels, 100 others expect something of each channel: 10,000 "
    "profiles and 10,000 expectations. Or 10,000 clients publish with a profile on one channel, "
    "and expect something of it, too. Then one more client subscribes with an expectation that "
    "is not satisfied yet: from its SUBSCRIBE (or its request) being written to advice being read "
    "from the publisher's socket. Publishers do as advised. The agent runs a small program that "
    "says when it has read its configuration: from advice at the agent to that, by starting it "
    "anew and by a signal. The paper has 26 ms for rewriting a daemon's configuration and "
    "starting it anew."
)
_HOST: Final = "127.0.0.1"
_EXPECTATIONS: Final = "$accord/expectations"
_CAPABILITIES: Final = "$accord/capabilities"
_ADVICE: Final = "$accord/advice"
_PAPER_MS: Final = 26.0
_WAIT_S: Final = 60.0


class Peer:
    """A client of bytes: what is published to it goes to `on_publish`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.on_publish: Callable[[str, dict[str, Any]], None] = lambda _, __: None
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Future[Packet]] = {}
        self._replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._last_id = 0
        self._task = asyncio.create_task(self._read())

    async def close(self) -> None:
        self._task.cancel()
        self._writer.close()

    def send(self, packet: Packet) -> None:
        self._writer.write(encode(packet, V5))

    async def connect(self, client: str) -> None:
        answer = self._answers[0] = asyncio.get_running_loop().create_future()
        self.send(Connect(client, V5, True, 0, properties=Properties(receive_maximum=65_535)))
        await answer

    def subscribe(self, pattern: str, *expect: dict[str, Any]) -> asyncio.Future[Packet]:
        user = tuple(("expect", json.dumps(each)) for each in expect)
        packet_id, answer = self._expect()
        self.send(Subscribe(packet_id, (TopicFilter(pattern, 1),), Properties(user=user)))
        return answer

    def unsubscribe(self, pattern: str) -> asyncio.Future[Packet]:
        packet_id, answer = self._expect()
        self.send(Unsubscribe(packet_id, (pattern,)))
        return answer

    def request(self, topic: str, **request: Any) -> None:
        packet_id, _ = self._expect()
        properties = Properties(response_topic=f"r/{id(self)}")
        body = json.dumps(request).encode()
        self.send(Publish(topic, body, 1, packet_id=packet_id, properties=properties))

    async def ask(self, topic: str, **request: Any) -> dict[str, Any]:
        self.request(topic, **request)
        answer = await self._replies.get()
        assert answer["ok"], answer
        return answer

    async def hear_answers(self) -> None:
        await self.subscribe(f"r/{id(self)}")

    def _expect(self) -> tuple[int, asyncio.Future[Packet]]:
        self._last_id = self._last_id % 65_000 + 1
        answer: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._answers[self._last_id] = answer
        return self._last_id, answer

    async def _read(self) -> None:
        framer = Framer(10_000_000)
        while data := await self._reader.read(262_144):
            for first, body in framer.feed(data):
                packet = decode(first, body, V5)
                if isinstance(packet, Publish):
                    if packet.qos:
                        self.send(Puback(packet.packet_id))
                    found = json.loads(packet.payload)
                    if packet.topic.startswith("r/"):
                        self._replies.put_nowait(found)
                    else:
                        self.on_publish(packet.topic, found)
                elif isinstance(packet, (Connack, Suback, Unsuback, Puback)):
                    packet_id = getattr(packet, "packet_id", 0)
                    answer = self._answers.pop(packet_id, None)
                    if answer is not None and not answer.done():
                        answer.set_result(packet)


class Rates:
    """The highest rate that there is on a channel now, and that could be."""

    def __init__(self) -> None:
        self.now = 0.0
        self.best = 0.0

    def add(self, rate: dict[str, Any]) -> None:
        self.now = max(self.now, rate["current"])
        self.best = max(self.best, rate["range"][1])

    def beyond(self) -> float:
        """What nobody has yet, and somebody could."""
        return self.now + 0.05 * (self.best - self.now)


@asynccontextmanager
async def joined(port: int, client: str) -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_connection(_HOST, port))
    try:
        await peer.connect(client)
        await peer.hear_answers()
        yield peer
    finally:
        await peer.close()


def run(options: Options) -> list[Table]:
    side = 32 if options.is_quick else 100
    tries = 100 if options.is_quick else 500
    table = Table(
        f"From an expectation to advice at the publisher's socket, ms ({side * side:,} each)",
        ["channels", "said by", "advised", "p50", "p95", "p99", "most"],
    )
    for channels, words in ((side, number(side)), (1, "one")):
        crowd = Crowd(side * side // channels, channels)
        for way in ("SUBSCRIBE", "request"):
            progress(f"negotiation_live: {side * side:,} of each, channels: {words}, by {way}")
            with _node() as port:
                # Each asks for more than the one before it on its channel: there is an end to it.
                most = min(tries, 300 * channels)
                times = asyncio.run(_advised(port, crowd, most, is_request=way == "request"))
            table.add(words, way, *_row(times))
    agents = Table(
        "From advice at the agent to the program's new configuration, ms",
        ["program is", "times", "p50", "p95", "p99", "most", "paper"],
    )
    for apply, words in (("restart", "started anew"), ("SIGHUP", "signalled")):
        progress(f"negotiation_live: an agent whose program is {words}")
        with _node() as port:
            times = asyncio.run(_adapted(port, apply, 20 if options.is_quick else 50))
        agents.add(words, *_row(times), number(_PAPER_MS))
    return [table, agents]


def _row(times: list[float]) -> list[str]:
    cuts = quantiles(times, n=100, method="inclusive")
    found = (median(times), cuts[94], cuts[98], max(times))
    return [number(len(times)), *(significant(each * 1_000) for each in found)]


@dataclass(frozen=True)
class Crowd:
    """Publishers with profiles on all channels, and as many subscribers to all of them."""

    peers: int
    channels: int

    @asynccontextmanager
    async def gathered(
        self, port: int, random: Random
    ) -> AsyncIterator[tuple[list[Peer], dict[str, Rates]]]:
        """Where there is one channel, publishers subscribe: so many connections are enough."""
        async with AsyncExitStack() as stack:
            publishers = []
            for number_ in range(self.peers):
                peer = await stack.enter_async_context(joined(port, f"publisher{number_}"))
                await peer.subscribe(_ADVICE)
                publishers.append(peer)
            rates: dict[str, Rates] = {}
            for channel in range(self.channels):
                name = f"c/{channel}"
                for peer in publishers:
                    profile = _profile(random)
                    rates.setdefault(name, Rates()).add(profile["rate"])
                    await peer.ask(_CAPABILITIES, do="register", channel=name, capabilities=profile)
            for number_ in range(self.peers):
                peer = publishers[number_]
                if self.channels > 1:
                    peer = await stack.enter_async_context(joined(port, f"subscriber{number_}"))
                for channel in range(self.channels):
                    await peer.subscribe(f"c/{channel}", _wish(random, 0.2))
            yield publishers, rates


def _profile(random: Random) -> dict[str, Any]:
    profile = {}
    for name in ("rate", "confidence", "precision"):
        low, high = sorted((random.uniform(1, 100), random.uniform(1, 100)))
        current = random.uniform(low, (low + high) / 2)
        cost = {"base": 0, "slope": random.random()}
        profile[name] = {"range": [low, high], "current": current, "cost": cost}
    return profile


def _wish(random: Random, least: float) -> dict[str, Any]:
    names = ("rate", "confidence", "precision")[: random.randint(1, 3)]
    wish: dict[str, Any] = {name: [random.uniform(least, 1) * 60, None] for name in names}
    return {**wish, "utility": random.uniform(1, 10)}


async def _advised(port: int, crowd: Crowd, tries: int, *, is_request: bool) -> list[float]:
    """Seconds each, of expectations that made somebody be advised."""
    random = Random(7)
    times: list[float] = []
    advised: asyncio.Queue[float] = asyncio.Queue()
    states: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    async with (
        crowd.gathered(port, random) as (publishers, rates),
        joined(port, "tester") as tester,
    ):

        def follow(peer: Peer) -> Callable[[str, dict[str, Any]], None]:
            def heard(_: str, found: dict[str, Any]) -> None:
                if found["kind"] == "advice":
                    advised.put_nowait(perf_counter())
                    current = {found["property"]: found["target"]}
                    channel = found["channel"]
                    if found["property"] == "rate":
                        rates[channel].now = max(rates[channel].now, found["target"])
                    peer.request(_CAPABILITIES, do="update", channel=channel, current=current)

            return heard

        for peer in publishers:
            peer.on_publish = follow(peer)
        tester.on_publish = lambda _, found: states.put_nowait(found)
        await tester.subscribe(_EXPECTATIONS)
        await asyncio.sleep(8)  # what the crowd set off comes to rest
        for number_ in range(tries):
            channel = f"c/{random.randrange(crowd.channels)}"
            wish: dict[str, Any] = {"rate": [rates[channel].beyond(), None], "utility": 1_000}
            if is_request:
                await tester.subscribe(channel)
            while not advised.empty():
                advised.get_nowait()
            while not states.empty():
                states.get_nowait()
            began = perf_counter()
            if is_request:
                wish["id"] = str(number_)
                tester.request(_EXPECTATIONS, do="register", channel=channel, expect=wish)
            else:
                await_ = tester.subscribe(channel, wish)
            state = await asyncio.wait_for(states.get(), _WAIT_S)
            if state.get("decision") == "adapting":
                at = await asyncio.wait_for(advised.get(), _WAIT_S)
                times.append(at - began)
            if not is_request:
                await await_
            await asyncio.sleep(0.01)
            await tester.unsubscribe(channel)
    return times


async def _adapted(port: int, apply: str, tries: int) -> list[float]:
    """Seconds each, from advice to the program's word that it runs with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = folder / "agent.toml"
        settings.write_text(
            'channel = "lab/t"\n[program]\ntemplate = "program.in"\nconfig = "program.conf"\n'
            f'apply = "{apply}"\n[capabilities.rate]\nrange = [1, 1000000]\ncurrent = 1\n'
        )
        (folder / "program.in").write_text("{{rate}}")
        (folder / "program.py").write_text(_PROGRAM)
        pipe = folder / "said"
        os.mkfifo(pipe)
        said = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        heard: asyncio.Queue[tuple[str, float]] = asyncio.Queue()

        def read() -> None:
            for line in os.read(said, 4_096).decode().split():
                heard.put_nowait((line, perf_counter()))

        asyncio.get_running_loop().add_reader(said, read)
        command = [sys.executable, "-I", "-S", str(folder / "program.py"), str(folder)]
        program = Program(read_settings(settings), command)
        try:
            await program.start()
            await heard.get()
            return await _follow(f"mqtt://{_HOST}:{port}", program, heard, tries)
        finally:
            await program.stop()
            asyncio.get_running_loop().remove_reader(said)
            os.close(said)


async def _follow(
    url: str, program: Program, heard: asyncio.Queue[tuple[str, float]], tries: int
) -> list[float]:
    times: list[float] = []
    came: asyncio.Queue[tuple[float, float]] = asyncio.Queue()
    from accord.client.quality import Capability, Expectation  # noqa: PLC0415

    rate = Capability("rate", 1, 1_000_000, current=1)
    async with (
        connect(url) as publishing,
        connect(url) as subscribing,
        publishing.publisher("lab/t", capabilities=[rate]) as publisher,
    ):

        @publisher.on_advice
        async def follow(advice: Advice) -> object:
            at = perf_counter()
            await program.adapt("rate", advice.target)
            assert isinstance(advice.target, float)
            came.put_nowait((advice.target, at))
            return advice.target

        for number_ in range(2, tries + 2):
            await _expect(subscribing, Expectation(rate=(number_, None)))
            target, at = await asyncio.wait_for(came.get(), _WAIT_S)
            while True:
                line, when = await asyncio.wait_for(heard.get(), _WAIT_S)
                if float(line) == target:
                    break
            times.append(when - at)
    return times


async def _expect(session: Session, expectation: Any) -> None:
    async with session.subscribe("lab/t", expect=[expectation]) as events:
        await events.expectations[0].wait_for("satisfied")


# Reads its configuration, says so, and waits; again when it is signalled.
_PROGRAM: Final = """
import os, signal, sys
folder = sys.argv[1]
def say(*_):
    with open(folder + "/program.conf") as file:
        rate = file.read()
    said = os.open(folder + "/said", os.O_WRONLY)
    os.write(said, (rate + "\\n").encode())
    os.close(said)
signal.signal(signal.SIGHUP, say)
say()
while True:
    signal.pause()
"""


class _node:  # noqa: N801 - used like a function
    """A node that is gone at the end of the block; gives its port."""

    def __enter__(self) -> int:
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "accord", "up", "--mqtt", f"{_HOST}:{port}"]
        command += ["--http", "", "--websocket", "", "--data", "", "--no-demo", "--no-pipeline"]
        self._started = started(command, os.environ)
        self._started.__enter__()
        asyncio.run(_wait_for(port))
        return port

    def __exit__(self, *_: object) -> None:
        self._started.__exit__(None, None, None)


async def _wait_for(port: int) -> None:
    until = perf_counter() + _WAIT_S
    while True:
        try:
            _, writer = await asyncio.open_connection(_HOST, port)
        except OSError:
            if perf_counter() > until:
                raise
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return
