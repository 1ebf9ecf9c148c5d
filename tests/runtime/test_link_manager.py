"""Nodes with nothing but links, over memory and over real sockets on loopback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.certificates import make_certificate
from tests.core.links.conversing import Load, Note, encode
from tests.runtime.fake_overlay import Node, close_all
from tests.runtime.transports.recording import until

from accord.core.links.options import LinkOptions
from accord.runtime import neighbour_link
from accord.runtime.addresses import ListenError, SocketAddress
from accord.runtime.connection_writer import clock_us
from accord.runtime.tls import TlsFiles, link_contexts
from accord.runtime.transports.interface import LinkTransport
from accord.runtime.transports.memory import MemoryNetwork
from accord.runtime.transports.tcp import TcpTransport
from accord.runtime.transports.udp import open_datagrams

LOOPBACK = SocketAddress("127.0.0.1", 0)
QUICK = LinkOptions(keepalive_us=100_000, handshake_us=300_000, report_us=300_000)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(main())


async def link(one: Node, other: Node) -> SocketAddress:
    """`one` dials `other`; gives where that listens."""
    address = await other.neighbours.listen(LOOPBACK)
    one.neighbours.dial(address)
    await until(lambda: one.is_linked(other.name) and other.is_linked(one.name))
    return address


def test_messages_travel_both_ways() -> None:
    async def test() -> None:
        athens, berlin = Node("athens", TcpTransport()), Node("berlin", TcpTransport())
        await link(athens, berlin)
        assert athens.overlay.events == ["up berlin"]
        athens.send("berlin", *(Note(number) for number in range(100)))
        berlin.send("athens", Note(7, "x" * 100_000))
        athens.overlay.put("berlin", *(Load(100 + at, bytes(1_000)) for at in range(1_000)))
        await until(lambda: len(berlin.overlay.numbers("athens")) == 1_100)
        assert berlin.overlay.numbers("athens") == list(range(1_100)), "control went first"
        await until(lambda: athens.overlay.numbers("berlin") == [7])
        (status,) = athens.neighbours.status().links
        assert (status.node, status.address, status.is_dialed) == ("berlin", "127.0.0.1", True)
        assert (status.version, status.incarnation, status.is_encrypted) == (1, 1, False)
        assert status.traffic.sent.data.messages == 1_000
        assert status.traffic.sent.control.messages == 100
        assert status.traffic.received.control.messages == 1
        total = berlin.neighbours.status().traffic.received.bytes
        assert total == status.traffic.sent.bytes
        await close_all((athens, berlin))
        assert berlin.overlay.events == ["up athens", "down athens"]
        assert berlin.neighbours.status().traffic.received.data.messages == 1_000
        assert athens.neighbours.status().links == ()

    run(test)


def test_control_goes_between_the_pieces_of_a_large_message() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens, berlin = Node("athens", network), Node("berlin", network)
        await link(athens, berlin)
        athens.overlay.put("berlin", Load(1, bytes(5_000_000)))
        athens.neighbours.due()
        sent = athens.neighbours.status().links[0].traffic.sent.data
        await until(lambda: sent.frames > 3)
        assert sent.messages == 0
        athens.send("berlin", Note(2))
        await until(lambda: len(berlin.overlay.numbers("athens")) == 2)
        assert berlin.overlay.numbers("athens") == [2, 1]
        await close_all((athens, berlin))

    run(test)


def test_a_neighbour_that_takes_nothing_costs_no_more_than_a_piece() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens, berlin = Node("athens", network), Node("berlin", network)
        await link(athens, berlin)
        network.silence(True)
        athens.overlay.put("berlin", *(Load(at, bytes(10_000)) for at in range(100)))
        athens.neighbours.due()
        await until(lambda: len(athens.overlay.outboxes["berlin"]) < 100)
        await asyncio.sleep(0.02)
        assert len(athens.overlay.outboxes["berlin"]) > 85, "what is not sent can still be ordered"
        network.silence(False)
        await until(lambda: berlin.overlay.numbers("athens") == list(range(100)))
        await close_all((athens, berlin))

    run(test)


@pytest.mark.parametrize("make", [MemoryNetwork, TcpTransport])
def test_all_dial_all_and_one_connection_per_pair_stays(
    make: Callable[[], LinkTransport],
) -> None:
    async def test() -> None:
        transport = make()
        nodes = [Node(name, transport) for name in ("athens", "berlin", "chania")]
        addresses = [await node.neighbours.listen(LOOPBACK) for node in nodes]
        for node in nodes:
            for address in addresses:  # its own included
                node.neighbours.dial(address)
        pairs = [(one, other) for one in nodes for other in nodes if one is not other]

        def have_all_heard() -> bool:
            # While two connections of a pair are sorted out, messages may be lost with one.
            for one, other in pairs:
                if one.is_linked(other.name) and not other.overlay.numbers(one.name):
                    one.send(other.name, Note(1))
            return all(other.overlay.numbers(one.name) for one, other in pairs)

        await until(have_all_heard)
        for one, other in pairs:
            told = [event for event in one.overlay.events if event.endswith(other.name)]
            assert len(told) <= 3, "nobody wavers"

        def is_settled(one: Node, other: Node) -> bool:
            link = one.neighbours.links.get(other.name)
            return link is not None and link.is_dialer == (one.name < other.name)

        await until(lambda: all(is_settled(one, other) for one, other in pairs))
        await close_all(nodes)

    run(test)


def test_a_lost_connection_comes_back() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens, berlin = Node("athens", network), Node("berlin", network)
        await link(athens, berlin)
        for count in range(1, 4):
            network.cut()
            await until(lambda count=count: len(berlin.overlay.events) == 2 * count + 1)  # type: ignore[misc]
            await until(lambda: athens.is_linked("berlin") and berlin.is_linked("athens"))
        assert berlin.overlay.events == ["up athens", *["down athens", "up athens"] * 3]
        athens.send("berlin", Note(1))
        await until(lambda: berlin.overlay.numbers("athens") == [1])
        await close_all((athens, berlin))

    run(test)


def test_a_neighbour_that_is_not_there_yet_is_tried_again() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens = Node("athens", network)
        athens.neighbours.dial(SocketAddress("127.0.0.1", 7))
        await until(lambda: athens.neighbours.status().dials[0].attempts >= 2)
        (dial,) = athens.neighbours.status().dials
        assert (dial.address, dial.node, dial.problem) == ("127.0.0.1:7", "", "connection refused")
        berlin = Node("berlin", network)
        await berlin.neighbours.listen(SocketAddress("127.0.0.1", 7))
        await until(lambda: athens.is_linked("berlin"))
        await until(lambda: athens.neighbours.status().dials[0].problem == "")
        assert athens.neighbours.status().dials[0].node == "berlin"
        await close_all((athens, berlin))

    run(test)


def test_silence_ends_a_link_and_keepalives_keep_it() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens, berlin = (Node(name, network, options=QUICK) for name in ("athens", "berlin"))
        await link(athens, berlin)
        # For longer than one that hears nothing is kept.
        await until(
            lambda: any(
                status.traffic.received.link.frames >= 7
                for status in athens.neighbours.status().links
            )
        )
        network.silence(True)
        await until(lambda: not athens.is_linked("berlin") and not berlin.is_linked("athens"))
        network.silence(False)
        await until(lambda: athens.is_linked("berlin") and berlin.is_linked("athens"))
        await close_all((athens, berlin))

    run(test)


def test_a_restarted_neighbour_takes_its_own_place() -> None:
    """Although nobody has noticed that it was gone: its former self is silent."""

    async def test() -> None:
        network = MemoryNetwork()
        silent = LinkOptions(keepalive_us=1_000_000_000)
        athens = Node("athens", network, quiet_us=500_000)
        berlin = Node("berlin", network, incarnation=2, options=silent)
        address = await athens.neighbours.listen(LOOPBACK)
        berlin.neighbours.dial(address)
        await until(lambda: athens.is_linked("berlin"))
        again = Node("berlin", network, incarnation=1)  # its clock may have been set back
        again.neighbours.dial(address)
        await until(lambda: again.is_linked("athens"))
        assert athens.overlay.events == ["up berlin", "down berlin", "up berlin"]
        assert athens.neighbours.status().refusals == ()
        await close_all((again, athens, berlin))

    run(test)


@pytest.mark.parametrize("incarnation", [1, 3])
def test_a_namesake_is_refused_listed_and_told_once_while_the_other_is_alive(
    incarnation: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens, berlin = Node("athens", network), Node("berlin", network, incarnation=2)
        address = await athens.neighbours.listen(LOOPBACK)
        berlin.neighbours.dial(address)
        await until(lambda: athens.is_linked("berlin"))
        other = Node("berlin", network, incarnation=incarnation)
        other.neighbours.dial(address)
        await until(lambda: other.neighbours.status().dials[0].attempts >= 3)
        await until(lambda: "and alive" in other.neighbours.status().dials[0].problem)
        assert athens.overlay.events == ["up berlin"], "who was there stays"
        (refused,) = athens.neighbours.status().refusals
        assert refused.node == "berlin"
        assert refused.problem == "another node berlin is linked with athens, and alive"
        assert refused.remedy == "give each node a name of its own"
        assert refused.attempts > 1
        await berlin.neighbours.close()
        await until(lambda: other.is_linked("athens"))
        assert athens.neighbours.status().refusals == ()
        await close_all((other, athens))

    with caplog.at_level(logging.WARNING):
        run(test)
    said = [record.message for record in caplog.records]
    assert said.count("neighbour: refused") == 1


def test_who_is_objected_to_is_refused() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens = Node("athens", network, objection=lambda new: f"there is a {new.node}")
        berlin = Node("berlin", network)
        berlin.neighbours.dial(await athens.neighbours.listen(LOOPBACK))
        await until(lambda: "there is a berlin" in berlin.neighbours.status().dials[0].problem)
        assert athens.overlay.events == []
        await close_all((athens, berlin))

    run(test)


def test_a_connection_that_only_one_side_has_lost_does_not_keep_the_other_out() -> None:
    """Its keepalives would tell, but much later."""

    async def test() -> None:
        network = MemoryNetwork()
        options = LinkOptions(keepalive_us=1_000_000_000)
        athens, berlin = (Node(name, network, options=options) for name in ("athens", "berlin"))
        await link(athens, berlin)
        address = await athens.neighbours.listen(LOOPBACK)
        network.silence(True)
        berlin.neighbours.links["athens"].abort()
        await until(lambda: not berlin.is_linked("athens"))
        network.silence(False)
        assert athens.is_linked("berlin")
        berlin.neighbours.dial(address)
        await until(lambda: berlin.is_linked("athens"))
        assert athens.overlay.events[:3] == ["up berlin", "down berlin", "up berlin"]
        await close_all((athens, berlin))

    run(test)


def test_refusals_are_told_and_logged_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        athens = Node("athens", TcpTransport(), key=b"one")
        berlin = Node("berlin", TcpTransport(), key=b"two")
        athens.neighbours.dial(await berlin.neighbours.listen(LOOPBACK))
        await until(lambda: athens.neighbours.status().dials[0].attempts >= 3)
        (dial,) = athens.neighbours.status().dials
        assert dial.problem == ("reported by the peer: shared key mismatch with node athens")
        assert dial.remedy == "give both nodes the same shared key"
        assert berlin.neighbours.refused >= 2
        await close_all((athens, berlin))
        assert athens.overlay.events == berlin.overlay.events == []

    with caplog.at_level(logging.WARNING):
        run(test)
    said = [record.message for record in caplog.records]
    assert said.count("neighbour: link failed") == 1, "the same problem is told once"
    assert "neighbour: refused" in said


def test_strangers_and_silent_connections_end() -> None:
    async def test() -> None:
        berlin = Node("berlin", TcpTransport(), options=QUICK)
        address = await berlin.neighbours.listen(LOOPBACK)
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x10\x0c\0\x04MQTT", b"", bytes(100_000)):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(words)
            answer = await reader.read()
            assert b"ended" in answer
            writer.close()
        await until(lambda: berlin.neighbours.refused == 4)
        assert berlin.overlay.events == []
        await close_all([berlin])

    run(test)


def test_more_links_than_allowed() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        hub = Node("hub", network, most_links=2)
        address = await hub.neighbours.listen(LOOPBACK)
        nodes = [Node(f"node-{at}", network) for at in range(3)]
        for node in nodes:
            node.neighbours.dial(address)
        await until(lambda: len(hub.neighbours.links) == 2 and hub.neighbours.refused > 0)
        refused = [node for node in nodes if not node.neighbours.links]
        assert len(refused) == 1
        await until(lambda: "hub has 2 links" in refused[0].neighbours.status().dials[0].problem)
        await close_all((*nodes, hub))

    run(test)


def test_a_mistake_over_one_message_costs_no_link() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens, berlin = Node("athens", network), Node("berlin", network)
        await link(athens, berlin)
        berlin.overlay.fails_at = 2
        athens.send("berlin", Note(1), Note(2), Note(3))
        await until(lambda: berlin.overlay.numbers("athens") == [1, 3])
        athens.send("nobody", Note(4))
        await until(lambda: athens.neighbours.unsent == 1)
        assert athens.overlay.events == ["up berlin"]
        await close_all((athens, berlin))

    run(test)


def test_nobody_waits_until_all_is_said_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour_link, "_WORK_US", 0)

    async def test() -> None:
        transport = TcpTransport()
        athens, berlin, cairo = (Node(name, transport) for name in ("athens", "berlin", "cairo"))
        await link(athens, berlin)
        await link(cairo, berlin)
        athens.send("berlin", *(Note(number) for number in range(5_000)))
        await until(lambda: len(berlin.overlay.numbers("athens")) > 100)
        cairo.send("berlin", Note(1))
        await until(lambda: berlin.overlay.numbers("cairo") == [1])
        assert len(berlin.overlay.numbers("athens")) < 5_000
        await until(lambda: len(berlin.overlay.numbers("athens")) == 5_000)
        assert berlin.overlay.numbers("athens") == list(range(5_000))
        athens.overlay.put("berlin", Load(5_000, b""))
        athens.neighbours.due()
        await until(lambda: berlin.overlay.numbers("athens")[-1] == 5_000)
        await close_all((athens, berlin, cairo))

    run(test)


def test_what_can_not_be_encoded_costs_nobody_else_anything() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens, berlin = Node("athens", network), Node("berlin", network)
        await link(athens, berlin)
        athens.send("berlin", Note(1 << 64), Note(2))
        await until(lambda: berlin.overlay.numbers("athens") == [2])
        await close_all((athens, berlin))

    run(test)


def test_the_overlay_is_woken_when_it_is_due() -> None:
    async def test() -> None:
        athens = Node("athens", MemoryNetwork())
        for count in range(1, 4):
            athens.overlay.due_us = clock_us() + 1_000
            athens.neighbours.due()
            await until(lambda count=count: athens.overlay.advanced == count)  # type: ignore[misc]
        await close_all([athens])

    run(test)


def test_a_link_that_is_no_longer_wanted() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens, berlin = Node("athens", network), Node("berlin", network)
        address = await link(athens, berlin)
        athens.neighbours.undial(address)
        athens.neighbours.undial(address)
        await until(lambda: not athens.is_linked("berlin") and not berlin.is_linked("athens"))
        assert athens.neighbours.status().dials == ()
        await close_all((athens, berlin))

    run(test)


def test_an_address_that_is_taken() -> None:
    async def test() -> None:
        athens, berlin = Node("athens", TcpTransport()), Node("berlin", TcpTransport())
        address = await athens.neighbours.listen(LOOPBACK)
        with pytest.raises(ListenError, match="another program listens there"):
            await berlin.neighbours.listen(address)
        await close_all((athens, berlin))

    run(test)


def test_datagrams_carry_what_tolerates_loss() -> None:
    async def test() -> None:
        nodes = []
        for name in ("athens", "berlin"):
            endpoint = await open_datagrams("127.0.0.1")
            options = LinkOptions(report_us=300_000)
            nodes.append(Node(name, TcpTransport(), options=options, endpoint=endpoint))
        athens, berlin = nodes
        await link(athens, berlin)
        session = athens.neighbours.links["berlin"].session
        assert session is not None
        datagrams = session.datagrams
        assert datagrams is not None
        await until(lambda: datagrams.is_open(clock_us()))
        sent = session.traffic.sent
        before = sent.datagrams.messages
        athens.overlay.tolerant["berlin"] = [encode(Load(at, bytes(300))) for at in range(20)]
        athens.overlay.tolerant["berlin"].append(encode(Load(20, bytes(3_000))))
        athens.neighbours.due()
        # On loopback they arrive, if perhaps not in order.
        await until(lambda: sorted(berlin.overlay.numbers("athens")) == list(range(21)))
        assert sent.datagrams.messages - before == 20
        assert sent.data.messages == 1, "it does not fit into a datagram"
        (status,) = berlin.neighbours.status().links
        assert status.traffic.received.datagrams.messages == 20
        assert status.datagrams_lost == 0
        for node in nodes:
            assert node.neighbours.endpoint is not None
            node.neighbours.endpoint.close()
        await close_all(nodes)

    run(test)


def test_tls_links(tmp_path: Path) -> None:
    async def test() -> None:
        names = ("athens", "berlin")
        made = [make_certificate(tmp_path, name) for name in names]
        authority = tmp_path / "authority.pem"
        authority.write_bytes(b"".join(certificate.read_bytes() for certificate, _ in made))
        transports = []
        for certificate, key in made:
            accepting, dialing = link_contexts(
                TlsFiles(certificate=str(certificate), key=str(key), client_ca=str(authority))
            )
            transports.append(TcpTransport(accepting=accepting, dialing=dialing))
        athens = Node("athens", transports[0], key=b"")
        berlin = Node("berlin", transports[1], key=b"")
        await link(athens, berlin)
        session = athens.neighbours.links["berlin"].session
        assert session is not None
        assert session.remote.certified == ("berlin", "localhost")
        assert athens.neighbours.status().links[0].is_encrypted
        athens.overlay.put("berlin", Load(1, bytes(3_000_000)))
        athens.send("berlin", Note(0))
        await until(lambda: berlin.overlay.numbers("athens") == [0, 1])
        plain = Node("plain", TcpTransport(), key=b"")
        plain.neighbours.dial(await berlin.neighbours.listen(LOOPBACK))
        await until(lambda: plain.neighbours.status().dials[0].problem != "")
        assert "TLS on both or none" in plain.neighbours.status().dials[0].remedy
        await close_all((plain, athens, berlin))

    run(test)


def test_only_the_expected_node_will_do() -> None:
    async def test() -> None:
        network = MemoryNetwork()
        athens, berlin = Node("athens", network), Node("berlin", network)
        address = await link(athens, berlin)
        same = await berlin.neighbours.listen(LOOPBACK)
        athens.neighbours.dial(same, "chania")
        await until(lambda: athens.neighbours.status().dials[1].attempts >= 2)
        assert "expected node chania" in athens.neighbours.status().dials[1].problem
        assert athens.overlay.events == ["up berlin"], "the link that is there has stayed"
        athens.neighbours.undial(same)
        assert athens.neighbours.dial_status(same) is None
        assert athens.neighbours.dial_status(address) is not None
        await close_all((athens, berlin))

    run(test)
