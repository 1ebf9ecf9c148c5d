from __future__ import annotations

import asyncio

import pytest
from tests.runtime.transports.proxies import Proxy
from tests.runtime.transports.recording import Recorder

from accord.runtime.transports.proxy import connect_through, parse_proxy


@pytest.mark.parametrize(
    "text",
    ["", "proxy:3128", "https://proxy", "http://", "http://proxy/x", "http://proxy:99999",
     "http://proxy\r\nEvil:1", "http://proxy?x", "http://[::1"],
)  # fmt: skip
def test_what_is_no_proxy(text: str) -> None:
    assert parse_proxy(text) is None


def test_what_is_one() -> None:
    found = parse_proxy(" http://ann:a%40b@proxy.example.org ")
    assert found is not None
    assert (found.hostname, found.port, found.username) == ("proxy.example.org", None, "ann")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", r"the proxy refuses \(HTTP 407\)"),
        (b"HTTP/1.1\r\n\r\n", "does not speak HTTP"),
        (b"220 mail.example.org\r\n\r\n", "does not speak HTTP"),
        (bytes(20_000), "does not speak HTTP"),
        (b"HTTP/1.1 2", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\n\r\nand more", "sent unexpected data"),
    ],
)
def test_answers_that_are_no_connection(answer: bytes, problem: str) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        proxy = parse_proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert proxy is not None
        with pytest.raises(ConnectionError, match=problem):
            await connect_through(proxy, "far.example.org", 443)
        server.close()

    asyncio.run(main())


def test_no_proxy_there() -> None:
    async def main() -> None:
        proxy = parse_proxy("http://127.0.0.1:1")
        assert proxy is not None
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await connect_through(proxy, "far.example.org", 443)

    asyncio.run(main())


def test_name_and_password_are_told_and_bytes_go_through() -> None:
    async def main() -> None:
        other = Recorder()
        server = await asyncio.get_running_loop().create_server(lambda: other, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        proxy = Proxy()
        transport = await connect_through(await proxy.start("ann:a%40b@"), "127.0.0.1", port)
        assert proxy.asked == [f"CONNECT 127.0.0.1:{port}"]
        assert "Proxy-Authorization: Basic YW5uOmFAYg==" in proxy.headers
        one = Recorder()
        transport.set_protocol(one)
        transport.resume_reading()
        transport.write(b"there")
        while other.data != b"there":
            await asyncio.sleep(0.001)
        other.write(b"back")
        while one.data != b"back":
            await asyncio.sleep(0.001)
        transport.close()
        server.close()
        await proxy.stop()

    asyncio.run(main())
