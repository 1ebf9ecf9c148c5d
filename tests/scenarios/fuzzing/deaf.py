"""Clients that never read: they may not hold a connection that they or the node ended."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import accord
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Connect, Subscribe, TopicFilter
from tests.brokers import HOST
from tests.scenarios.fuzzing.node import FuzzedNode

_CLIENTS: Final = 20
_PATIENCE_S: Final = 20.0
_MESSAGES: Final = 100
_MESSAGE: Final = bytes(60_000)
_WRONG: Final = b"\xf7\x01x"


async def check_deaf(node: FuzzedNode) -> list[str]:
    """What is wrong: those who half-close, and those whom the node ends, must be gone soon."""
    before = node.usage().files
    with ExitStack() as stack:
        clients = [stack.enter_context(_deaf(node, each)) for each in range(_CLIENTS)]
        async with accord.connect(f"mqtt://{HOST}:{node.port}") as session:
            for _ in range(_MESSAGES):
                await session.publish("deaf", _MESSAGE, qos=1)
        for client in clients[::2]:
            client.shutdown(socket.SHUT_WR)
        for client in clients[1::2]:
            client.sendall(_WRONG)
        left = await _left(node, before)
    return [f"{left} of {_CLIENTS} that never read keep an ended connection"] if left else []


@contextmanager
def _deaf(node: FuzzedNode, number: int) -> Iterator[socket.socket]:
    """A client with a subscription whose messages it leaves in the network."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect((HOST, node.port))
        client.sendall(encode(Connect(f"deaf{number}"), V5))
        client.sendall(encode(Subscribe(1, (TopicFilter("deaf", 0),)), V5))
        yield client


async def _left(node: FuzzedNode, before: int) -> int:
    until_s = time.monotonic() + _PATIENCE_S
    while (left := node.usage().files - before) > 0 and time.monotonic() < until_s:
        await asyncio.sleep(0.1)
    return max(0, left)
