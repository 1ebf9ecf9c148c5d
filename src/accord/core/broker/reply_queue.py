"""Sending side of a connection: replies sent at once, or once what they promise is on disk.

Replies stay in order: a reply that waits for the disk holds up all later ones.
"""

from __future__ import annotations

from typing import Final

from accord.core.broker.broker import Broker, ClientConnection
from accord.core.broker.broker_context import HeldReply
from accord.core.broker.connection_state import AWAITING_CONNECT, OPEN, STATES
from accord.core.broker.session import MqttSession
from accord.core.mqtt.codes import V311
from accord.core.mqtt.packets import Connect
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.scheduling.pacing import Gate
from accord.core.scheduling.queue_entries import QueueEntry

_PUBACK: Final = 0x40
_NO_FRAMES: Final[list[bytes]] = []  # shared and never modified
_GATHERED_BYTES: Final = 65_536
_MAX_PENDING_REPLIES: Final = 2_000  # replies pending for the client or the disk


class ReplyQueue(ClientConnection):
    """The sending side of a connection."""

    __slots__ = (
        "_control",
        "_held",
        "_reply_count",
        "_sends_reasons",
        "_unacknowledged",
        "address",
        "broker",
        "client_id",
        "connect",
        "context",
        "has_more",
        "has_rest",
        "is_stalled",
        "packet_limit",
        "session",
        "state",
        "version",
    )

    def __init__(self, broker: Broker, address: str) -> None:
        super().__init__()
        self.broker = broker
        self.context = broker.context
        self.address = address
        self.state = AWAITING_CONNECT
        self.version = V311
        self.client_id = ""
        self.session: MqttSession | None = None
        self.connect: Connect | None = None  # until the CONNACK is sent
        self.packet_limit = 0
        # Whether the last read has more packets, deferred so that other connections are served.
        self.has_rest = False
        # Whether reading is paused until most of the client's tasks are done.
        self.is_stalled = False
        self.has_more = False  # whether `take` left something, even if it can't be sent yet
        self._control = _NO_FRAMES
        self._reply_count = 0  # packets in `_control`
        self._held = 0  # replies waiting for the disk
        self._unacknowledged = 0  # unacknowledged QoS 1 messages from the client
        self._sends_reasons = True

    def change_state(self, state: int) -> None:
        before = STATES[self.state]
        assert state in before.successors, f"{before.name} to {STATES[state].name}"
        self.state = state

    def take(self, bytes_wanted: int) -> list[bytes]:
        """The next frames to send: replies, then the session's; for 0 bytes only replies."""
        frames = self.take_uncounted(bytes_wanted)
        self.count_taken()
        return frames

    def count_taken(self) -> None:
        if self.session is not None:
            self.session.count_pulled()

    def take_uncounted(self, bytes_wanted: int) -> list[bytes]:
        """As `take`, for callers that call `count_taken` themselves once the frames are written."""
        if self.connect is not None and self.state == OPEN:
            return []  # nothing before the CONNACK
        frames = self._control
        if frames:
            self._control = _NO_FRAMES
            self.context.counters.packets_sent += self._reply_count
            self._reply_count = 0
        else:
            frames = []
        session = self.session
        self.has_more = False
        if bytes_wanted > 0 and session is not None and self.state == OPEN:
            outbox = session.outbox
            if outbox.bytes or outbox.tracked:
                session.pull(bytes_wanted, frames)
                self.has_more = outbox.bytes > 0 or outbox.tracked > 0
        return frames

    def peek(self, gate: Gate | None) -> QueueEntry | None:
        """The entry the session would send first, if it may send now."""
        if self.state != OPEN or self.connect is not None or self.session is None:
            return None
        return self.session.peek(gate)

    def has_waiting(self) -> bool:
        if self._control:
            return True
        return self.state == OPEN and self.session is not None and self.session.has_waiting()

    def is_urgent(self, importance: int) -> bool:
        """Whether sending must not wait for tasks of this importance.

        Entries that are no more important than the tasks may accumulate, to save writes.
        """
        if self._control or self.session is None:
            return True
        outbox = self.session.outbox
        size = outbox.bytes + outbox.tracked_bytes
        return not 0 < size < _GATHERED_BYTES or outbox.highest() > importance

    def wants_data(self) -> bool:
        """Whether to read more: not while too many replies are pending."""
        return (
            not self.has_rest
            and not self.is_stalled
            and self._reply_count < _MAX_PENDING_REPLIES
            and self._held < _MAX_PENDING_REPLIES
        )

    def reply(self, frames: bytes, count: int = 1) -> None:
        if self._control:
            self._control.append(frames)
        else:
            self._control = [frames]
        self._reply_count += count
        self.context.wake(self)

    def hold(self, frames: bytes, count: int = 1) -> None:
        """Send `frames` once everything recorded so far is on disk, after replies already held."""
        self._held += count
        if frames[0] == _PUBACK:
            self._unacknowledged += count
        self.context.hold(HeldReply(self, frames, count))

    def send_held(self, frames: bytes, count: int) -> None:
        self._held -= count
        if self.state == OPEN:
            if frames[0] == _PUBACK:
                self._unacknowledged -= count
            self.reply(frames, count)

    def release_held(self) -> None:
        self._held -= 1

    def _reply_when_durable(self, frames: bytes, appended: int, count: int = 1) -> None:
        """Send replies to something that may have been recorded since `appended`."""
        if self.context.appended != appended or self._held:
            self.hold(frames, count)
        else:
            self.reply(frames, count)

    def _reason_properties(
        self, problem: str, facts: tuple[tuple[str, str], ...] = ()
    ) -> Properties:
        if not (problem or facts) or not self._sends_reasons:
            return NO_PROPERTIES
        return Properties(reason_string=problem[:1_000] or None, user=facts)

    def _fit_limit(self, frame: bytes, short: bytes) -> bytes:
        """`frame` with its explanation, or `short` if it exceeds the client's packet limit."""
        return short if 0 < self.packet_limit < len(frame) else frame
