"""The queue of received messages of one subscription."""

from __future__ import annotations

from collections import deque
from typing import Final

from accord.core.mqtt.packets import Publish

MAX_BYTES: Final = 64 * 1024 * 1024


class ReceivedMessage:
    """One received message; `pending` counts the consumers that have not finished with it."""

    __slots__ = ("is_consumed", "message", "pending", "received_ms")

    def __init__(self, message: Publish, received_ms: int) -> None:
        self.message = message
        self.received_ms = received_ms
        self.pending = 0
        self.is_consumed = False


class Inbox:
    """A bounded queue. `shed` counts the QoS 0 events dropped because it was full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[ReceivedMessage] = deque()
        self._bytes = 0
        self.shed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether reading should stop."""
        return len(self._waiting) >= self._limit or self._bytes >= MAX_BYTES

    @property
    def is_overfull(self) -> bool:
        """Whether to shed, if reading cannot be stopped."""
        return len(self._waiting) >= 2 * self._limit or self._bytes >= 2 * MAX_BYTES

    def put(self, delivery: ReceivedMessage) -> None:
        delivery.pending += 1
        self._waiting.append(delivery)
        self._bytes += len(delivery.message.payload)

    def take(self) -> ReceivedMessage | None:
        if not self._waiting:
            return None
        delivery = self._waiting.popleft()
        self._bytes -= len(delivery.message.payload)
        return delivery
