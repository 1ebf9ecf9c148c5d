"""Relays as the network sees them: what comes out of the other end, and when it does not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from accord.apps.five_cities.relays import HOST, WAITING_BYTES, Relay

PATIENCE_S: Final = 20.0

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Target:
    """A server behind a relay; `accepted` gives its end of each connection."""

    def __init__(self) -> None:
        self.accepted: asyncio.Queue[Ends] = asyncio.Queue()
        self.all: list[Ends] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.all.append((reader, writer))
        self.accepted.put_nowait((reader, writer))


class Line:
    """A relay with its target, and connections through it."""

    def __init__(self, relay: Relay, target: Target) -> None:
        self.relay = relay
        self.target = target
        self.dialled: list[Ends] = []

    async def dial(self) -> Ends:
        ends = await asyncio.open_connection(HOST, self.relay.port)
        self.dialled.append(ends)
        return ends

    async def connect(self) -> tuple[Ends, Ends]:
        near = await self.dial()
        return near, await self.target.accepted.get()


@asynccontextmanager
async def line(relay: Relay) -> AsyncIterator[Line]:
    target = Target()
    server = await asyncio.start_server(target.accept, HOST, 0)
    await relay.start()
    relay.set_target(server.sockets[0].getsockname()[1])
    made = Line(relay, target)
    try:
        yield made
    finally:
        await relay.close()
        server.close()
        for _, writer in (*made.dialled, *target.all):
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        await server.wait_closed()


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scene()

    asyncio.run(within())


async def is_broken(reader: asyncio.StreamReader) -> bool:
    """Waits until it ends, one way or the other."""
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


def test_both_directions_take_their_time() -> None:
    async def scene() -> None:
        async with line(Relay(30)) as link:
            (reader, writer), (far_reader, far_writer) = await link.connect()
            loop = asyncio.get_running_loop()
            for into, out in ((writer, far_reader), (far_writer, reader)):
                begun_s = loop.time()
                into.write(b"hello")
                assert await out.readexactly(5) == b"hello"
                assert loop.time() - begun_s >= 0.029

    run(scene)


def test_everything_arrives_in_order_while_the_delay_changes() -> None:
    async def scene() -> None:
        relay = Relay(5, jitter_ms=3, random=random.Random(7).random)  # noqa: S311
        async with line(relay) as link:
            (_, writer), (far_reader, _) = await link.connect()
            parts = [bytes([number]) * 100 for number in range(200)]
            for number, part in enumerate(parts):
                relay.slow_down((number * 7) % 20)
                writer.write(part)
                await asyncio.sleep(0)
            writer.write_eof()
            assert await far_reader.read(-1) == b"".join(parts)

    run(scene)


def test_what_is_slowed_down_later_does_not_wait_for_it() -> None:
    async def scene() -> None:
        relay = Relay(1)
        async with line(relay) as link:
            (_, writer), (far_reader, _) = await link.connect()
            writer.write(b"a")
            assert await far_reader.readexactly(1) == b"a"
            relay.slow_down(3_600_000)
            writer.write(b"b")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(far_reader.readexactly(1), 0.05)

    run(scene)


def test_closing_is_passed_on_after_everything_before_it() -> None:
    async def scene() -> None:
        async with line(Relay(10)) as link:
            (_, writer), (far_reader, far_writer) = await link.connect()
            writer.write(b"last words")
            writer.close()
            assert await far_reader.read(-1) == b"last words"
            assert await is_broken(far_reader)
            far_writer.close()

    run(scene)


def test_half_closed_connections_still_speak_the_other_way() -> None:
    async def scene() -> None:
        async with line(Relay(2)) as link:
            (reader, writer), (far_reader, far_writer) = await link.connect()
            writer.write_eof()
            assert await far_reader.read(-1) == b""
            far_writer.write(b"answer")
            assert await reader.readexactly(6) == b"answer"

    run(scene)


def test_a_cut_link_breaks_what_is_there_and_what_comes_until_it_heals() -> None:
    async def scene() -> None:
        relay = Relay(5)
        async with line(relay) as link:
            (reader, writer), (far_reader, _) = await link.connect()
            writer.write(b"lost")
            relay.cut()
            assert await is_broken(reader)
            assert await is_broken(far_reader)
            again, _ = await link.dial()
            assert await is_broken(again)
            assert link.target.accepted.empty()
            relay.heal()
            (_, writer), (far_reader, _) = await link.connect()
            writer.write(b"back")
            assert await far_reader.readexactly(4) == b"back"

    run(scene)


def test_a_silent_link_swallows_everything_and_says_nothing() -> None:
    async def scene() -> None:
        relay = Relay(5)
        async with line(relay) as link:
            (reader, writer), (far_reader, _) = await link.connect()
            writer.write(b"on its way")
            relay.silence()
            writer.write(b"after that")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(far_reader.read(1), 0.05)
            assert not reader.at_eof()
            relay.heal()
            assert await is_broken(reader), "bytes are missing: it can't go on"
            (_, writer), (far_reader, _) = await link.connect()
            writer.write(b"back")
            assert await far_reader.readexactly(4) == b"back"

    run(scene)


def test_who_dials_too_early_waits_for_the_target() -> None:
    async def scene() -> None:
        relay = Relay(1)
        port = await relay.start()
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"anybody there?")
        target = Target()
        server = await asyncio.start_server(target.accept, HOST, 0)
        relay.set_target(server.sockets[0].getsockname()[1])
        far_reader, far_writer = await target.accepted.get()
        assert await far_reader.readexactly(14) == b"anybody there?"
        await relay.close()
        assert await is_broken(reader)
        for each in (writer, far_writer):
            each.close()
        server.close()
        await server.wait_closed()

    run(scene)


def test_a_target_that_is_gone_breaks_the_connection() -> None:
    async def scene() -> None:
        server = await asyncio.start_server(lambda *_: None, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        relay = Relay(1)
        await relay.start()
        relay.set_target(port)
        reader, writer = await asyncio.open_connection(HOST, relay.port)
        assert await is_broken(reader)
        writer.close()
        await relay.close()

    run(scene)


def test_a_link_that_is_full_takes_no_more() -> None:
    async def scene() -> None:
        async with line(Relay(3_600_000)) as link:
            (_, writer), _ = await link.connect()

            async def say() -> None:
                for _ in range(20):
                    writer.write(bytes(WAITING_BYTES))
                    await writer.drain()

            saying = asyncio.create_task(say())
            _, unfinished = await asyncio.wait([saying], timeout=0.5)
            assert unfinished
            saying.cancel()
            link.relay.cut()  # else closing would wait for what it never takes

    run(scene)


def test_much_goes_through_a_narrow_reader() -> None:
    async def scene() -> None:
        async with line(Relay(1)) as link:
            (_, writer), (far_reader, _) = await link.connect()
            payload = bytes(range(256)) * (3 * WAITING_BYTES // 256)

            async def say() -> None:
                writer.write(payload)
                await writer.drain()
                writer.write_eof()

            saying = asyncio.create_task(say())
            assert await far_reader.read(-1) == payload
            await saying

    run(scene)


@pytest.mark.parametrize(("delay_ms", "jitter_ms"), [(-1, 0), (1, -1)])
def test_no_link_is_faster_than_time(delay_ms: float, jitter_ms: float) -> None:
    async def scene() -> None:
        with pytest.raises(ValueError, match="expected delays of at least 0"):
            Relay(delay_ms, jitter_ms=jitter_ms)

    run(scene)
