from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.runtime.transports.recording import Recorder, until

from accord.runtime.transports.interface import remote_of
from accord.runtime.transports.memory import MemoryNetwork


async def pair(network: MemoryNetwork, *, keeps_open: bool = False) -> tuple[Recorder, Recorder]:
    one, other = Recorder(), Recorder(keeps_open=keeps_open)
    listener = await network.listen("berlin", 0, lambda: other)
    await network.dial("berlin", listener.port, lambda: one)
    listener.close()
    return one, other


def run(test: Callable[[MemoryNetwork], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await test(MemoryNetwork())

    asyncio.run(main())


def test_bytes_arrive_in_order_and_are_local() -> None:
    async def test(network: MemoryNetwork) -> None:
        one, other = await pair(network)
        assert one.transport is not None
        assert remote_of(one.transport).is_loopback
        for number in range(100):
            one.write(bytes([number]))
        one.transport.writelines([b"a", b"b"])
        other.write(b"back")
        await until(lambda: len(other.data) == 102 and one.data == b"back")
        assert other.data == bytes(range(100)) + b"ab"

    run(test)


def test_places() -> None:
    async def test(network: MemoryNetwork) -> None:
        with pytest.raises(ConnectionRefusedError):
            await network.dial("nowhere", 1, Recorder)
        listener = await network.listen("berlin", 7, Recorder)
        assert (listener.host, listener.port) == ("berlin", 7)
        with pytest.raises(OSError, match="in use"):
            await network.listen("berlin", 7, Recorder)
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.dial("berlin", 7, Recorder)

    run(test)


def test_who_does_not_read_holds_the_writer_up() -> None:
    async def test(network: MemoryNetwork) -> None:
        one, other = await pair(network)
        assert one.transport is not None
        assert other.transport is not None
        one.transport.set_write_buffer_limits(high=1_000)
        other.transport.pause_reading()
        one.write(bytes(600))
        one.write(bytes(600))
        await asyncio.sleep(0)
        assert one.transport.get_write_buffer_size() == 1_200
        assert one.events == ["made", "paused"]
        assert not other.transport.is_reading()
        other.transport.resume_reading()
        await until(lambda: "resumed" in one.events)
        assert len(other.data) == 1_200
        assert one.transport.get_write_buffer_size() == 0

    run(test)


def test_closing_lets_what_was_written_arrive() -> None:
    async def test(network: MemoryNetwork) -> None:
        one, other = await pair(network)
        assert one.transport is not None
        one.write(b"last words")
        one.transport.close()
        one.write(b"too late")
        assert one.transport.is_closing()
        await until(lambda: one.is_lost and other.is_lost)
        assert other.data == b"last words"
        assert other.events == ["made", "eof", "lost"]
        assert one.error is other.error is None

    run(test)


def test_one_direction_may_end_before_the_other() -> None:
    async def test(network: MemoryNetwork) -> None:
        one, other = await pair(network, keeps_open=True)
        assert one.transport is not None
        assert other.transport is not None
        assert one.transport.can_write_eof()
        one.transport.write_eof()
        await until(lambda: "eof" in other.events)
        other.write(b"still here")
        await until(lambda: one.data == b"still here")
        other.transport.close()
        await until(lambda: one.is_lost and other.is_lost)

    run(test)


def test_a_cut_breaks_both_ends() -> None:
    async def test(network: MemoryNetwork) -> None:
        one, other = await pair(network)
        network.cut()
        await until(lambda: one.is_lost and other.is_lost)

    run(test)


def test_silence_holds_everything_back() -> None:
    async def test(network: MemoryNetwork) -> None:
        one, other = await pair(network)
        network.silence(True)
        one.write(b"unheard")
        await asyncio.sleep(0.01)
        assert other.data == b""
        network.silence(False)
        await until(lambda: other.data == b"unheard")
        network.silence(True)
        assert one.transport is not None
        one.transport.abort()
        await until(lambda: one.is_lost)
        assert not other.is_lost, "nobody is told"

    run(test)
