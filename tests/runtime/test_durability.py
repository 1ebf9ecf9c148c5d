"""Two logs and one promise: what is acknowledged is in both, whenever the node stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from accord.core.broker.broker import Broker
from accord.core.broker.connection import Connection
from accord.core.broker.session_records import (
    Completed,
    KeptThrough,
    ReceivedRecord,
    SessionLogRecord,
    SessionOpened,
    decode_record,
)
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Connect, Publish, Pubrec, Pubrel, Subscribe, TopicFilter
from accord.core.mqtt.properties import Properties
from accord.core.router.limits import Limits
from accord.journal.events import decode_event
from accord.journal.options import JournalOptions
from accord.journal.reader import Reader
from accord.journal.record import Batch
from accord.journal.segment_log import SegmentLog
from accord.runtime.durability import EVENTS, STATE, Durability

CONNECT = Connect("pump", clean_start=False, properties=Properties(session_expiry_s=1000))
MESSAGE = Publish("kept/level", b"4.2", 2, packet_id=7)


def start(folder: Path) -> tuple[Broker, Durability]:
    broker = Broker(
        Limits(), now_ms=1_000, kept=["kept/#"], is_durable=True, new_client_id=lambda: "new"
    )
    durability = Durability(
        broker, folder, JournalOptions(), on_progress=lambda: None, now_ms=1_000
    )
    return broker, durability


def connect(broker: Broker, client: str = "pump") -> Connection:
    connection = Connection(broker, None, "here")
    packet = msgspec.structs.replace(CONNECT, client_id=client)
    connection.receive(encode(packet, V5), now_ms=1_000)
    return connection


def records(folder: Path) -> list[bytes]:
    found = Reader(folder).read(0)
    return [bytes(each) for item in found if isinstance(item, Batch) for each in item.records()]


def state(folder: Path) -> list[SessionLogRecord]:
    return [decode_record(each) for each in records(folder / STATE)]


def events(folder: Path) -> list[bytes]:
    return [decode_event(each).payload for each in records(folder / EVENTS)]


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_true():
            await asyncio.sleep(0.001)


async def committed(broker: Broker, durability: Durability) -> None:
    durability.append()
    await until(lambda: not broker.context.has_pending())


def hold_events(monkeypatch: pytest.MonkeyPatch, durability: Durability) -> threading.Event:
    """Let the journal of events wait in its next sync; set what is returned to go on."""
    gate = threading.Event()
    log = durability._events.log
    real = SegmentLog._sync

    def wait(self: SegmentLog, sink: object) -> None:
        if self is log:
            gate.wait(20)
        real(self, sink)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentLog, "_sync", wait)
    return gate


def test_state_waits_for_the_events_of_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        broker, durability = start(tmp_path)
        gate = hold_events(monkeypatch, durability)
        publisher = connect(broker)
        await committed(broker, durability)
        publisher.take(1_000)
        publisher.receive(encode(MESSAGE, V5), now_ms=1_001)
        durability.append()
        durability._state.flush()
        # A crash now must not make the node believe that it has the message.
        assert [type(record) for record in state(tmp_path)] == [SessionOpened, KeptThrough]
        gate.set()
        await until(lambda: not broker.context.has_pending())
        assert state(tmp_path)[-2:] == [ReceivedRecord("pump", 7), KeptThrough(1)]
        assert events(tmp_path) == [b"4.2"]
        assert publisher.take(1_000) == [encode(Pubrec(7, 0x10), V5)]
        durability.close()

    asyncio.run(scenario())


def test_closing_makes_the_state_behind_waiting_events_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        broker, durability = start(tmp_path)
        gate = hold_events(monkeypatch, durability)
        publisher = connect(broker)
        publisher.receive(encode(MESSAGE, V5), now_ms=1_001)
        threading.Timer(0.05, gate.set).start()
        durability.close()
        assert state(tmp_path)[-2:] == [ReceivedRecord("pump", 7), KeptThrough(1)]
        assert events(tmp_path) == [b"4.2"]

    asyncio.run(scenario())


def test_snapshot_stands_for_just_the_records_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        broker, durability = start(tmp_path)
        monkeypatch.setattr(type(durability._state), "is_worth_compacting", lambda *_: True)
        gate = hold_events(monkeypatch, durability)
        publisher = connect(broker)
        await committed(broker, durability)
        publisher.receive(encode(MESSAGE, V5), now_ms=1_001)
        durability.compact()
        assert not durability._state.is_compacting  # the event is not on disk yet
        publisher.receive(encode(Pubrel(7), V5), now_ms=1_002)
        gate.set()
        await committed(broker, durability)
        await until(lambda: not durability._state.is_compacting)
        snapshot = durability._state.journal.log.snapshot
        assert snapshot == 4  # behind SessionOpened and Received, each with its mark
        left = Reader(tmp_path / STATE).read(snapshot)
        changes = [each for item in left if isinstance(item, Batch) for each in item.records()]
        assert [decode_record(bytes(each)) for each in changes] == [Completed("pump", 7)]
        durability.close()
        again, reopened = start(tmp_path)
        assert not again.sessions["pump"].received
        reopened.close()

    asyncio.run(scenario())


def test_a_crash_between_event_and_state_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event is kept and its state is not: it reaches its subscriber, and once."""

    async def scenario() -> None:
        broker, durability = start(tmp_path)
        publisher, reader = connect(broker), connect(broker, "reader")
        reader.receive(encode(Subscribe(1, (TopicFilter("kept/#", 2),)), V5), now_ms=1_000)
        await committed(broker, durability)
        monkeypatch.setattr(durability, "_append_state", lambda: "")  # never gets there
        publisher.receive(encode(MESSAGE, V5), now_ms=1_001)
        durability.append()
        durability._events.flush()
        durability.close()
        assert (events(tmp_path), state(tmp_path)[-1]) == ([b"4.2"], KeptThrough(0))

        broker, durability = start(tmp_path)
        assert durability.redone == 1
        publisher, reader = connect(broker), connect(broker, "reader")
        again = msgspec.structs.replace(MESSAGE, dup=True)
        publisher.receive(encode(again, V5), now_ms=1_002)
        await committed(broker, durability)
        assert publisher.take(1_000)[-1] == encode(Pubrec(7), V5)
        received = b"".join(reader.take(1_000))
        assert received.count(b"4.2") == 1
        durability.close()
        assert events(tmp_path) == [b"4.2"]
        _, reopened = start(tmp_path)
        assert reopened.redone == 0
        reopened.close()

    asyncio.run(scenario())
