"""Subscribers that count what reaches them, and one that subscribes and unsubscribes all the time.

None of them subscribes again in a session that was resumed.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import (
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicFilter,
    Unsubscribe,
)
from tests.scenarios.kills.clients import Answers, Client
from tests.scenarios.kills.publishing import read_payload

_LATE: Final = b"late"


class Subscriber(Client):
    def __init__(
        self,
        name: str,
        port: int,
        *,
        patterns: tuple[str, ...],
        qos: int,
        version: int = V5,
        window: int = 0,
        is_lazy: bool = False,
    ) -> None:
        super().__init__(name, port, version=version, window=window)
        self.qos = qos
        self.is_subscribed = False
        self.deliveries = 0
        self.seen: Counter[tuple[str, int]] = Counter()
        self.disorder: list[str] = []
        self._patterns = patterns
        self._held: set[int] = set()  # QoS 2 messages that the node may send again
        self._answers = Answers(self, is_lazy=is_lazy)
        self._newest: dict[tuple[str, str], int] = {}

    def has(self, wanted: set[tuple[str, int]]) -> bool:
        """Whether all of `wanted` came; cheap to ask as long as there are too few."""
        return len(self.seen) >= len(wanted) and wanted <= self.seen.keys()

    def resume(self) -> None:
        self._answers.clear()
        if not self.is_subscribed:
            self.send(Subscribe(1, tuple(TopicFilter(each, self.qos) for each in self._patterns)))

    async def act(self) -> None:
        await self._answers.flush_often()

    def handle(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._receive(packet)
        elif isinstance(packet, Pubrel):
            self._held.discard(packet.packet_id)
            self._answers.add(Pubcomp(packet.packet_id))
        elif isinstance(packet, Suback):
            assert all(reason == self.qos for reason in packet.reasons), packet
            self.is_subscribed = True
        else:
            self.problems.append(f"{self.name}: unexpected {packet}")

    def _receive(self, packet: Publish) -> None:
        if packet.qos == 1:
            self._note(packet)
            self._answers.add(Puback(packet.packet_id))
        elif packet.qos == 2:
            if packet.packet_id not in self._held:
                self._held.add(packet.packet_id)
                self._note(packet)
            elif not packet.dup:
                self.problems.append(f"{self.name}: {packet.packet_id} is in use for another")
            self._answers.add(Pubrec(packet.packet_id))
        else:
            self.problems.append(f"{self.name}: a message with QoS 0")

    def _note(self, packet: Publish) -> None:
        self.deliveries += 1
        name, number = read_payload(packet.payload)
        self.seen[name, number] += 1
        if self.seen[name, number] > 1:
            return
        newest = self._newest.get((name, packet.topic), 0)
        if number < newest:
            self.disorder.append(f"{self.name}: {number} of {name} came after {newest}")
        self._newest[name, packet.topic] = max(number, newest)


class Churner(Client):
    """Subscribes, hears itself, unsubscribes, hears nothing: over and over, across crashes."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, port)
        self.rounds = 0
        self.is_done = False  # begins no more rounds
        self._last_id = 0
        self._steps: deque[Packet] = deque()
        self._is_heard = False
        self._is_answered = False

    def is_drained(self) -> bool:
        return self.is_done and not self._steps

    def resume(self) -> None:
        if not self._steps:
            self._next()
        elif not self._is_answered:
            step = self._steps[0]
            if isinstance(step, Publish):
                step = Publish(step.topic, step.payload, 1, dup=True, packet_id=step.packet_id)
            self.send(step)

    def handle(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.send(Puback(packet.packet_id))
            if packet.payload == _LATE:
                self.problems.append(f"{self.name}: {packet.topic} was heard after UNSUBACK")
            self._is_heard = True
        else:
            self._is_answered = True
        step = self._steps[0] if self._steps else None
        is_echo_missing = isinstance(step, Publish) and step.payload != _LATE and not self._is_heard
        if self._is_answered and not is_echo_missing:
            self._steps.popleft()
            self._next()

    def _next(self) -> None:
        if not self._steps and not self.is_done:
            self.rounds += 1
            channel = f"churn/{self.rounds}"
            self._is_heard = False
            self._steps += (
                Subscribe(self._new_id(), (TopicFilter(channel, 1),)),
                Publish(channel, b"early", 1, packet_id=self._new_id()),
                Unsubscribe(self._new_id(), (channel,)),
                Publish(channel, _LATE, 1, packet_id=self._new_id()),
            )
        self._is_answered = False
        if self._steps:
            self.send(self._steps[0])

    def _new_id(self) -> int:
        self._last_id = self._last_id % 65_535 + 1
        return self._last_id
