"""Replies of a connection, sent at once, or once what they promise is on disk.

Replies stay in order: a reply that waits for the disk holds up all later ones.
"""

from __future__ import annotations

from typing import Final

from accord.core.broker.broker_context import BrokerContext, CommitWaiter, ConnectionPort
from accord.core.mqtt.codec import encode
from accord.core.mqtt.packets import Packet
from accord.core.mqtt.properties import NO_PROPERTIES, Properties

MAX_PENDING_REPLIES: Final = 2_000  # replies pending for the client or the disk
NO_FRAMES: Final[list[bytes]] = []  # shared and never modified
_PUBACK: Final = 0x40


class ReplyQueue:
    """The replies of one connection; none is accepted once that is closed."""

    __slots__ = (
        "_connection",
        "_context",
        "count",
        "frames",
        "held",
        "packet_limit",
        "sends_reasons",
        "unacknowledged",
    )

    def __init__(self, connection: ConnectionPort, context: BrokerContext) -> None:
        self._connection: ConnectionPort | None = connection  # None once it is closed
        self._context = context
        self.frames = NO_FRAMES  # ready to be sent
        self.count = 0  # packets in `frames`
        self.held = 0  # replies waiting for the disk
        self.unacknowledged = 0  # unacknowledged QoS 1 messages from the client
        self.packet_limit = 0  # bytes of a packet the client accepts; 0 for any
        self.sends_reasons = True

    def reply(self, frames: bytes, count: int = 1) -> None:
        connection = self._connection
        if connection is not None:
            if self.frames:
                self.frames.append(frames)
            else:
                self.frames = [frames]
            self.count += count
            self._context.wake(connection)

    def reply_first(self, frame: bytes) -> None:
        """Send `frame` before all pending replies."""
        pending = self.frames
        self.frames = NO_FRAMES
        self.reply(frame)
        self.frames = [*self.frames, *pending]

    def hold(self, frames: bytes, count: int = 1) -> None:
        """Send `frames` once everything recorded so far is on disk, after replies already held."""
        self.held += count
        if frames[0] == _PUBACK:
            self.unacknowledged += count
        self._context.hold(HeldReply(self, frames, count))

    def send_held(self, frames: bytes, count: int) -> None:
        self.held -= count
        if frames[0] == _PUBACK:
            self.unacknowledged -= count
        self.reply(frames, count)

    def reply_when_durable(self, frames: bytes, appended: int, count: int = 1) -> None:
        """Send replies to something that may have been recorded since `appended`."""
        if self._context.appended != appended or self.held:
            self.hold(frames, count)
        else:
            self.reply(frames, count)

    def clear(self) -> None:
        self.frames, self.count = NO_FRAMES, 0

    def close(self) -> None:
        """Accept no more replies; those that are ready can still be taken."""
        self._connection = None

    def reason_properties(
        self, problem: str, facts: tuple[tuple[str, str], ...] = ()
    ) -> Properties:
        if not (problem or facts) or not self.sends_reasons:
            return NO_PROPERTIES
        return Properties(reason_string=problem[:1_000] or None, user=facts)

    def encode_fitting(self, packet: Packet, short: Packet, version: int) -> bytes:
        """The frame of `packet`, or of `short` if that exceeds the client's packet limit."""
        frame = encode(packet, version)
        return encode(short, version) if 0 < self.packet_limit < len(frame) else frame


class HeldReply(CommitWaiter):
    def __init__(self, replies: ReplyQueue, frames: bytes, count: int) -> None:
        super().__init__()
        self.replies = replies
        self.frames = frames
        self.count = count

    def release(self) -> None:
        self.replies.send_held(self.frames, self.count)
