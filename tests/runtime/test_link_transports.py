"""Nodes in one process that are linked over TCP, WebSocket, TLS and through proxies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import SplitResult

import pytest
from tests.brokers import HOST
from tests.certificates import make_certificate
from tests.runtime.test_overlay_service import KEY, net_of, until, url_of
from tests.runtime.transports.proxies import Proxy

import accord
from accord.core.overlay.options import OverlayOptions
from accord.core.router.rights import EVERYTHING
from accord.runtime.addresses import ListenError, SocketAddress, parse_link_address
from accord.runtime.dialler import LinkTransports, TransportOptions
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.overlay_service import NetOptions
from accord.runtime.tls import TlsError, TlsFiles
from accord.runtime.users import Users

ANYWHERE = SocketAddress(HOST, 0)
WEB = SocketAddress(HOST, 0, "ws", "/links")
WEB_TLS = SocketAddress(HOST, 0, "wss", "/links")


def node(
    name: str, *neighbours: SocketAddress, listen: tuple[SocketAddress, ...] = (ANYWHERE,), key:
    bytes = KEY, transports: TransportOptions | None = None,
) -> Node:  # fmt: skip
    options = NetOptions(
        listen=listen,
        neighbours=neighbours,
        key=key,
        transports=transports or TransportOptions(),
        overlay=OverlayOptions(ping_us=50_000),
    )
    settings = Settings(
        name=name, listeners=(ListenerSettings(ANYWHERE),), statistics_s=0, net=options
    )
    return Node(settings, Users(anonymous=EVERYTHING))


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(main())


def place(one: Node, number: int = 0) -> SocketAddress:
    return net_of(one).addresses[number]


async def send(source: Node, destination: Node, channel: str, count: int = 20) -> None:
    """Events go from a client of one to a client of the other, small ones and large ones."""
    async with (
        accord.connect(url_of(source)) as publisher,
        accord.connect(url_of(destination)) as subscriber,
        subscriber.subscribe(f"{channel}/#", qos=1) as events,
    ):
        await until(
            lambda: destination.settings.name in net_of(source).bridge.remote_interests.nodes
        )
        sent = [bytes([at]) * (at * 20_000 + 1) for at in range(count)]
        for payload in sent:
            await publisher.publish(f"{channel}/x", payload, qos=1)
        assert [(await anext(events)).payload for _ in sent] == sent


def test_three_nodes_one_link_by_tcp_one_by_websocket() -> None:
    async def test() -> None:
        async with (
            node("a") as a,
            node("b", place(a), listen=(ANYWHERE, WEB)) as b,
            node("c", place(b, 1)) as c,
        ):
            assert str(place(b, 1)).startswith("ws://127.0.0.1:")
            assert str(place(b, 1)).endswith("/links")
            await until(lambda: len(net_of(b).overlay.used_neighbours()) == 2)
            await send(a, c, "there")
            await send(c, a, "back")
            by_node = {link.node: link for link in net_of(b).links()}
            assert by_node["c"].traffic.received.bytes > 20 * 19 * 10_000

    run(test)


def test_bad_guests_at_the_websocket_cost_no_link() -> None:
    async def test() -> None:
        async with node("a", listen=(WEB,)) as a, node("b", place(a)) as b:
            await until(lambda: net_of(a).overlay.used_neighbours() == ["b"])
            port = place(a).port
            upgrade = (
                b"GET /links HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Protocol: accord-link\r\n\r\n"
            )
            for words, then in (
                (b"GET / HTTP/1.1\r\n\r\n", b""),
                (bytes(100_000), b""),
                (upgrade, b"\xff" * 1_000),
                (upgrade, b"\x82\xff" + (1 << 50).to_bytes(8)),
                (upgrade, b"\x82\x85" + bytes(4) + b"hello"),  # a message, but no greeting
            ):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(words)
                try:
                    if then:
                        await reader.readuntil(b"\r\n\r\n")
                        writer.write(then)
                    await reader.read()
                except ConnectionResetError:
                    pass
                writer.close()
            assert net_of(a).overlay.used_neighbours() == ["b"]
            await send(b, a, "still", 3)

    run(test)


def test_tls_and_a_proxy_on_the_way(tmp_path: Path) -> None:
    async def test() -> None:
        made = {name: make_certificate(tmp_path, name) for name in ("a", "b")}
        authority = tmp_path / "authority.pem"
        authority.write_bytes(b"".join(each.read_bytes() for each, _ in made.values()))

        def options(name: str, proxy: SplitResult | None = None) -> TransportOptions:
            certificate, key = made[name]
            files = TlsFiles(certificate=str(certificate), key=str(key), client_ca=str(authority))
            return TransportOptions(tls=files, proxy=proxy)

        proxy = Proxy()
        through = await proxy.start()
        async with (
            node("a", listen=(WEB_TLS,), key=b"", transports=options("a")) as a,
            node("b", place(a), listen=(), key=b"", transports=options("b", through)) as b,
        ):
            await until(lambda: net_of(a).overlay.used_neighbours() == ["b"])
            assert len(proxy.asked) == 1
            (link,) = net_of(a).links()
            assert link.is_encrypted
            await send(b, a, "through", 3)
        await proxy.stop()

    run(test)


def test_who_comes_through_a_proxy_needs_a_proof() -> None:
    """Although the proxy is on this machine."""

    async def test() -> None:
        proxy = Proxy()
        through = TransportOptions(proxy=await proxy.start())
        async with (
            node("a", listen=(WEB,), key=b"") as a,
            node("b", place(a), key=b"", transports=through) as b,
        ):
            problem = "without a shared key"
            await until(
                lambda: any(problem in each.problem for each in net_of(b).status().links_down)
            )
            assert not net_of(a).overlay.used_neighbours()
        await proxy.stop()

    run(test)


def test_what_can_t_be_listened_on() -> None:
    async def test() -> None:
        async with node("a", listen=(WEB,)) as a:
            with pytest.raises(ListenError, match=r"can't listen on ws://127.*another program"):
                async with node("b", listen=(place(a),)):
                    pass

    run(test)


def test_certificates_are_read_where_they_are_needed() -> None:
    missing = TlsFiles(certificate="/nowhere/a.pem")
    transports = LinkTransports(TransportOptions(tls=missing))
    transports.of(ANYWHERE)
    transports.of(WEB)
    with pytest.raises(TlsError):
        transports.of(WEB_TLS)
    with pytest.raises(TlsError):
        LinkTransports(TransportOptions(tls=missing, is_encrypted=True)).of(ANYWHERE)
    LinkTransports(TransportOptions()).of(WEB_TLS)  # to dial whom the system trusts


def test_addresses_of_links() -> None:
    for text, expected in (
        ("127.0.0.1:7", SocketAddress("127.0.0.1", 7)),
        ("tcp://host:7", SocketAddress("host", 7)),
        ("ws://host:7", SocketAddress("host", 7, "ws")),
        ("ws://host:7/", SocketAddress("host", 7, "ws")),
        ("wss://[::1]:7/a/b?c=d", SocketAddress("::1", 7, "wss", "/a/b?c=d")),
    ):
        found = parse_link_address(text)
        assert found == expected
        assert parse_link_address(str(found)) == expected
    for text in (
        "", "ws://", "ws://host", "http://host:7", "ws://host:7/a b", "ws://host:7/\r\nX: y",
        "ws://host:99999", "wss://a b:7", "ws://host:7/ä", "ws://host:7/" + "x" * 2_000,
    ):  # fmt: skip
        assert parse_link_address(text) is None
