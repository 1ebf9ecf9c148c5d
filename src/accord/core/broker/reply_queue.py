"""What goes back to a client: answers at once, or when what they promise is on disk.

Answers keep their order: behind one that waits for the disk, all others wait too.
"""

from __future__ import annotations

from typing import Final

from accord.core.broker.broker import Broker, ClientConnection
from accord.core.broker.broker_context import HeldReply
from accord.core.broker.session import MqttSession
from accord.core.mqtt.codes import V311
from accord.core.mqtt.packets import Connect
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.scheduling.pacing import Gate
from accord.core.scheduling.queue_entries import QueueEntry

# What a connection is waiting for.
CONNECT: Final = 0
LOGIN: Final = 1  # the driver's word on user name and password
EXCHANGE: Final = 2  # the client's next AUTH
NOTHING: Final = 3  # it is open
GONE: Final = 4

_PUBACK: Final = 0x40
_NO_FRAMES: Final[list[bytes]] = []  # nothing is ever added to it
_GATHERED_BYTES: Final = 65_536
_UNREAD: Final = 2_000  # answers that wait for the client or for the disk


class ReplyQueue(ClientConnection):
    """The sending side of a connection."""

    __slots__ = (
        "_answers",
        "_control",
        "_explains",
        "_held",
        "_unanswered",
        "address",
        "broker",
        "client_id",
        "connect",
        "has_more",
        "has_rest",
        "hub",
        "is_stalled",
        "packet_limit",
        "session",
        "version",
        "waits_for",
    )

    def __init__(self, broker: Broker, address: str) -> None:
        super().__init__()
        self.broker = broker
        self.hub = broker.hub
        self.address = address
        self.waits_for = CONNECT
        self.version = V311
        self.client_id = ""
        self.session: MqttSession | None = None
        self.connect: Connect | None = None  # until it is answered
        self.packet_limit = 0
        # Whether what was read has more packets, left for later so that others get their turn.
        self.has_rest = False
        # Whether no more is taken from the client until its tasks are done, most of them at least.
        self.is_stalled = False
        self.has_more = False  # whether `take` left something, be it what has to wait
        self._control = _NO_FRAMES
        self._answers = 0  # packets in it
        self._held = 0  # answers that wait for the disk
        self._unanswered = 0  # QoS 1 messages of the client
        self._explains = True

    def take(self, bytes_wanted: int) -> list[bytes]:
        """The next frames to send: answers first, then what the session has; those only for 0."""
        frames = self.take_uncounted(bytes_wanted)
        self.count_taken()
        return frames

    def count_taken(self) -> None:
        if self.session is not None:
            self.session.count_taken()

    def take_uncounted(self, bytes_wanted: int) -> list[bytes]:
        """The same for who calls `count_taken` itself, when they are written."""
        if self.connect is not None and self.waits_for == NOTHING:
            return []  # nothing before the CONNACK
        frames = self._control
        if frames:
            self._control = _NO_FRAMES
            self.hub.counters.packets_sent += self._answers
            self._answers = 0
        else:
            frames = []
        session = self.session
        self.has_more = False
        if bytes_wanted > 0 and session is not None and self.waits_for == NOTHING:
            outbox = session.outbox
            if outbox.bytes or outbox.tracked:
                session.pull(bytes_wanted, frames)
                self.has_more = outbox.bytes > 0 or outbox.tracked > 0
        return frames

    def peek(self, gate: Gate | None) -> QueueEntry | None:
        """What the session would have sent first, if anything may be now."""
        if self.waits_for != NOTHING or self.connect is not None or self.session is None:
            return None
        return self.session.peek(gate)

    def has_waiting(self) -> bool:
        if self._control:
            return True
        return self.waits_for == NOTHING and self.session is not None and self.session.has_waiting()

    def is_urgent(self, importance: int) -> bool:
        """Whether it must not wait for tasks of that importance to be done.

        What matters no more than they do may gather, so that it takes few writes.
        """
        if self._control or self.session is None:
            return True
        outbox = self.session.outbox
        size = outbox.bytes + outbox.tracked_bytes
        return not 0 < size < _GATHERED_BYTES or outbox.highest() > importance

    def wants_data(self) -> bool:
        """Whether more may be read: not while the client leaves too many answers unread."""
        return (
            not self.has_rest
            and not self.is_stalled
            and self._answers < _UNREAD
            and self._held < _UNREAD
        )

    def reply(self, frames: bytes, count: int = 1) -> None:
        if self._control:
            self._control.append(frames)
        else:
            self._control = [frames]
        self._answers += count
        self.hub.wake(self)

    def hold(self, frames: bytes, count: int = 1) -> None:
        """Send `frames` when all that was recorded so far is on disk, after what waits already."""
        self._held += count
        if frames[0] == _PUBACK:
            self._unanswered += count
        self.hub.hold(HeldReply(self, frames, count))

    def released(self, frames: bytes, count: int) -> None:
        self._held -= count
        if self.waits_for == NOTHING:
            if frames[0] == _PUBACK:
                self._unanswered -= count
            self.reply(frames, count)

    def unhold(self) -> None:
        self._held -= 1

    def _settle(self, frames: bytes, appended: int, count: int = 1) -> None:
        """Send the answers to something that may have been recorded since `appended`."""
        if self.hub.appended != appended or self._held:
            self.hold(frames, count)
        else:
            self.reply(frames, count)

    def _explained(self, problem: str, facts: tuple[tuple[str, str], ...] = ()) -> Properties:
        if not (problem or facts) or not self._explains:
            return NO_PROPERTIES
        return Properties(reason_string=problem[:1_000] or None, user=facts)

    def _fitting(self, frame: bytes, short: bytes) -> bytes:
        """`frame` with its explanation, or without where the client takes no packet so large."""
        return short if 0 < self.packet_limit < len(frame) else frame
