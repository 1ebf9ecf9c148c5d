from __future__ import annotations

import asyncio

from tests.runtime.transports.recording import until

from accord.runtime.transports.udp import UdpEndpoint, open_datagrams


def test_datagrams_reach_the_link_they_name() -> None:
    async def main() -> None:
        one = await open_datagrams("127.0.0.1")
        other = await open_datagrams("127.0.0.1")
        first: list[bytes] = []
        second: list[bytes] = []
        other.add(b"11111111", first.append)
        other.add(b"22222222", second.append)
        for datagram in (b"11111111a", b"22222222b", b"33333333c", b"short", b"11111111d"):
            one.send(datagram, "127.0.0.1", other.port)
        await until(lambda: len(first) == 2 and other.unknown == 2)
        assert (first, second) == ([b"11111111a", b"11111111d"], [b"22222222b"])
        other.remove(b"11111111")
        one.send(b"11111111e", "127.0.0.1", other.port)
        await until(lambda: other.unknown == 3)
        one.close()
        other.close()

    asyncio.run(main())


def test_what_can_t_be_sent_is_lost() -> None:
    async def main() -> None:
        one = await open_datagrams("127.0.0.1")
        one.send(b"12345678", "no number", 1)
        one.send(bytes(70_000), "127.0.0.1", 1)
        await until(lambda: one.unreachable == 2)
        was_full = one.is_full
        one.close()
        await asyncio.sleep(0)
        assert (was_full, one.is_full) == (False, True)
        one.send(b"12345678", "127.0.0.1", 1)

    asyncio.run(main())


def test_before_it_is_open_everything_is_lost() -> None:
    endpoint = UdpEndpoint()
    endpoint.send(b"12345678", "127.0.0.1", 1)
    endpoint.close()
    assert endpoint.is_full
