"""Publishers with a number for each message, that know which of them were acknowledged."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from accord.core.mqtt.codes import V5, Reason
from accord.core.mqtt.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.scenarios.kills.clients import Client

KEPT: Final = "kept"
OTHER: Final = "other"
RETAINED: Final = "retained"
RETAINED_CHANNELS: Final = 7
_LAST_ID: Final = 65_535


class Sent:
    """A message under way; `is_received` once the node has taken it over (QoS 2)."""

    def __init__(self, number: int, packet: Publish) -> None:
        self.number = number
        self.packet = packet
        self.is_received = False


class Publisher(Client):
    def __init__(
        self,
        name: str,
        port: int,
        *,
        random: Random,
        qos: int,
        version: int = V5,
        is_retaining: bool = False,
        rate_hz: int = 100,
        in_flight: int = 60,
    ) -> None:
        super().__init__(name, port, version=version)
        self.qos = qos
        self.is_retaining = is_retaining
        self.published = 0
        self.resent = 0
        self.refused: set[int] = set()
        self.acknowledged: set[int] = set()
        self.is_done = False  # publishes no more
        self._random = random
        self._rate_hz = rate_hz
        self._in_flight = in_flight
        self._sent: dict[int, Sent] = {}
        self._last_id = 0

    def is_drained(self) -> bool:
        return self.is_done and not self._sent

    def channel(self, number: int) -> str:
        if self.is_retaining:
            return f"{RETAINED}/{self.name}/{number % RETAINED_CHANNELS}"
        return f"{KEPT if number % 2 else OTHER}/{self.name}"

    def resume(self) -> None:
        for packet_id, sent in self._sent.items():
            self.resent += 1
            if sent.is_received:
                self.send(Pubrel(packet_id))
            else:
                packet = sent.packet
                self.send(
                    Publish(
                        packet.topic,
                        packet.payload,
                        packet.qos,
                        packet.retain,
                        dup=True,
                        packet_id=packet_id,
                    )
                )

    async def act(self) -> None:
        pause_s = 5 / self._rate_hz
        while True:
            await asyncio.sleep(self._random.uniform(0, 2 * pause_s))
            # Mostly a few at a time, now and then all that may be under way.
            count = 5 if self._random.random() < 0.97 else self._in_flight
            while count and not self.is_done and len(self._sent) < self._in_flight:
                self._publish()
                count -= 1

    def handle(self, packet: Packet) -> None:
        if isinstance(packet, Puback):
            self._finish(packet.packet_id, packet.reason)
        elif isinstance(packet, Pubrec):
            sent = self._sent.get(packet.packet_id)
            if packet.reason >= Reason.UNSPECIFIED_ERROR:
                self._finish(packet.packet_id, packet.reason)
            elif sent is None:
                self.problems.append(f"{self.name}: PUBREC for {packet.packet_id}, not under way")
            else:
                sent.is_received = True
                self.acknowledged.add(sent.number)
                self.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            # A PUBCOMP that says "not found" is the answer to a PUBREL sent again: all is well.
            self._finish(packet.packet_id, 0)
        else:
            self.problems.append(f"{self.name}: unexpected {packet}")

    def _publish(self) -> None:
        self.published += 1
        number = self.published
        packet_id = self._new_id()
        padding = bytes(self._random.randrange(400))
        packet = Publish(
            self.channel(number),
            f"{self.name} {number} ".encode() + padding,
            self.qos,
            self.is_retaining,
            packet_id=packet_id,
        )
        self._sent[packet_id] = Sent(number, packet)
        self.send(packet)

    def _new_id(self) -> int:
        while True:
            self._last_id = self._last_id % _LAST_ID + 1
            if self._last_id not in self._sent:
                return self._last_id

    def _finish(self, packet_id: int, reason: int) -> None:
        sent = self._sent.pop(packet_id, None)
        if sent is None:
            self.problems.append(f"{self.name}: an answer for {packet_id}, not under way")
        elif reason >= Reason.UNSPECIFIED_ERROR:
            self.refused.add(sent.number)
        else:
            self.acknowledged.add(sent.number)


def read_payload(payload: bytes) -> tuple[str, int]:
    """Name of the publisher, and number of its message."""
    name, number, _ = payload.split(b" ", 2)
    return name.decode(), int(number)
