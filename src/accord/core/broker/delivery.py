"""One message for one client, from its selection to its completion."""

from __future__ import annotations

from typing import Final

from accord.core.broker.message import MqttMessage
from accord.core.policy.policies import Grant
from accord.core.scheduling.outbox import QueueEntry

# Stages of a delivery. WAITING: it is being recorded or shaped.
WAITING: Final = 0
QUEUED: Final = 1
SENT: Final = 2
RELEASED: Final = 3
SUPERSEDED: Final = 4  # replaced while waiting

# Causes of messages not delivered to a client.
OFFLINE: Final = "offline"
EXPIRED: Final = "expired"
QUEUE_FULL: Final = "queue full"
SLOW_READER: Final = "slow reader"
PACKET_TOO_LARGE: Final = "packet too large"
SESSION_ENDED: Final = "session ended"
REFUSED: Final = "refused by the client"
DENIED: Final = "not authorized"


class ClientDelivery(QueueEntry):
    """A message for one client, encoded when it is sent."""

    __slots__ = (
        "grant",
        "identifiers",
        "is_retained",
        "is_tracked",
        "message",
        "original",
        "packet_id",
        "pending_conditions",
        "qos",
        "stage",
        "was_sent",
    )

    def __init__(
        self,
        message: MqttMessage,
        qos: int,
        is_retained: bool,
        identifiers: tuple[int, ...],
        packet_id: int,
        queued_ms: int,
        grant: Grant,
    ) -> None:
        # Without a call of QueueEntry.__init__, which is a good part of the cost of a message.
        importance = grant.importance
        counts = message.counts
        self.size = len(message.payload) + len(message.block) + len(message.topic) + 8
        self.count = 1
        self.importance = importance
        # Where order matters, all share one lane of one bin.
        is_light = grant.keeps_order or counts is None or counts.is_light()
        self.bin = 2 * importance + (1 if is_light else 0)
        self.is_tracked = qos > 0 or grant.keeps_order
        self.queued_ms = queued_ms
        self.expires_ms = expires_ms(message, grant)
        self.number = message.number
        self.message = message
        self.original = message  # before shaping, as it is on disk
        self.qos = qos
        self.is_retained = is_retained
        self.identifiers = identifiers
        self.packet_id = packet_id
        self.grant = grant
        self.stage = QUEUED
        self.pending_conditions = 0  # conditions left before it can be queued
        self.was_sent = False

    def replace_with(self, later: ClientDelivery) -> None:
        """Take the contents of `later` and keep this delivery's position in the queue.

        The caller updates the queue's size and deadline.
        """
        self.message = later.message
        self.original = later.original
        self.number = later.number
        self.qos = later.qos
        self.is_retained = later.is_retained
        self.identifiers = later.identifiers
        self.packet_id = later.packet_id
        self.grant = later.grant

    def use_shaped(self, message: MqttMessage) -> None:
        """Carry a shaped message instead."""
        self.message = message
        self.size = len(message.payload) + len(message.block) + len(message.topic) + 8


def expires_ms(message: MqttMessage, grant: Grant) -> int:
    """When `message` expires for a receiver; 0 for never."""
    due_ms = message.expires_ms
    if grant.deadline_ms:
        granted_ms = message.received_ms + grant.deadline_ms
        if due_ms == 0 or granted_ms < due_ms:
            due_ms = granted_ms
    return due_ms
