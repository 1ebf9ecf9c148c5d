"""MQTT at `/mqtt` of the HTTP listener, with real clients: as pages of the console connect."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import argon2
import httpx
import paho.mqtt.client as paho
import pytest
import uvloop
import websockets
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode
from starlette.applications import Starlette
from tests.certificates import make_certificate
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

import accord
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Connack, Connect
from accord.core.mqtt.wire import Framer
from accord.core.router.limits import Limits
from accord.core.router.rights import EVERYTHING, Rights
from accord.http.app import create_app
from accord.http.server import serve
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.tls import TlsFiles, server_context
from accord.runtime.users import User, Users

LOOPBACK: Final = SocketAddress("127.0.0.1", 0)
WORD: Final = "a long password"
QUICK: Final = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
ANN: Final = User("ann", QUICK.hash(WORD), Rights(publish=("a/#",), subscribe=("a/#",)))
MQTT: Final = [Subprotocol("mqtt")]
MODULES: Final = Path(__file__).parents[2] / "build" / "node" / "node_modules"
SCRIPT: Final = Path(__file__).parents[1] / "scenarios" / "mqttjs.cjs"
NODE: Final = shutil.which("node")
WAIT_S: Final = 20
UPGRADE: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n"
)


class Site:
    """A node with its HTTP listener."""

    def __init__(self, node: Node, authority: str, app: Starlette) -> None:
        self.node = node
        self.authority = authority
        self.app = app
        self.host, _, port = authority.rpartition(":")
        self.port = int(port)

    @property
    def url(self) -> str:
        return f"ws://{self.authority}/mqtt"

    @property
    def mqtt_url(self) -> str:
        return f"mqtt://{self.node.addresses[0]}"

    async def connect(self, **options: Any) -> websockets.ClientConnection:
        return await websockets.connect(options.pop("url", self.url), subprotocols=MQTT, **options)

    async def token(self) -> tuple[str, str]:
        async with httpx.AsyncClient(base_url=f"http://{self.authority}") as http:
            await http.post("/api/v1/session", json={"user": "ann", "password": WORD})
            answer = (await http.post("/api/v1/session/token")).json()
            return answer["username"], answer["password"]


@asynccontextmanager
async def a_site(
    *users: User,
    origins: tuple[str, ...] = (),
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    is_loopback: bool = True,
) -> AsyncIterator[Site]:
    known = Users(users, anonymous=None if users else EVERYTHING)
    settings = Settings(
        listeners=(ListenerSettings(LOOPBACK),),
        origins=origins,
        limits=limits or Limits(),
        statistics_s=0,
    )
    async with Node(settings, known) as node:
        app = create_app(node.ports, users=known, is_loopback=is_loopback, origins=origins)
        mqtt = node.page_protocol(is_loopback=is_loopback)
        server = await serve(app, LOOPBACK, tls=tls, mqtt=mqtt)
        yield Site(node, str(server.address), app)
        await server.stop()


def packet(client: str, user: str | None = None, password: str | None = None) -> bytes:
    given = None if password is None else password.encode()
    return encode(Connect(client_id=client, username=user, password=given), V5)


async def first_packet(socket: websockets.ClientConnection) -> Connack:
    message = await asyncio.wait_for(socket.recv(), WAIT_S)
    ((first, body),) = list(Framer(100_000).feed(cast("bytes", message)))
    return cast("Connack", decode(first, body, V5))


class PahoClient:
    """paho over WebSocket, in a thread of its own."""

    def __init__(self, site: Site, *, tls: ssl.SSLContext | None = None) -> None:
        self.got: list[bytes] = []
        self.has_all = threading.Event()
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id="console-paho",
            transport="websockets",
            protocol=paho.MQTTv5,
        )
        self.client.ws_set_options(path="/mqtt")
        if tls is not None:
            self.client.tls_set_context(tls)
        self.client.on_connect = self._connected
        self.client.on_message = lambda _client, _data, message: self._take(message.payload)
        self.client.on_subscribe = lambda *_: self._publish()
        self._site = site

    def run(self) -> list[bytes]:
        self.client.connect(self._site.host, self._site.port)
        self.client.loop_start()
        self.has_all.wait(WAIT_S)
        self.client.disconnect()
        self.client.loop_stop()
        return self.got

    def _connected(
        self, _client: object, _data: object, _flags: object, reason: ReasonCode, _more: object
    ) -> None:
        assert not reason.is_failure
        self.client.subscribe("a/#", qos=1)

    def _publish(self) -> None:
        for number in range(50):
            self.client.publish("a/b", b"%d" % number + b"x" * number * 500, qos=1)

    def _take(self, payload: bytes | bytearray) -> None:
        self.got.append(bytes(payload))
        if len(self.got) == 50:
            self.has_all.set()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_paho(run: Any) -> None:
    async def main() -> list[bytes]:
        async with a_site() as site:
            return await asyncio.to_thread(PahoClient(site).run)

    assert run(main()) == [b"%d" % number + b"x" * number * 500 for number in range(50)]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_paho_over_tls(tmp_path: Path, run: Any) -> None:
    certificate, key = make_certificate(tmp_path)
    context = server_context(TlsFiles(certificate=str(certificate), key=str(key)))
    trusting = ssl.create_default_context(cafile=certificate)

    async def main() -> int:
        async with a_site(tls=context) as site:
            return len(await asyncio.to_thread(PahoClient(site, tls=trusting).run))

    assert run(main()) == 50


@pytest.mark.skipif(
    NODE is None or not (MODULES / "mqtt").is_dir(),
    reason="needs Node and the npm package mqtt in build/node",
)
@pytest.mark.parametrize("scenario", ["publishAndSubscribe", "retained", "will", "large"])
def test_mqttjs(scenario: str) -> None:
    async def main() -> None:
        async with a_site() as site:
            done = await asyncio.to_thread(
                subprocess.run,
                [str(NODE), str(SCRIPT), scenario, site.url, "5", "t"],
                env={**os.environ, "NODE_PATH": str(MODULES)},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr

    asyncio.run(main())


def test_after_requests_on_the_same_connection() -> None:
    async def main() -> None:
        async with a_site() as site:
            reader, writer = await asyncio.open_connection(site.host, site.port)
            for _ in range(3):
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                assert await reader.readexactly(3) == b"ok\n"
            # The upgrade follows a request in the same write.
            writer.write(
                b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                b"GET /mqtt?x=1 HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n"
                b"Upgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
            )
            await reader.readuntil(b"ok\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101")
            connect = packet("console-1")
            writer.write(bytes((0x82, 0x80 | len(connect), 0, 0, 0, 0)) + connect)
            frame = await asyncio.wait_for(reader.readexactly(4), WAIT_S)
            assert (frame[0], frame[2]) == (0x82, 0x20)  # CONNACK in a binary message
            assert site.node.broker.sessions["console-1"].connection is not None
            writer.close()

    asyncio.run(main())


def test_it_is_not_closed_as_an_idle_http_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.http.server.IDLE_TIMEOUT_S", 0.1)

    async def main() -> None:
        async with a_site() as site:
            socket = await site.connect()
            await socket.send(packet("console-1"))
            assert (await first_packet(socket)).reason == 0
            await asyncio.sleep(0.5)
            await asyncio.wait_for(await socket.ping(), WAIT_S)
            await socket.close()

    asyncio.run(main())


def test_it_counts_among_connections_and_their_limits() -> None:
    async def main() -> None:
        limits = Limits(connects_per_s_per_address=3)
        async with a_site(limits=limits) as site:
            sockets = []
            for number in range(3):
                sockets.append(await site.connect())
                await sockets[-1].send(packet(f"console-{number}"))
                await first_packet(sockets[-1])
            assert site.node.statistics().connections == 3
            reader, writer = await asyncio.open_connection(site.host, site.port)
            writer.write(UPGRADE + b"\r\n")
            answer = b""
            with suppress(ConnectionResetError):
                answer = await asyncio.wait_for(reader.read(), WAIT_S)
            assert answer == b""
            writer.close()
            with suppress(ConnectionResetError):
                await writer.wait_closed()
            for socket in sockets:
                await socket.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        (None, "", 101),
        ("http://{authority}", "", 101),
        ("https://ops.example", "", 101),
        ("https://evil.example", "", 403),
        ("http://localhost:3000", "", 403),
        ("null", "", 403),
        ("", "", 403),
        ("http://rebound.example:8080", "rebound.example:8080", 421),
        (None, "rebound.example:8080", 421),
        ("http://localhost", "localhost", 101),
    ],
)
def test_origins(origin: str | None, host: str, status: int) -> None:
    async def main() -> None:
        async with a_site(origins=("https://ops.example",)) as site:
            named = None if origin is None else origin.replace("{authority}", site.authority)
            url, options = site.url, {}
            if host:
                url = f"ws://{host if ':' in host else f'{host}:80'}/mqtt"
                options = {"host": site.host, "port": site.port}
            found = 101
            try:
                socket = await site.connect(
                    url=url, origin=None if named is None else Origin(named), **options
                )
                await socket.close()
            except InvalidStatus as error:
                found = error.response.status_code
            assert found == status

    asyncio.run(main())


def test_origins_where_the_node_is_for_other_machines() -> None:
    async def main() -> None:
        async with a_site(ANN, is_loopback=False) as site:
            url, options = "ws://node.example:80/mqtt", {"host": site.host, "port": site.port}
            same = Origin("http://node.example")
            socket = await site.connect(url=url, origin=same, **options)
            await socket.close()
            with pytest.raises(InvalidStatus):
                await site.connect(url=url, origin=Origin("http://evil.example"), **options)

    asyncio.run(main())


def test_a_token_is_the_password_of_one_connection() -> None:
    async def main() -> None:
        async with a_site(ANN) as site:
            user, token = await site.token()
            with_token = [
                ("patrol-1", user, token, False),  # not the ID of a page
                ("console-1", "bob", token, False),
                ("console-1", None, token, False),
                ("console-1", user, token, True),
                ("console-1", user, token, False),  # replayed
                ("console-2", user, token, False),
                ("console-2", user, WORD, True),  # passwords are accepted, too
            ]
            for client, name, password, is_accepted in with_token:
                socket = await site.connect()
                await socket.send(packet(client, name, password))
                assert ((await first_packet(socket)).reason == 0) == is_accepted
                await socket.close()

    asyncio.run(main())


def test_a_token_gives_the_rights_of_its_user() -> None:
    async def main() -> None:
        async with a_site(ANN) as site:
            user, token = await site.token()
            async with accord.connect(
                site.mqtt_url, client_id="console-x", username=user, password=token
            ) as session:
                await session.publish("a/b", "x", qos=1)
                with pytest.raises(accord.AccordError):
                    await session.publish("b/a", "x", qos=1)

    asyncio.run(main())


def test_client_ids_of_a_user_apply_to_tokens() -> None:
    limited = User("ann", QUICK.hash(WORD), clients=("patrol-*",))

    async def main() -> None:
        async with a_site(limited) as site:
            user, token = await site.token()
            socket = await site.connect()
            await socket.send(packet("console-1", user, token))
            assert (await first_packet(socket)).reason != 0
            await socket.close()

    asyncio.run(main())


def test_other_requests_to_the_path() -> None:
    async def main() -> None:
        async with a_site() as site, httpx.AsyncClient() as http:
            url = f"http://{site.authority}/mqtt"
            assert (await http.get(url)).status_code == 404
            upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
            assert (await http.get(url, headers=upgrade)).status_code == 400
            assert (await http.post(url, headers=upgrade, content=b"x")).status_code >= 400

    asyncio.run(main())


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 100000\r\n\r\n" + b"x" * 1_000,
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"X: " + b"y" * 20_000 + b"\r\n\r\n",
        b"".join(b"X-%d: y\r\n" % number for number in range(500)) + b"\r\n",
        b"\r\n" + bytes(range(256)) * 40,
    ],
)
def test_hostile_upgrades(rest: bytes) -> None:
    async def main() -> None:
        async with a_site() as site:
            reader, writer = await asyncio.open_connection(site.host, site.port)
            writer.write(UPGRADE + rest)
            writer.write_eof()
            with suppress(ConnectionResetError):
                await asyncio.wait_for(reader.read(), WAIT_S)
            writer.close()
            socket = await site.connect()  # others are served
            await socket.send(packet("console-1"))
            assert (await first_packet(socket)).reason == 0
            await socket.close()
            assert not site.node.broker.sessions.get("x")

    asyncio.run(main())


def test_the_listener_stops_while_pages_are_connected() -> None:
    async def main() -> None:
        async with a_site() as site:
            socket = await site.connect()
            await socket.send(packet("console-1"))
            await first_packet(socket)
        await asyncio.wait_for(socket.wait_closed(), WAIT_S)

    asyncio.run(main())
