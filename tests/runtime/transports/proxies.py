"""An HTTP proxy that does nothing but CONNECT, and notes what it was asked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit


class Proxy:
    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> None:
        self.asked: list[str] = []
        self.headers: list[str] = []
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, user: str = "") -> SplitResult:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return urlsplit(f"http://{user}127.0.0.1:{port}")

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, place, _ = lines[0].split()
        self.asked.append(f"{method} {place}")
        self.headers += lines[1:]
        writers = [writer]
        try:
            writer.write(self._answer)
            if self._answer.startswith(b"HTTP/1.1 200"):
                host, _, port = place.rpartition(":")
                out_reader, out_writer = await asyncio.open_connection(host, int(port))
                writers.append(out_writer)
                await asyncio.gather(_pump(reader, out_writer), _pump(out_reader, writer))
            else:
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for each in writers:
                each.close()
                with suppress(OSError):
                    await each.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
