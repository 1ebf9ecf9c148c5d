"""A node in this process, on real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import fake_pipeline
from tests.certificates import make_certificate

import accord
from accord.client.errors import RefusedError
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    TopicFilter,
)
from accord.core.mqtt.wire import Framer
from accord.core.queries.messages import EventQuery, WatchedPredicate
from accord.core.router.limits import Limits
from accord.core.router.rights import EVERYTHING, Rights
from accord.journal.errors import JournalError
from accord.runtime.addresses import ListenError, SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings, registered_predicates
from accord.runtime.pipeline import PipelineOptions
from accord.runtime.tls import TlsFiles, server_context
from accord.runtime.users import User, Users, hash_password

LOOPBACK = SocketAddress("127.0.0.1", 0)


def a_node(
    *listeners: ListenerSettings,
    limits: Limits | None = None,
    data: Path | None = None,
    users: Users | None = None,
    kept: tuple[str, ...] = (),
    policies: Path | None = None,
) -> Node:
    settings = Settings(
        listeners=listeners or (ListenerSettings(LOOPBACK),),
        limits=limits or Limits(),
        data=data,
        kept=kept,
        policies=policies,
        statistics_s=0,
    )
    return Node(settings, users or Users(anonymous=EVERYTHING))


class Peer:
    """A client of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._framer = Framer(1_000_000)
        self._packets: list[Packet] = []

    @classmethod
    async def open(cls, node: Node, client: str = "peer") -> Peer:
        peer = cls(*await asyncio.open_connection(*_place(node)))
        await peer.send(Connect(client))
        connack = await peer.receive()
        assert isinstance(connack, Connack)
        assert connack.reason == Reason.SUCCESS
        return peer

    async def send(self, *packets: Packet) -> None:
        self._writer.write(b"".join(encode(packet, V5) for packet in packets))
        await self._writer.drain()

    async def receive(self) -> Packet | None:
        """The next packet, None at the end."""
        while not self._packets:
            data = await self._reader.read(65_536)
            if not data:
                return None
            self._packets += [decode(first, body, V5) for first, body in self._framer.feed(data)]
        return self._packets.pop(0)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def _place(node: Node, listener: int = 0) -> tuple[str, int]:
    address = node.addresses[listener]
    return address.host, address.port


async def until(is_done: Callable[[], bool]) -> None:
    while not is_done():
        await asyncio.sleep(0.01)


