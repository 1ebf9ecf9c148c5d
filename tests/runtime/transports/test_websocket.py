from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.runtime.transports.proxies import Proxy
from tests.runtime.transports.recording import Recorder, until
from tests.runtime.transports.test_tcp import contexts, hang_up
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from accord.runtime.transports import websocket
from accord.runtime.transports.interface import remote_of
from accord.runtime.transports.websocket import MESSAGE_BYTES, SUBPROTOCOL, WebSocketTransport

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: {subprotocol}\r\n{more}\r\n"
)


def upgrade(path: str = "/", subprotocol: str = str(SUBPROTOCOL), more: str = "") -> bytes:
    return UPGRADE.format(path=path, subprotocol=subprotocol, more=more).encode()


class Place:
    """A listener, and what it accepted."""

    def __init__(self, transport: WebSocketTransport) -> None:
        self.transport = transport
        self.accepted: list[Recorder] = []
        self.port = 0

    def _accept(self) -> Recorder:
        self.accepted.append(Recorder())
        return self.accepted[-1]

    async def open(self) -> None:
        listener = await self.transport.listen("127.0.0.1", 0, self._accept)
        self.close = listener.close
        self.port = listener.port

    async def ask(self, words: bytes, *, ends: bool = False, then: bytes = b"") -> bytes:
        """What it answers until it hangs up; `then` is sent once it has said something."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(words)
        if ends:
            writer.write_eof()
        answer = b""
        try:
            if then:
                answer = await reader.readuntil(b"\r\n\r\n")
                writer.write(then)
            return answer + await reader.read()
        except ConnectionResetError:
            return answer
        finally:
            writer.close()


async def exchange(accepting: WebSocketTransport, dialing: WebSocketTransport) -> tuple[
    Recorder, Recorder
]:  # fmt: skip
    place = Place(accepting)
    await place.open()
    one = Recorder()
    await dialing.dial("127.0.0.1", place.port, lambda: one)
    (other,) = place.accepted
    one.write(b"there")
    await until(lambda: other.data == b"there")
    other.write(b"back")
    await until(lambda: one.data == b"back")
    place.close()
    return one, other


def test_bytes_both_ways_however_many() -> None:
    async def main() -> None:
        one, other = await exchange(WebSocketTransport("/links"), WebSocketTransport("/links"))
        assert one.transport is not None
        remote = remote_of(one.transport)
        assert (remote.address, remote.is_loopback) == ("127.0.0.1", True)
        much = bytes(range(256)) * (3 * MESSAGE_BYTES // 256)
        one.write(much)
        other.write(much)
        await until(lambda: len(other.data) >= len(much) and len(one.data) >= len(much))
        assert other.data == b"there" + much
        assert one.data == b"back" + much
        await hang_up(one, other)
        assert other.error is None

    asyncio.run(main())


def test_who_writes_more_than_is_read_is_told() -> None:
    async def main() -> None:
        one, other = await exchange(WebSocketTransport(), WebSocketTransport())
        assert one.transport is not None
        assert other.transport is not None
        other.transport.pause_reading()
        assert not other.transport.is_reading()
        size = 0
        while "paused" not in one.events:
            one.write(bytes(MESSAGE_BYTES))
            size += MESSAGE_BYTES
            await asyncio.sleep(0)
        assert one.transport.get_write_buffer_size() > 0
        other.data = b""
        other.transport.resume_reading()
        await until(lambda: len(other.data) == size)
        await until(lambda: "resumed" in one.events)
        await hang_up(one, other)

    asyncio.run(main())


@pytest.mark.parametrize("is_dialer", [True, False])
def test_last_words_arrive_and_both_ends_close(is_dialer: bool) -> None:
    async def main() -> None:
        one, other = await exchange(WebSocketTransport(), WebSocketTransport())
        speaker, listener = (one, other) if is_dialer else (other, one)
        assert speaker.transport is not None
        assert speaker.transport.can_write_eof()
        speaker.write(b"goodbye")
        speaker.transport.write_eof()
        speaker.write(b"too late")
        await until(lambda: one.is_lost and other.is_lost)
        assert listener.data.endswith(b"goodbye")
        assert (speaker.error, listener.error) == (None, None)
        assert "eof" in listener.events

    asyncio.run(main())


def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    async def main() -> None:
        accepting, dialing = contexts(tmp_path, "berlin")
        one, other = await exchange(
            WebSocketTransport(accepting=accepting), WebSocketTransport(dialing=dialing)
        )
        for side in (one, other):
            assert side.transport is not None
            remote = remote_of(side.transport)
            assert remote.is_encrypted
            assert remote.certified == ("berlin", "localhost")
        await hang_up(one, other)

    asyncio.run(main())


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_through_a_proxy(tmp_path: Path, is_encrypted: bool) -> None:
    async def main() -> None:
        accepting, dialing = contexts(tmp_path, "berlin") if is_encrypted else (None, None)
        proxy = Proxy()
        through = WebSocketTransport(dialing=dialing, proxy=await proxy.start())
        one, other = await exchange(WebSocketTransport(accepting=accepting), through)
        assert len(proxy.asked) == 1
        assert one.transport is not None
        assert not remote_of(one.transport).is_loopback, "the proxy is here, who is behind it?"
        assert remote_of(one.transport).is_encrypted == is_encrypted
        await hang_up(one, other)
        await proxy.stop()

    asyncio.run(main())


def test_a_proxy_that_refuses() -> None:
    async def main() -> None:
        proxy = Proxy(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        through = WebSocketTransport(proxy=await proxy.start())
        with pytest.raises(ConnectionError, match=r"the proxy refuses \(HTTP 403\)"):
            await through.dial("127.0.0.1", 1, Recorder)
        await proxy.stop()

    asyncio.run(main())


def test_what_answers_but_is_no_node() -> None:
    async def main() -> None:
        for answer, problem in (
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", r"HTTP 200"),
            (b"SSH-2.0-OpenSSH_9.0\r\n", "valid HTTP response"),
            (b"", "closed during the upgrade"),
        ):

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes = answer
            ) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectionError, match=problem):
                await WebSocketTransport().dial("127.0.0.1", port, Recorder)
            server.close()

    asyncio.run(main())


def test_another_path_and_nobody_there() -> None:
    async def main() -> None:
        place = Place(WebSocketTransport("/links"))
        await place.open()
        with pytest.raises(ConnectionError, match=r"no links of a node there \(HTTP 404\)"):
            await WebSocketTransport("/other").dial("127.0.0.1", place.port, Recorder)
        place.close()
        await asyncio.sleep(0)
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await WebSocketTransport("/links").dial("127.0.0.1", place.port, Recorder)
        assert (place.accepted, place.transport.refused) == ([], 1)

    asyncio.run(main())


def test_bad_requests_do_no_harm() -> None:
    async def main() -> None:
        place = Place(WebSocketTransport())
        await place.open()
        for words, status in (
            (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b" 426 "),
            (b"POST / HTTP/1.1\r\nHost: here\r\n\r\n", b" 405 "),
            (upgrade("/elsewhere"), b" 404 "),
            (upgrade(subprotocol="mqtt"), b" 400 "),
            (upgrade(more="Origin: http://localhost\r\n"), b" 403 "),
            (upgrade(more="X: " + "x" * 100_000 + "\r\n"), b" 431 "),
            (upgrade(more="X: x\r\n" * 1_000), b" 431 "),
        ):
            assert status in (await place.ask(words)).split(b"\r\n")[0]
        await place.ask(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
        await place.ask(bytes(50_000))
        await place.ask(b"", ends=True)
        await place.ask(upgrade()[:60], ends=True)
        await until(lambda: place.transport.refused == 11)
        assert place.accepted == []
        one = Recorder()
        await WebSocketTransport().dial("127.0.0.1", place.port, lambda: one)
        one.write(b"still served")
        await until(lambda: place.accepted[0].data == b"still served")
        assert one.transport is not None
        one.transport.close()
        await until(lambda: place.accepted[0].is_lost)
        place.close()

    asyncio.run(main())


def frames(make: str, *arguments: object) -> bytes:
    """What a client sends behind its upgrade, as the library makes it."""
    client = ClientProtocol(parse_uri("ws://here/"))
    client.state = type(client.state).OPEN
    getattr(client, make)(*arguments)
    return b"".join(client.data_to_send())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (frames("send_binary", bytes(MESSAGE_BYTES + 1)), 1009),
        (frames("send_text", b"hello"), 1003),
        (b"\x82\x05hello", 1002),  # not masked
        (b"\xff" * 100, 1002),
        (frames("send_binary", b"a", False) * 2, 1002),
        (b"\x82\xff" + (1 << 40).to_bytes(8) + bytes(4), 1009),
    ],
    ids=["too large", "text", "not masked", "noise", "no end", "far too large"],
)
def test_garbage_ends_a_connection_and_says_why(words: bytes, code: int) -> None:
    async def main() -> None:
        place = Place(WebSocketTransport())
        await place.open()
        assert b" 101 " in await place.ask(upgrade(), then=words)
        (accepted,) = place.accepted
        await until(lambda: accepted.is_lost)
        assert str(code) in str(accepted.error)
        assert len(accepted.data) <= 1
        place.close()

    asyncio.run(main())


def test_what_a_proxy_forwards_is_not_from_this_machine() -> None:
    async def main() -> None:
        place = Place(WebSocketTransport())
        await place.open()
        for more, is_here in (("", True), ("X-Forwarded-For: 10.0.0.1\r\n", False)):
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(upgrade(more=more))
            await reader.readuntil(b"\r\n\r\n")
            transport = place.accepted[-1].transport
            assert transport is not None
            assert remote_of(transport).is_loopback == is_here
            writer.close()
        place.close()

    asyncio.run(main())


def test_only_so_many_may_try_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "_PENDING", 2)

    async def main() -> None:
        place = Place(WebSocketTransport())
        await place.open()
        open_ones = [await asyncio.open_connection("127.0.0.1", place.port) for _ in range(2)]
        await until(lambda: len(place.transport._pending) == 2)
        assert await place.ask(b"") == b""
        assert place.transport.refused == 1
        for _, writer in open_ones:
            writer.close()
        await until(lambda: place.transport.refused == 3)
        assert b" 101 " in await place.ask(upgrade(), then=b"\x88\x80" + bytes(4))
        assert await place.ask(upgrade() + b"\xff" * 10) == b"", "garbage behind the request"
        place.close()

    asyncio.run(main())
