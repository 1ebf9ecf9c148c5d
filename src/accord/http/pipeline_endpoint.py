"""Where the pipeline of a site connects: a WebSocket that carries the pipeline's messages.

Whoever is connected answers this node's queries and releases records of its journal, so it takes
the right to read the journal, and a node configured to have the pipeline of a site. The pipeline
names the node that it means: an address that leads to another node is noticed before anything is
answered.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from accord.http.guard import asker_of
from accord.http.live import deny
from accord.operations.operation import Asker, RequestError, Right
from accord.runtime.logs import get_log
from accord.runtime.pipeline_site import Site, SiteConnection

log = get_log(__name__)

_REASON: Final = 120  # bytes of a close frame at most, less a little


class PipelineEndpoint:
    """Serves the WebSocket of one node; without a `site` nobody may connect."""

    def __init__(self, node: str, site: Site | None) -> None:
        self._node = node
        self._site = site

    async def serve(self, socket: WebSocket) -> None:
        asker = asker_of(socket.scope)
        try:
            site = self._check(asker, socket.query_params.get("node", ""))
        except RequestError as refusal:
            log.warning("pipeline: refused", address=asker.address, problem=str(refusal))
            await deny(socket, refusal)
            return
        connection = SiteConnection(asker.address)
        site.offer(connection)
        try:
            await socket.accept()
            await _carry(socket, connection)
            await socket.close(reason=connection.problem.encode()[:_REASON].decode(errors="ignore"))
        except (WebSocketDisconnect, OSError, RuntimeError):
            pass  # it is closed already
        finally:
            connection.end()

    def _check(self, asker: Asker, node: str) -> Site:
        """RequestError if this asker may not connect now."""
        if not asker.has(Right.EVERYTHING):
            who = asker.user or "an anonymous client"
            problem = f"{who} may not connect a pipeline"
            raise RequestError(403, problem, remedy=f"takes {Right.EVERYTHING.value}")
        if self._site is None:
            problem = "this node has not the pipeline of a site"
            raise RequestError(409, problem, remedy="set site = true under [pipeline] there")
        if node != self._node:
            raise RequestError(409, f"this is node {self._node}, not {node[:100]!r}", "node")
        if problem := self._site.refusal():
            raise RequestError(503, problem, retry_s=5)
        return self._site


async def _carry(socket: WebSocket, connection: SiteConnection) -> None:
    """Carry messages until either end has enough."""
    tasks = [
        asyncio.create_task(_read(socket, connection), name="accord-pipeline-read"),
        asyncio.create_task(_write(socket, connection), name="accord-pipeline-write"),
        asyncio.create_task(connection.has_ended.wait()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(socket: WebSocket, connection: SiteConnection) -> None:
    await connection.is_accepted.wait()
    while (message := await socket.receive())["type"] != "websocket.disconnect":
        data = message.get("bytes")
        if data is None:
            connection.end("expected binary messages")
            return
        connection.feed(data)


async def _write(socket: WebSocket, connection: SiteConnection) -> None:
    async for piece in connection.pieces():
        await socket.send_bytes(piece)