def test_tls_and_plain_clients_meet(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = server_context(TlsFiles(certificate=str(certificate), key=str(key)))
    trusting = ssl.create_default_context(cafile=str(certificate))

    async def scenario() -> bytes:
        async with a_node(
            ListenerSettings(LOOPBACK), ListenerSettings(LOOPBACK, tls=context)
        ) as node:
            plain = f"mqtt://127.0.0.1:{node.addresses[0].port}"
            encrypted = f"mqtts://127.0.0.1:{node.addresses[1].port}"
            async with (
                accord.connect(encrypted, tls=trusting) as one,
                accord.connect(plain) as other,
                one.subscribe("a") as events,
            ):
                await other.publish("a", b"seen")
                return (await anext(events)).payload

    assert asyncio.run(scenario()) == b"seen"


def test_websocket_and_plain_clients_meet() -> None:
    async def scenario() -> bytes:
        async with a_node(
            ListenerSettings(LOOPBACK), ListenerSettings(LOOPBACK, is_websocket=True)
        ) as node:
            plain = f"mqtt://127.0.0.1:{node.addresses[0].port}"
            websocket = f"ws://127.0.0.1:{node.addresses[1].port}/mqtt"
            async with (
                accord.connect(websocket) as one,
                accord.connect(plain) as other,
                one.subscribe("a") as events,
            ):
                await other.publish("a", b"x" * 300_000)
                return (await anext(events)).payload

    assert asyncio.run(scenario()) == b"x" * 300_000


def test_users_have_passwords_and_rights() -> None:
    rights = Rights(publish=("mine/%u",), subscribe=("mine/#",))
    phrase = "open sesame"
    users = Users([User("ann", hash_password(phrase), rights)])

    async def scenario() -> list[str]:
        said = []
        async with a_node(users=users) as node:
            url = f"mqtt://127.0.0.1:{node.addresses[0].port}"
            for name, password in (("ann", "wrong"), ("bob", phrase), (None, None)):
                try:
                    async with accord.connect(url, username=name, password=password):
                        said.append("in")
                except RefusedError as error:
                    said.append(error.reason.name)
            async with accord.connect(url, username="ann", password=phrase) as session:
                await session.publish("mine/ann", b"x")
                for channel in ("mine/bob", "$SYS/x"):
                    with pytest.raises(RefusedError):
                        await session.publish(channel, b"x")
                with pytest.raises(RefusedError):
                    await session.subscribe("#").__aenter__()
        return said

    assert asyncio.run(scenario()) == ["BAD_USER_NAME_OR_PASSWORD"] * 3


def test_a_reader_that_stops_holds_up_nobody_and_is_bounded() -> None:
    limits = Limits(outbox_bytes=200_000)
    count = 30_000

    async def scenario() -> tuple[int, int, int]:
        async with a_node(limits=limits) as node:
            url = f"mqtt://127.0.0.1:{node.addresses[0].port}"
            stuck = await Peer.open(node, "stuck")
            await stuck.send(Subscribe(1, (TopicFilter("a"),)))
            assert isinstance(await stuck.receive(), Suback)
            async with (
                accord.connect(url) as reader,
                accord.connect(url) as writer,
                reader.subscribe("b") as events,
            ):
                for _ in range(count // 100):
                    frames = encode(Publish("a", b"x" * 1_000), V5) * 100
                    stuck_writer = await _flood(node, frames)
                    stuck_writer.close()
                await writer.publish("b", b"still here")
                assert (await anext(events)).payload == b"still here"
            session = node.broker.sessions["stuck"]
            waiting = session.outbox.bytes
            shed = node.statistics().shed
            await stuck.close()
            (client,) = shed.clients
            assert client.client == "stuck"
            return waiting, shed.causes["slow reader"], client.count

    waiting, by_cause, by_client = asyncio.run(scenario())
    assert waiting <= limits.outbox_bytes
    assert by_cause > 0
    assert by_client >= by_cause


async def _flood(node: Node, frames: bytes) -> asyncio.StreamWriter:
    """Send `frames` on a connection of their own and see them taken in."""
    reader, writer = await asyncio.open_connection(*_place(node))
    writer.write(encode(Connect(""), V5) + frames + encode(Pingreq(), V5))
    framer = Framer(1_000_000)
    packets: list[Packet] = []
    while not any(isinstance(packet, Pingresp) for packet in packets):
        data = await reader.read(65_536)
        assert data
        packets += [decode(first, body, V5) for first, body in framer.feed(data)]
    return writer


def test_answers_pass_events_that_wait_for_a_limit() -> None:
    async def scenario() -> list[type]:
        async with a_node() as node:
            node.server.set_limits(0, 0, {"limited": 8_000})
            limited = await Peer.open(node, "limited")
            await limited.send(Subscribe(1, (TopicFilter("a"),)))
            kinds: list[type] = [type(await limited.receive())]
            frames = encode(Publish("a", bytes(10_000)), V5) * 20
            (await _flood(node, frames)).close()
            kinds.append(type(await limited.receive()))
            await limited.send(Pingreq())
            kinds.append(type(await limited.receive()))
            node.server.set_limits(0, 0, {})
            kinds += [type(await limited.receive()) for _ in range(19)]
            await limited.close()
            return kinds

    assert asyncio.run(scenario()) == [Suback, Publish, Pingresp, *[Publish] * 19]


@pytest.mark.parametrize("strategy", ["weighted fair", "strict"])
@pytest.mark.parametrize("limit", ["bandwidth", "client_bandwidth"])
def test_an_alarm_does_not_wait_for_an_image_to_be_made_up_for(
    tmp_path: Path, limit: str, strategy: str
) -> None:
    book = tmp_path / "policies.toml"
    book.write_text(
        f'''strategy = "{strategy}"
{limit} = "16 kbit/s"
[[policies]]
name = "Alarms"
channel = "alarms"
importance = 6
'''
    )
    image = Publish("images", bytes(50_000))  # 25 s

    async def scenario() -> list[str]:
        async with a_node(policies=book) as node:
            patrol = await Peer.open(node, "patrol")
            await patrol.send(Subscribe(1, (TopicFilter("images"), TopicFilter("alarms"))))
            await patrol.receive()
            source = await Peer.open(node, "source")
            heard = []
            for each in (image, image, Publish("alarms", b"1"), Publish("alarms", b"2")):
                await source.send(each)
            for _ in range(3):
                packet = await asyncio.wait_for(patrol.receive(), 15)
                assert isinstance(packet, Publish)
                heard.append(packet.topic)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(patrol.receive(), 1)
            node.server.set_limits(0, 0, {})
            packet = await patrol.receive()
            assert isinstance(packet, Publish)
            await source.close()
            await patrol.close()
            return [*heard, packet.topic]

    *before, last = asyncio.run(scenario())
    assert sorted(before) == ["alarms", "alarms", "images"]
    assert last == "images"


@pytest.mark.parametrize("limit", ["bandwidth", "client_bandwidth"])
def test_what_a_limit_can_t_carry_before_its_deadline_makes_nobody_wait(
    tmp_path: Path, limit: str
) -> None:
    book = tmp_path / "policies.toml"
    book.write_text(
        f"""{limit} = "16 kbit/s"
[[policies]]
name = "Soon"
channel = "soon"
preferences = {{ deadline = "40 s" }}
"""
    )

    async def scenario() -> None:
        async with a_node(policies=book) as node:
            patrol = await Peer.open(node, "patrol")
            await patrol.send(Subscribe(1, (TopicFilter("images"), TopicFilter("soon"))))
            await patrol.receive()
            source = await Peer.open(node, "source")
            await source.send(Publish("images", bytes(50_000)))  # 25 s, and 25 s for the next
            await patrol.receive()
            await source.send(Publish("soon", bytes(50_000)))
            is_dropped = until(lambda: node.statistics().shed.causes.get("expired", 0) == 1)
            await asyncio.wait_for(is_dropped, 15)
            await source.close()
            await patrol.close()

    asyncio.run(scenario())


def test_a_client_that_reads_no_answers_is_not_read_any_more() -> None:
    pings = encode(Pingreq(), V5) * 10_000

    async def scenario() -> None:
        async with a_node() as node:
            with socket.create_connection(_place(node)) as stuck:
                stuck.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(stuck, encode(Connect("stuck"), V5))

                async def send_without_end() -> None:
                    while True:
                        await loop.sock_sendall(stuck, pings)

                sending = asyncio.create_task(send_without_end())
                await until(lambda: bool(node.server.connections))
                (protocol,) = node.server.connections.values()
                await until(lambda: not protocol.is_reading)
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    asyncio.run(scenario())


def test_too_many_connects_are_turned_away() -> None:
    limits = Limits(connects_per_s_per_address=3)

    async def scenario() -> tuple[int, dict[str, int]]:
        async with a_node(limits=limits) as node:
            accepted = 0
            for _ in range(6):
                reader, writer = await asyncio.open_connection(*_place(node))
                try:
                    writer.write(encode(Connect(""), V311))
                    accepted += bool(await reader.read(4))
                except ConnectionResetError:
                    pass
                writer.close()
            return accepted, node.statistics().connects_refused

    accepted, refused = asyncio.run(scenario())
    assert 3 <= accepted < 6
    assert refused["connection rate exceeded"] == 6 - accepted


def test_clients_are_told_when_the_node_stops() -> None:
    async def scenario() -> list[Packet | None]:
        async with a_node() as node:
            peer = await Peer.open(node)
        said = [await peer.receive(), await peer.receive()]
        await peer.close()
        return said

    goodbye, end = asyncio.run(scenario())
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason == Reason.SERVER_SHUTTING_DOWN
    assert end is None


def test_what_was_acknowledged_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> tuple[bytes, list[bytes]]:
        async with a_node(data=tmp_path, kept=("kept/#",)) as node:
            url = f"mqtt://127.0.0.1:{node.addresses[0].port}"
            async with (
                accord.connect(url, client_id="away") as session,
                session.subscribe("kept/+", qos=1, keep=True),
            ):
                pass
            async with accord.connect(url) as session:
                await session.publish("kept/a", b"1", qos=1)
                await session.publish("kept/a", b"2", qos=2)
                await session.publish("last", b"3", qos=1, retain=True)
        async with a_node(data=tmp_path, kept=("kept/#",)) as node:
            url = f"mqtt://127.0.0.1:{node.addresses[0].port}"
            async with (
                accord.connect(url, client_id="away", clean_start=False) as session,
                session.subscribe("kept/+", qos=2, keep=True) as events,
                session.subscribe("last") as retained,
            ):
                waiting = [(await anext(events)).payload for _ in range(2)]
                return (await anext(retained)).payload, waiting

    assert asyncio.run(scenario()) == (b"3", [b"1", b"2"])


def test_two_nodes_on_one_folder_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_node(data=tmp_path):
            with pytest.raises(JournalError, match="is being written by process"):
                async with a_node(data=tmp_path):
                    pass

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_said() -> None:
    async def scenario() -> None:
        async with a_node() as node:
            with pytest.raises(ListenError, match="another program listens there"):
                async with a_node(ListenerSettings(node.addresses[0])):
                    pass

    asyncio.run(scenario())


def test_status_tells_of_clients() -> None:
    async def scenario() -> None:
        async with a_node() as node:
            peer = await Peer.open(node, "here")
            await peer.send(Subscribe(1, (TopicFilter("a"), TopicFilter("b"))))
            await peer.receive()
            (client,) = node.clients()
            assert (client.client, client.subscriptions) == ("here", 2)
            assert client.is_connected
            assert node.is_ready()
            await peer.close()
            await until(lambda: not list(node.clients()))
        assert not node.is_ready()

    asyncio.run(scenario())


def test_the_pipeline_lives_with_the_node(tmp_path: Path) -> None:
    measured = [["channel", "a", "rate_hz", 2.5, time.time_ns() // 1_000_000]]
    options = PipelineOptions(
        command=fake_pipeline.command({"events": 2, "measured": measured}),
        declared={"x": "float"},
    )
    settings = Settings(
        name="alpha",
        data=tmp_path,
        listeners=(ListenerSettings(LOOPBACK),),
        statistics_s=0,
        pipeline=options,
    )

    def told(kind: str) -> list[dict[str, Any]]:
        return [each for each in fake_pipeline.told(tmp_path / "pipeline") if each["type"] == kind]

    async def scenario() -> None:
        async with Node(settings, Users(anonymous=EVERYTHING)) as node:
            assert node.is_ready()  # whatever the pipeline does
            page = await node.pipeline.page(EventQuery(channel="a"))
            assert len(page.events) == 2
            status = node.statistics().pipeline
            assert status is not None
            assert (status.state, status.archive) == ("ready", str(tmp_path / "archive"))
            await until(lambda: len(node.registry) == 1)
            await until(lambda: bool(told("watch")))

    asyncio.run(scenario())
    assert told("start")[0]["declared"] == {"x": "float"}
    assert told("watch")[0]["predicates"] == []


def test_which_predicates_are_registered(tmp_path: Path) -> None:
    async def scenario() -> tuple[WatchedPredicate, ...]:
        async with a_node() as node:
            url = f"mqtt://127.0.0.1:{node.addresses[0].port}"
            async with (
                accord.connect(url) as one,
                accord.connect(url) as other,
                one.subscribe("a/#", where="x > 1"),
                one.subscribe("b", where="x > 2"),
                one.subscribe("c", xpath="/d"),
                one.subscribe("e"),
                other.subscribe("b", where="x > 2"),
            ):
                return await registered_predicates(node.broker, most=2)

    assert asyncio.run(scenario()) == (
        WatchedPredicate("b", "x > 2", "", 2),
        WatchedPredicate("a/#", "x > 1", "", 1),
    )
