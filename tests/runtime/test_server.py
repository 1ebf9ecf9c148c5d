"""When what was read is sent: at once where it came alone, else by importance after a turn."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from accord.core.broker.broker import Broker
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Connect, Packet, Publish, Subscribe, TopicFilter
from accord.core.mqtt.properties import Properties
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import parse_policy_set
from accord.core.router.limits import Limits
from accord.core.scheduling.tasks import Task
from accord.runtime.process import Clock
from accord.runtime.server import MqttProtocol, Server

STRICT = """
strategy = "strict"
[[policies]]
name = "alarms"
channel = "alarm"
importance = 6
"""


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def get_extra_info(self, _: str) -> Any:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        pass


class FixedClock(Clock):
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


class World:
    """A server whose clients are connected already; `turns` counts what was looked after."""

    def __init__(self) -> None:
        self.turns = 0
        self.needs_turns = False
        clock = Clock()
        self.broker = Broker(Limits(), now_ms=clock.now_ms(), new_client_id=lambda: "auto")
        self.server = Server(self.broker, clock, on_turn=self._on_turn)

    def _on_turn(self) -> bool:
        self.turns += 1
        return self.needs_turns

    async def join(self, name: str, *patterns: str) -> tuple[MqttProtocol, Wire]:
        protocol, wire = MqttProtocol(self.server), Wire()
        protocol.connection_made(cast("asyncio.Transport", wire))
        read(protocol, Connect(name))
        if patterns:
            read(protocol, Subscribe(1, tuple(TopicFilter(each, 1) for each in patterns)))
        await self.turn()
        wire.written.clear()
        return protocol, wire

    async def turn(self) -> None:
        """Let the event loop run what is due."""
        for _ in range(3):
            await asyncio.sleep(0)

    async def publishers(self, *channels: str) -> list[MqttProtocol]:
        """Clients whose messages travel in runs by now."""
        made = []
        for channel in channels:
            protocol, _ = await self.join(f"{channel}-source")
            read(protocol, Publish(channel, b"first"))
            await self.turn()
            made.append(protocol)
        return made


def read(protocol: MqttProtocol, *packets: Packet) -> None:
    protocol.data_received(b"".join(encode(each, V5) for each in packets))


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def go() -> None:
        await scenario(World())

    asyncio.run(go())


def heard(wire: Wire) -> list[bytes]:
    """The last bytes of each write."""
    written, wire.written = wire.written, []
    return [each[-5:] for each in written]


def test_what_came_alone_is_sent_before_the_read_returns() -> None:
    async def scenario(world: World) -> None:
        _, wire = await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        heard(wire)
        turns = world.turns
        for text in (b"first", b"again"):
            read(bob, Publish("report", text))
            assert heard(wire) == [text]
        await world.turn()
        assert world.turns == turns

    run(scenario)


def test_what_came_alone_is_counted_and_noted_like_all() -> None:
    async def scenario(world: World) -> None:
        await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        world.broker.context.ledger.take()
        sent = world.broker.context.counters.packets_sent
        read(bob, Publish("report", b"x"), Publish("report", b"y"))
        batch = world.broker.context.ledger.take()
        assert batch is not None
        assert [row[2:7] for row in batch.rows] == [(2, "report", "report-source", "ada", 0)]
        assert world.broker.context.counters.packets_sent == sent + 2

    run(scenario)


def test_what_cuts_through_is_counted_later_but_before_anybody_looks() -> None:
    async def scenario(world: World) -> None:
        _, wire = await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        read(bob, Publish("report", b"hello"))
        wire.written.clear()
        sent = world.broker.context.counters.packets_sent
        for _ in range(3):
            read(bob, Publish("report", b"hello"))
        assert heard(wire) == [b"hello"] * 3
        assert len(world.broker.cut_throughs.pending) == 3
        world.server.tick()
        await world.turn()
        assert world.broker.cut_throughs.pending == []
        assert world.broker.context.counters.packets_sent == sent + 3
        assert world.broker.sessions["ada"].sent == 5

    run(scenario)


def test_counting_is_put_off_for_so_many_only() -> None:
    async def scenario(world: World) -> None:
        await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        for _ in range(2_000):
            read(bob, Publish("report", b"x"))
            await asyncio.sleep(0)
            assert len(world.broker.cut_throughs.pending) <= 1_024
        assert world.broker.sessions["ada"].sent > 900

    run(scenario)


def test_a_frame_and_the_beginning_of_another_do_not_cut_through() -> None:
    async def scenario(world: World) -> None:
        _, wire = await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        frame = encode(Publish("report", b"hello"), V5)
        for data in (frame, frame + frame[:4], frame[4:], frame):
            bob.data_received(data)
            await world.turn()
        assert b"".join(heard(wire)).count(b"hello") == 4

    run(scenario)


def test_who_is_being_disconnected_gets_nothing_and_stops_nobody() -> None:
    async def scenario(world: World) -> None:
        ada, wire = await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        read(bob, Publish("report", b"hello"))
        wire.written.clear()
        ada.abort()
        read(bob, Publish("report", b"hello"))
        assert not world.broker.cut_throughs.pending

        def fail(_: bytes) -> None:
            raise RuntimeError("closed")

        connection = next(each for each in world.server.connections if each.client_id == "ada")
        connection.write = fail
        read(bob, Publish("report", b"hello"))
        read(bob, Publish("report", b"hello"))
        assert connection.write is None

    run(scenario)


@pytest.mark.parametrize("together", [2, 3, 10])
def test_reads_that_come_together_are_noticed(together: int) -> None:
    async def scenario(world: World) -> None:
        await world.join("ada", "#")
        channels = [f"c{number}" for number in range(together)]
        sources = await world.publishers(*channels)
        turns = world.turns
        for _ in range(61 * together):
            for channel, source in zip(channels, sources, strict=True):
                read(source, Publish(channel, b"x"))
            await world.turn()
            if world.turns > turns + 1:
                return
        pytest.fail("each was sent at once")

    run(scenario)


def test_acknowledgements_need_no_turn() -> None:
    async def scenario(world: World) -> None:
        ada, wire = await world.join("ada", "#")
        bob, acknowledged = await world.join("bob")
        for packet_id in (1, 2):
            read(bob, Publish("report", b"hello", qos=1, packet_id=packet_id))
            await world.turn()
        turns = world.turns
        wire.written.clear()
        acknowledged.written.clear()
        read(bob, Publish("report", b"hello", qos=1, packet_id=3))
        (frame,) = wire.written
        assert acknowledged.written == [b"\x40\x02\x00\x03"]
        ada.data_received(b"\x40\x02" + frame[10:12])
        await world.turn()
        session = world.broker.sessions["ada"]
        assert session.in_flight == 2  # of those before
        assert world.turns == turns

    run(scenario)


def test_of_reads_that_come_together_the_important_goes_first() -> None:
    async def scenario(world: World) -> None:
        book = parse_policy_set(STRICT)
        world.broker.switch(book, Policies(book))
        _, wire = await world.join("ada", "#")
        low, high = await world.publishers("report", "alarm")
        for _ in range(2):  # the first turn shows that they come together
            world.server.due()
            read(low, Publish("report", b"other"))
            read(high, Publish("alarm", b"alarm"))
            await world.turn()
        wire.written.clear()
        read(low, Publish("report", b"other"))
        read(high, Publish("alarm", b"alarm"))
        assert heard(wire) == []
        await world.turn()
        (written,) = wire.written
        assert written.index(b"alarm\x00alarm") < written.index(b"report\x00other")

    run(scenario)


@pytest.mark.parametrize("limits", [(10**9, 0, {}), (0, 10**9, {}), (0, 0, {"x": 10**9})])
def test_where_anything_is_limited_a_turn_decides(limits: tuple[int, int, dict[str, int]]) -> None:
    async def scenario(world: World) -> None:
        _, wire = await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        world.server.set_limits(*limits)
        await world.turn()
        heard(wire)
        read(bob, Publish("report", b"hello"))
        assert heard(wire) == []
        await world.turn()
        assert heard(wire) == [b"hello"]

    run(scenario)


def test_a_large_read_waits_for_a_turn() -> None:
    async def scenario(world: World) -> None:
        _, wire = await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        heard(wire)
        read(bob, *[Publish("report", bytes(100) + b"hello")] * 100)
        assert heard(wire) == []
        await world.turn()
        assert heard(wire) == [b"hello"]

    run(scenario)


def test_what_is_looked_after_still_is_while_all_is_sent_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        turns = world.turns
        for _ in range(200):
            read(bob, Publish("report", b"hello"))
            await world.turn()
        assert world.turns == turns
        world.server.tick()
        await world.turn()
        assert world.turns == turns + 1

    run(scenario)


def test_each_read_has_its_turn_while_that_is_needed() -> None:
    async def scenario(world: World) -> None:
        await world.join("ada", "#")
        world.needs_turns = True
        (bob,) = await world.publishers("report")
        turns = world.turns
        for _ in range(5):
            read(bob, Publish("report", b"hello"))
            await world.turn()
        assert world.turns == turns + 5

    run(scenario)


def test_another_packet_has_its_turn() -> None:
    async def scenario(world: World) -> None:
        _, wire = await world.join("ada", "#")
        (bob,) = await world.publishers("report")
        heard(wire)
        turns = world.turns
        read(bob, Publish("report", b"hello"), Subscribe(1, (TopicFilter("other"),)))
        assert heard(wire) == []
        await world.turn()
        assert heard(wire) == [b"hello"]
        assert world.turns == turns + 1

    run(scenario)


class Busy(Task):
    """Work that never ends."""

    def __init__(self, world: World, importance: int) -> None:
        super().__init__(1, 100, importance, 0)
        self.world = world

    def run(self) -> None:
        self.world.broker.context.submit(self)


def test_while_tasks_wait_only_what_matters_more_is_sent_at_once() -> None:
    async def scenario(world: World) -> None:
        book = parse_policy_set(STRICT)
        world.broker.switch(book, Policies(book))
        _, wire = await world.join("ada", "#")
        low, high = await world.publishers("report", "alarm")
        now_ms = world.server.clock.now_ms()
        world.server.clock = FixedClock(now_ms)
        world.broker.context.submit(Busy(world, 3))
        world.server.due()
        await world.turn()
        wire.written.clear()
        read(low, Publish("report", b"other"))
        await world.turn()
        assert heard(wire) == []
        read(high, Publish("alarm", b"alarm"))
        await world.turn()
        assert b"alarm" in b"".join(wire.written)
        wire.written.clear()
        read(low, Publish("report", b"hello"))
        await world.turn()
        assert heard(wire) == []
        world.server.clock = FixedClock(now_ms + 5)
        await world.turn()
        assert heard(wire) == [b"hello"]
        read(low, Publish("report", bytes(100_000)))
        await world.turn()
        assert heard(wire) == [bytes(5)], "so much is worth a write"
        while world.broker.context.tasks.take() is not None:
            pass
        read(low, Publish("report", b"hello"))
        await world.turn()
        assert heard(wire) == [b"hello"]

    run(scenario)


def test_clients_that_come_and_go_leave_no_cycles() -> None:
    async def scenario(world: World) -> None:
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for number in range(3):
                protocol, _ = await world.join(f"c{number}")
                asked = Properties(user=(("where", f"x > {number}"),))
                read(protocol, Subscribe(1, (TopicFilter("a", 1),), asked))
                for packet_id in (1, 2, 3):
                    user = Properties(user=(("x", "9"),))
                    read(protocol, Publish("a", b"x", 1, packet_id=packet_id, properties=user))
                    await world.turn()
                protocol.connection_lost(None)
                await world.turn()
            gc.collect()
            ours = [each for each in gc.garbage if type(each).__module__.startswith("accord")]
            assert ours == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()

    run(scenario)
