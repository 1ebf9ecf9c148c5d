"""Whom a command speaks to, and what it says where that goes wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from accord.cli.connection import (
    ConnectionTarget,
    UnreachableError,
    open_session,
    read_target,
)
from accord.core.model.errors import InputError
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
