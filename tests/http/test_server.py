from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.types import Receive, Scope, Send
from tests.certificates import make_certificate

from accord.http import server as server_module
from accord.http.server import serve
from accord.runtime.addresses import ListenError, SocketAddress
from accord.runtime.tls import TlsFiles, server_context

ANYWHERE = SocketAddress("127.0.0.1", 0)
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def greet(scope: Scope, _receive: Receive, send: Send) -> None:
    assert scope["type"] == "http"
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


async def flood(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
        await asyncio.sleep(0)  # as `send` returns at once after a disconnect


def test_it_serves_until_it_is_stopped() -> None:
    async def main() -> None:
        server = await serve(greet, ANYWHERE)
        url = f"http://{server.address}/"
        async with httpx.AsyncClient() as client:
            answer = await client.get(url)
            assert answer.text == "hello"
            assert "server" not in answer.headers
        await server.stop()
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)

    asyncio.run(main())


def test_signals_and_logs_stay_the_nodes_own(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        server = await serve(greet, ANYWHERE)
        assert before == {number: signal.getsignal(number) for number in before}
        async with httpx.AsyncClient() as client:
            await client.get(f"http://{server.address}/")
        await server.stop()

    with caplog.at_level(logging.INFO, "uvicorn"):
        asyncio.run(main())
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_a_port_in_use_is_said() -> None:
    async def main() -> None:
        server = await serve(greet, ANYWHERE)
        with pytest.raises(ListenError, match="another program listens there"):
            await serve(greet, server.address)
        await server.stop()

    asyncio.run(main())


def test_it_serves_over_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = server_context(TlsFiles(certificate=str(certificate), key=str(key)))

    async def main() -> None:
        server = await serve(greet, ANYWHERE, tls=context)
        trusting = ssl.create_default_context(cafile=certificate)
        async with httpx.AsyncClient(verify=trusting) as client:
            assert (await client.get(f"https://{server.address}/")).text == "hello"
        await server.stop()

    asyncio.run(main())


def test_what_is_not_http_is_refused_as_a_problem() -> None:
    async def main() -> bytes:
        server = await serve(greet, ANYWHERE)
        reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
        writer.write(b"GET /\xff\x00 HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await server.stop()
        return answer

    head, _, body = asyncio.run(main()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"Content-Type: application/problem+json" in head
    problem = msgspec.json.decode(body)
    assert problem["status"] == 400
    assert problem["detail"]


def test_only_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 2)

    async def main() -> None:
        server = await serve(greet, ANYWHERE)
        streams = [
            await asyncio.open_connection(server.address.host, server.address.port)
            for _ in range(3)
        ]
        for reader, writer in streams[:2]:
            writer.write(REQUEST)
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        with suppress(ConnectionError):
            assert await streams[2][0].read() == b""
        for _, writer in streams:
            writer.close()
        await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize("asked", [b"", b"GET / HT", REQUEST, REQUEST + b"GET /"])
def test_connections_that_ask_nothing_are_closed(
    asked: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "IDLE_TIMEOUT_S", 0.02)

    async def main() -> None:
        server = await serve(greet, ANYWHERE)
        reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
        writer.write(asked)
        heard = b""
        try:
            heard = await reader.readuntil(b"hello") if asked.startswith(REQUEST) else b""
            assert await reader.read() == b""
        except ConnectionError:
            pass
        assert heard.endswith(b"hello") == asked.startswith(REQUEST)
        writer.close()
        await server.stop()

    asyncio.run(main())


def test_connections_that_do_not_read_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "IDLE_TIMEOUT_S", 0.05)
    ended = asyncio.Event()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        async def until_disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            ended.set()

        watching = asyncio.create_task(until_disconnected())
        sending = asyncio.create_task(flood(scope, receive, send))
        await watching
        sending.cancel()

    async def main() -> None:
        server = await serve(watched, ANYWHERE)
        _, writer = await asyncio.open_connection(server.address.host, server.address.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(REQUEST)
        await asyncio.wait_for(ended.wait(), 60)
        writer.close()
        await server.stop()

    asyncio.run(main())
