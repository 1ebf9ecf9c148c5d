"""A viewer of a node's live stream, and a node to view, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect

from accord.core.monitoring.merge_patch import apply_patch
from accord.http.app import create_app
from accord.http.live import LiveStream
from accord.http.server import HttpServer, serve
from accord.operations.ports import NodePorts
from accord.runtime.addresses import SocketAddress
from accord.runtime.users import Users

ANYWHERE = SocketAddress("127.0.0.1", 0)


class LiveClient:
    """Applies differences: `states` has what is watched, by number."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.states: dict[int, Any] = {}
        self.kinds: list[str] = []  # of messages that were not heartbeats

    async def send(self, **request: object) -> None:
        await self.connection.send(msgspec.json.encode(request).decode())

    async def receive(self) -> dict[str, Any]:
        """The next message."""
        message: dict[str, Any] = msgspec.json.decode(await self.connection.recv())
        number = message.get("id")
        for kind in ("state", "patch", "problem"):
            if kind not in message:
                continue
            self.kinds.append(kind)
            if number is not None and kind == "patch":
                self.states[number] = apply_patch(self.states[number], message[kind])
            elif number is not None:
                self.states[number] = message[kind]
        return message

    async def update(self) -> dict[str, Any]:
        """The next message that is no heartbeat."""
        while "id" not in (message := await self.receive()):
            pass
        return message

    async def watch(self, set_: str, number: int = 1, **parameters: object) -> Any:
        """Watch a set; returns its first state, or the problem."""
        await self.send(watch=number, set=set_, **parameters)
        while True:
            message = await self.receive()
            if message.get("id") == number and "patch" not in message:
                return self.states[number]

    async def problem(self) -> dict[str, Any]:
        """The next problem, with `id` if it has one."""
        while True:
            message = await self.receive()
            if "problem" in message:
                return {**message["problem"], "id": message.get("id")}


class LiveServer:
    """A node's HTTP server with its live stream."""

    def __init__(self, stream: LiveStream, server: HttpServer) -> None:
        self.stream = stream
        self.address = server.address
        self._server = server
        self.url = f"ws://{server.address}/api/v1/live"

    async def stop(self) -> None:
        await self._server.stop()

    def protocols(self) -> list[Any]:
        """The connections, as uvicorn has them."""
        return [
            each
            for each in self._server._server.server_state.connections
            if hasattr(each, "writable")
        ]

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[LiveClient]:
        async with connect(self.url, compression=None, **options) as connection:
            yield LiveClient(connection)


@asynccontextmanager
async def live_server(
    node: NodePorts, *, users: Users | None = None, address: SocketAddress = ANYWHERE
) -> AsyncIterator[LiveServer]:
    stream = LiveStream(node)
    server = await serve(create_app(node, users=users, live=stream), address)
    try:
        yield LiveServer(stream, server)
    finally:
        await server.stop()
