"""What a subscription costs a broker, and whether many make a message slower.

Each subscription selects a vehicle's channels by a wildcard. Every message goes to a channel that
was never used before: no broker can remember who gets it.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Final

from accord.apps.load.traffic import LoadPublisher, Plan
from benchmarks.contenders import Broker
from benchmarks.load import Bursts, SharingLane, in_turns, subscriber
from benchmarks.mqtt import Mqtt
from benchmarks.race import complete

SIZES: Final = (1_000, 100_000, 1_000_000)
QUICK_SIZES: Final = (1_000, 10_000, 100_000)
SESSIONS: Final = 100
_MQTT: Final = Mqtt(level=5)
_PER_PACKET: Final = 500
_PATIENCE_S: Final = 120.0
_SOURCES: Final = 20
_PAYLOAD: Final = bytes(100)
_CHUNK: Final = 250
_CHUNKS: Final = 20
_WINDOW_CHUNKS: Final = 4
_SEED: Final = 28


@dataclass(frozen=True)
class Held:
    """With so many subscriptions: what those that are new cost, and what a message does."""

    size: int
    memory_bytes: float
    subscribe_us: float
    message_us: float


class Fleet:
    """Sessions of one broker with more and more subscriptions."""

    def __init__(self, broker: Broker, stack: ExitStack) -> None:
        self._broker = broker
        self._held = 0
        self._fresh = 0
        self._sessions: list[socket.socket] = []
        for number in range(SESSIONS):
            connection = stack.enter_context(broker.connect(f"127.0.0.{2 + number % _SOURCES}"))
            connection.settimeout(_PATIENCE_S)
            _MQTT.enter(connection, f"session-{number}")
            self._sessions.append(connection)
        self._publisher = stack.enter_context(broker.connect())
        _MQTT.enter(self._publisher, "publisher")

    def hold(self, size: int, rounds: int) -> Held:
        """Subscribes to what is missing, and publishes."""
        new = size - self._held
        memory, cpu_s = self._broker.memory_bytes(), self._broker.cpu_s()
        self._subscribe(range(self._held, size))
        subscribe_us = (self._broker.cpu_s() - cpu_s) * 1e6 / new
        memory_bytes = (self._broker.memory_bytes() - memory) / new
        self._held = size
        self._round()
        message_us = median(self._round() for _ in range(rounds))
        return Held(size, memory_bytes, subscribe_us, message_us)

    def _subscribe(self, vehicles: range) -> None:
        for number, connection in enumerate(self._sessions):
            connection.setblocking(True)
            connection.settimeout(_PATIENCE_S)
            own = vehicles[(number - vehicles.start) % SESSIONS :: SESSIONS]
            for start in range(0, len(own), _PER_PACKET):
                topics = [f"{_vehicle(each)}/+" for each in own[start : start + _PER_PACKET]]
                connection.sendall(_MQTT.subscription(topics))
                _MQTT.check_subscribed(connection)

    def _round(self) -> float:
        """CPU µs per message, each to a channel of its own that one session gets."""
        random = Random(f"{_SEED} {self._fresh}")
        frames = []
        for _ in range(_CHUNKS * _CHUNK):
            self._fresh += 1
            topic = f"{_vehicle(random.randrange(self._held))}/{self._fresh:07}"
            frames.append(_MQTT.message(topic, _PAYLOAD, 0))
        source = in_turns(_chunks(frames), _CHUNK)
        plan = Plan(_WINDOW_CHUNKS * _CHUNK, _CHUNK)

        def make(_: ExitStack) -> list[SharingLane]:
            publisher = LoadPublisher(self._publisher, _MQTT, source, plan.window)
            sessions = [subscriber(each, _MQTT, len(frames[0])) for each in self._sessions]
            return [SharingLane([publisher], sessions, plan)]

        with closing(Bursts(make)) as traffic:
            before_s = self._broker.cpu_s()
            burst = complete(traffic.run(len(frames), is_fenced=False))
            spent_s = self._broker.cpu_s() - before_s
            traffic.settle()
        return spent_s * 1e6 / burst.published


def _vehicle(number: int) -> str:
    return f"fleet/{number:07}"


def _chunks(frames: Sequence[bytes]) -> list[bytes]:
    return [b"".join(frames[start : start + _CHUNK]) for start in range(0, len(frames), _CHUNK)]
