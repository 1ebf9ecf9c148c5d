"""A steady load for the node, and viewers of its live stream, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

from websockets.asyncio.client import connect

from benchmarks.mqtt import Mqtt

HOST: Final = "127.0.0.1"
_TICK_S: Final = 0.01
_PATIENCE_S: Final = 60.0
_SPAWN: Final = multiprocessing.get_context("spawn")
MQTT: Final = Mqtt(5)


def connect_client(port: int, name: str, mqtt: Mqtt = MQTT) -> socket.socket:
    connection = socket.create_connection((HOST, port), _PATIENCE_S)
    mqtt.enter(connection, name)
    return connection


@contextmanager
def steady_load(port: int, channels: Sequence[str], rate_hz: float) -> Iterator[None]:
    """Events of 100 B, in turns on these channels, each with a subscriber."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_publish, args=(theirs, port, tuple(channels), rate_hz))
    process.start()
    assert ours.poll(_PATIENCE_S), "the load did not start"
    ours.recv()
    try:
        yield
    finally:
        ours.send("stop")
        process.join(_PATIENCE_S)


def _publish(pipe: Connection, port: int, channels: Sequence[str], rate_hz: float) -> None:
    with ExitStack() as stack:
        publisher = stack.enter_context(connect_client(port, "load-publisher"))
        subscribers = []
        for number in range(min(10, len(channels))):
            subscriber = stack.enter_context(connect_client(port, f"load-subscriber-{number}"))
            for channel in channels[number::10]:
                MQTT.subscribe(subscriber, channel)
            subscriber.setblocking(False)
            subscribers.append(subscriber)
        frames = [MQTT.message(channel, bytes(100), 1) for channel in channels]
        pipe.send("ready")
        begun, sent, buffer = time.monotonic(), 0, bytearray(1 << 20)
        while not pipe.poll():
            due = int((time.monotonic() - begun) * rate_hz)
            publisher.sendall(b"".join(frames[each % len(frames)] for each in range(sent, due)))
            sent = max(sent, due)
            for subscriber in select.select(subscribers, [], [], _TICK_S)[0]:
                subscriber.recv_into(buffer)
            time.sleep(_TICK_S)


@dataclass
class Seen:
    """What viewers received: messages of a kind, their sizes, and delays after the node's clock."""

    messages: int = 0
    total_bytes: int = 0
    largest_state: int = 0
    largest_patch: int = 0
    delays_ms: list[float] = field(default_factory=list)


class Viewers:
    """A process with viewers, which tells what they have seen when it is asked."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def seen(self) -> Seen:
        """Since the question before."""
        self._pipe.send("seen")
        found: Seen = self._pipe.recv()
        return found


@contextmanager
def viewers(url: str, count: int, sets: Sequence[dict[str, Any]]) -> Iterator[Viewers]:
    """`count` viewers that watch the same sets, and read all."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_view_all, args=(theirs, url, count, tuple(sets)))
    process.start()
    assert ours.poll(_PATIENCE_S), "the viewers did not start"
    ours.recv()
    try:
        yield Viewers(ours)
    finally:
        ours.send("stop")
        process.join(_PATIENCE_S)


def _view_all(pipe: Connection, url: str, count: int, sets: Sequence[dict[str, Any]]) -> None:
    asyncio.run(_view(pipe, url, count, sets))


async def _view(pipe: Connection, url: str, count: int, sets: Sequence[dict[str, Any]]) -> None:
    seen = Seen()
    ready = [asyncio.Event() for _ in range(count)]

    async def one(is_ready: asyncio.Event) -> None:
        async with connect(f"{url.replace('http', 'ws')}/api/v1/live", compression=None) as stream:
            for number, asked in enumerate(sets, 1):
                await stream.send(json.dumps({"watch": number, **asked}))
            async for text in stream:
                message = json.loads(text)
                assert "problem" not in message, message
                is_ready.set()
                if "id" not in message:
                    continue
                seen.messages += 1
                seen.total_bytes += len(text)
                seen.delays_ms.append(time.time() * 1e3 - message["at_ms"])
                if "state" in message:
                    seen.largest_state = max(seen.largest_state, len(text))
                else:
                    seen.largest_patch = max(seen.largest_patch, len(text))

    tasks = [asyncio.create_task(one(each)) for each in ready]
    for each in ready:
        await each.wait()
    pipe.send("ready")
    while True:
        for task in tasks:
            if task.done():
                task.result()
        if pipe.poll():
            if pipe.recv() == "stop":
                break
            pipe.send(seen)
            seen.__init__()  # type: ignore[misc]
        await asyncio.sleep(0.02)
    for task in tasks:
        task.cancel()
