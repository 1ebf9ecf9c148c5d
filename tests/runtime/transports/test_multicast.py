"""Real multicast, on the loopback interface."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.ports import free_port
from tests.runtime.transports.recording import until

from accord.runtime.transports.udp import MulticastEndpoint, is_group, open_multicast

GROUP = "239.255.77.1"
HERE = "127.0.0.1"


def test_everybody_in_the_group_gets_it_once() -> None:
    async def main() -> None:
        port = free_port()
        endpoints = [await open_multicast(GROUP, port, interface=HERE) for _ in range(3)]
        elsewhere = await open_multicast("239.255.77.2", port, interface=HERE)
        heard: list[list[tuple[bytes, str]]] = []
        for each in (*endpoints, elsewhere):
            came: list[tuple[bytes, str]] = []
            heard.append(came)
            each.receive = lambda data, host, came=came: came.append((data, host))
        endpoints[0].send(b"one")
        endpoints[1].send(b"other")
        await until(lambda: all(len(came) == 2 for came in heard[:3]))
        for came in heard[:3]:
            assert sorted(came) == [(b"one", HERE), (b"other", HERE)], "the sender included"
        assert heard[3] == []
        assert [each.sent for each in endpoints] == [1, 1, 0]
        for each in (*endpoints, elsewhere):
            each.close()

    asyncio.run(main())


def test_what_can_t_be_sent_is_lost_and_counted() -> None:
    async def main() -> None:
        endpoint = await open_multicast(GROUP, free_port(), interface=HERE)
        endpoint.send(bytes(70_000))
        await until(lambda: endpoint.failed == 1)
        endpoint.close()
        await asyncio.sleep(0)
        assert endpoint.is_full
        endpoint.send(b"late")
        assert endpoint.failed == 2

    asyncio.run(main())


def test_before_it_is_open_everything_is_lost() -> None:
    endpoint = MulticastEndpoint(GROUP, 1)
    endpoint.send(b"early")
    endpoint.datagram_received(b"nobody listens", (HERE, 1))
    endpoint.close()
    assert (endpoint.sent, endpoint.failed) == (0, 1)


def test_an_interface_that_is_not_there() -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="No such device"):
            await open_multicast(GROUP, free_port(), interface="192.0.2.1")

    asyncio.run(main())


def test_which_addresses_are_groups() -> None:
    assert is_group("224.0.0.1")
    assert is_group(GROUP)
    for host in ("127.0.0.1", "ff02::1", "localhost", "", "240.0.0.1"):
        assert not is_group(host)
