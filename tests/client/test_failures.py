"""Each way in which no connection comes about has a sentence that says what to do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from benchmarks.ports import free_ports

import accord
from accord.cli.connection import UnreachableError, open_session, read_target
from accord.cli.http_client import NodeHttpClient
from accord.client.errors import ConnectionFailedError
from tests.brokers import HOST, start_accord
from tests.certificates import make_certificate
from tests.cli.conftest import wait_for


class Ports(NamedTuple):
    mqtt: int
    mqtts: int
    http: int
    https: int
    ws: int
    authority: Path


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate(folder)
    mqtts, http, https = free_ports(3)
    config = f"""
        listen = {{ mqtts = "{HOST}:{mqtts}", https = "{HOST}:{https}" }}
        tls = {{ certificate = "{certificate}", key = "{key}" }}
    """
    extra = ["--http", f"{HOST}:{http}"]
    with start_accord(config=config, extra=extra, has_websocket=True) as broker:
        wait_for(http)
        ws = int(broker.websocket_url.rpartition(":")[2].partition("/")[0])
        yield Ports(broker.port, mqtts, http, https, ws, certificate)


@pytest.mark.parametrize(
    ("scheme", "port", "words"),
    [
        ("mqtts", "mqtts", "is not trusted (self-signed certificate); name the certificate of its"),
        ("mqtts", "mqtt", "does not speak TLS; use mqtt://"),
        ("mqtts", "http", "does not speak TLS; use mqtt://"),
        ("wss", "ws", "does not speak TLS; use ws://"),
        (
            "mqtt",
            "mqtts",
            "the server closed the connection; check that this port speaks MQTT, and",
        ),
        ("mqtt", "http", "the server speaks HTTP, not MQTT; use the node's MQTT port"),
        ("ws", "mqtt", "does not speak WebSocket; use wss:// if it has TLS, else check the port"),
    ],
)
def test_mqtt(ports: Ports, scheme: str, port: str, words: str) -> None:
    url = f"{scheme}://{HOST}:{getattr(ports, port)}"

    async def connect() -> None:
        async with accord.connect(url):
            pass

    async def command() -> None:
        async with open_session(read_target(url, None, None), lambda _: None):
            pass

    with pytest.raises(ConnectionFailedError) as failed:
        asyncio.run(connect())
    with pytest.raises(UnreachableError) as told:
        asyncio.run(command())
    for error in (failed, told):
        assert words in str(error.value)
        assert f"{HOST}:{getattr(ports, port)}" in str(error.value)
    if "trusted" in words:
        assert "tls=" in str(failed.value)
        assert "--ca FILE" in str(told.value)


@pytest.mark.parametrize(
    ("scheme", "port", "words"),
    [
        ("https", "https", "is not trusted (self-signed certificate); name the certificate of its"),
        ("https", "http", "does not speak TLS; use http://"),
        ("https", "mqtt", "does not speak TLS; use http://"),
        ("http", "https", "does not speak HTTP; use https:// if it has TLS, else check the port"),
        ("http", "mqtt", "does not speak HTTP; use https:// if it has TLS, else check the port"),
    ],
)
def test_http(ports: Ports, scheme: str, port: str, words: str) -> None:
    url = f"{scheme}://{HOST}:{getattr(ports, port)}"
    with pytest.raises(UnreachableError) as told:
        NodeHttpClient(url, None, None).request("/health")
    assert words in str(told.value)
    assert url in str(told.value)


def test_the_authority_is_all_it_takes(ports: Ports) -> None:
    node = NodeHttpClient(f"https://{HOST}:{ports.https}", None, ports.authority)
    assert node.request("/health").code == 200


@pytest.mark.parametrize(
    ("host", "days", "words"),
    [
        ("localhost", -1, "has expired; have the node use a new one"),
        ("127.0.0.2", 1, "is for another host; use a name that it has"),
    ],
)
def test_certificates(tmp_path: Path, host: str, days: int, words: str) -> None:
    certificate, key = make_certificate(tmp_path, days=days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def connect() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), host, 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        trusting = ssl.create_default_context(cafile=certificate)
        async with server, accord.connect(f"mqtts://{host}:{port}", tls=trusting):
            pass

    with pytest.raises(ConnectionFailedError, match=words):
        asyncio.run(connect())
