"""Whom a command speaks to, and what it says where that goes wrong."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

import pytest

from accord.cli.connection import (
    ConnectionTarget,
    UnreachableError,
    _Watch,
    open_session,
    read_target,
)
from accord.cli.errors import InputError
from accord.client.address import Address
from accord.client.transport import Stream
from tests.brokers import HOST
from tests.cli.conftest import RunningNode
from tests.client.broker import TestBroker, start


def credentials(target: ConnectionTarget) -> tuple[str | None, str | None]:
    return target.username, target.password


class TestTarget:
    def test_nobody_in_particular(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ACCORD_PASSWORD", "secret")
        assert credentials(read_target("mqtt://localhost", None, None)) == (None, None)

    def test_the_url_has_it_all(self) -> None:
        target = read_target("mqtts://ann:pa%40ss@example.org", None, None)
        assert credentials(target) == ("ann", "pa@ss")
        assert target.address.url == "mqtts://example.org:8883"

    def test_the_password_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ACCORD_PASSWORD", "secret")
        assert credentials(read_target("mqtt://ann@localhost", None, None)) == ("ann", "secret")
        assert credentials(read_target("mqtt://localhost", "bob", None)) == ("bob", "secret")
        # The password in the URL is another's.
        assert credentials(read_target("mqtt://ann:x@localhost", "bob", None)) == ("bob", "secret")

    def test_mistakes_do_not_show_the_password(self) -> None:
        with pytest.raises(InputError, match="--url: expected mqtt://") as caught:
            read_target("http://ann:secret@localhost", None, None)
        assert "secret" not in str(caught.value)

    def test_certificates_are_checked(self, tmp_path: Path) -> None:
        path = tmp_path / "ca.pem"
        with pytest.raises(InputError, match="no such file"):
            read_target("mqtts://localhost", None, path)
        path.write_text("no certificate")
        with pytest.raises(InputError, match="expected certificates in PEM form"):
            read_target("mqtts://localhost", None, path)


class TestSession:
    def test_nobody_there(self, dead_url: str) -> None:
        for url in (dead_url, dead_url.replace(HOST, "localhost")):
            with pytest.raises(UnreachableError) as caught:
                asyncio.run(connect(url))
            assert f"no node answers at {url} (connection refused)" in str(caught.value)
            assert "accord up" in str(caught.value)

    def test_somebody_else_there(self, node: RunningNode) -> None:
        with pytest.raises(UnreachableError, match="does not speak WebSocket"):
            asyncio.run(connect(node.url.replace("mqtt", "ws")))

    def test_a_restart_is_told(self, tmp_path: Path) -> None:
        told: list[str] = []

        async def stay(broker: TestBroker) -> None:
            async with open_session(read_target(broker.url, None, None), told.append):
                await asyncio.to_thread(broker.stop)
                await asyncio.to_thread(broker.start)
                while len(told) < 2:
                    await asyncio.sleep(0.01)

        with start("accord", tmp_path) as broker:
            asyncio.run(stay(broker))
        assert told == ["the connection broke, trying to get it back …", "the server is back"]


async def connect(url: str) -> None:
    async with open_session(read_target(url, None, None), lambda _: None):
        pass


class FakeStream:
    """Gives what is in `reads`, then ends; an error is raised."""

    def __init__(self, *reads: bytes | OSError) -> None:
        self._reads = deque(reads)

    async def read(self) -> bytes:
        read = self._reads.popleft() if self._reads else b""
        if isinstance(read, OSError):
            raise read
        return read

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


class TestWatch:
    def test_tells_once_per_break_and_only_after_success(self) -> None:
        told: list[str] = []
        streams = deque([FakeStream(b"hello", OSError()), FakeStream(), FakeStream(b"again")])

        async def transport(address: Address) -> Stream:
            return streams.popleft()

        async def live() -> None:
            watch = _Watch(transport, told.append)
            address = Address("mqtt", "localhost", 1883)
            first = await watch.open(address)
            assert await first.read() == b"hello"
            with watch.reporting():
                assert told == []
                with pytest.raises(OSError):  # noqa: PT011
                    await first.read()
                assert told == ["the connection broke, trying to get it back …"]
                second = await watch.open(address)
                assert await second.read() == b""
                assert len(told) == 1
                third = await watch.open(address)
                assert await third.read() == b"again"
                assert told[1:] == ["the server is back"]
            assert await third.read() == b""
            assert len(told) == 2

        asyncio.run(live())

    def test_an_end_that_the_server_announced(self) -> None:
        """Then nobody reads to the end of the stream."""
        told: list[str] = []

        async def transport(address: Address) -> Stream:
            return FakeStream(b"hello")

        async def live() -> None:
            watch = _Watch(transport, told.append)
            address = Address("mqtt", "localhost", 1883)
            await (await watch.open(address)).read()
            with watch.reporting():
                await watch.open(address)

        asyncio.run(live())
        assert told == ["the connection broke, trying to get it back …"]
