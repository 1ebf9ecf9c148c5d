"""A client's session: its subscriptions and its messages, with or without a connection.

A QoS 1 or 2 message gets its packet identifier when it is queued. It is `sent` while it waits for
PUBACK or PUBREC, and `released` from PUBREC until PUBCOMP. When the connection is lost, what was
sent goes back to the queue in its old place, to be sent again as a duplicate.

A durable session has every step on disk before the client can draw a conclusion from it: QoS 2
messages are sent, and PUBREL answers given, only once recorded. So a crash repeats QoS 1 messages
at most, and QoS 2 messages not at all.
"""

from __future__ import annotations

from typing import Final

from accord.core.node.message import Message
from accord.core.node.router import Receiver, Subscription
from accord.core.scheduling.outbox import Outbox, Parcel, Run
from accord.edges.mqtt.codes import V5, V311
from accord.edges.mqtt.durable import Done, Queued, Released
from accord.edges.mqtt.hub import Held, Hub, Line
from accord.edges.mqtt.message import DUPLICATE, PUBLISH, RETAINED, MqttMessage
from accord.edges.mqtt.packets import Will
from accord.edges.mqtt.timers import Timer

RECORDING: Final = 0
QUEUED: Final = 1
SENT: Final = 2
RELEASED: Final = 3

_LAST_PACKET_ID: Final = 65_535
_PUBREL: Final = b"\x62\x02"

# Why a message did not reach a client.
OFFLINE: Final = "offline"
EXPIRED: Final = "expired"
QUEUE_FULL: Final = "queue full"
SLOW_READER: Final = "slow reader"
PACKET_TOO_LARGE: Final = "packet too large"
SESSION_ENDED: Final = "session ended"
REFUSED: Final = "refused by the client"


class Delivery(Parcel):
    """A message for one client that is encoded when it is sent."""

    __slots__ = (
        "identifiers",
        "is_retained",
        "message",
        "packet_id",
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
    ) -> None:
        # Not by way of Parcel.__init__: a call is a good part of what a message may cost.
        self.size = len(message.payload) + len(message.block) + len(message.topic) + 8
        self.count = 1
        self.importance = message.importance
        self.queued_ms = queued_ms
        self.expires_ms = message.expires_ms
        self.message = message
        self.qos = qos
        self.is_retained = is_retained
        self.identifiers = identifiers
        self.packet_id = packet_id
        self.stage = QUEUED
        self.was_sent = False


class Session(Receiver):
    def __init__(self, client: str, hub: Hub) -> None:
        super().__init__(client)
        limits = hub.limits
        self.hub = hub
        self.line: Line | None = None
        self.owner = ""  # the user whose client it is
        self.expiry_s = 0
        self.is_durable = False
        self.will: Will | None = None
        self.will_due_ms = 0
        self.ends_ms = 0  # when it is forgotten, 0 while connected
        self.timer: Timer | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.predicates = 0
        self.outbox = Outbox(
            bytes_limit=limits.outbox_bytes,
            tracked_limit=limits.queue_messages,
            tracked_bytes_limit=limits.queue_bytes,
        )
        self.unacknowledged: dict[int, Delivery] = {}
        self.received: dict[int, bool] = {}  # QoS 2 messages of the client, until released
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.last_packet_id = 0
        # Messages, for those who watch.
        self.published = 0
        self.sent = 0
        self.shed = 0
        # What the present connection takes.
        self.version = V311
        self.window = limits.inflight
        self.packet_limit = 0
        self.alias_limit = 0
        self.aliases: dict[str, int] = {}

    def attach(
        self, line: Line, version: int, window: int, packet_limit: int, alias_limit: int
    ) -> None:
        """A connection for this session: what was under way is sent again."""
        self.line = line
        self.is_connected = True
        self.ends_ms = 0
        self.version = version
        self.window = min(window, self.hub.limits.inflight)
        self.packet_limit = packet_limit
        self.alias_limit = alias_limit
        self.aliases = {}
        self.dialect = 0 if packet_limit or alias_limit else version
        self.forget_routes()
        for delivery in self.unacknowledged.values():
            if delivery.stage == RELEASED:
                line.reply(_PUBREL + delivery.packet_id.to_bytes(2, "big"))
        if not self.outbox.is_empty():
            self.hub.wake(line)

    def detach(self) -> None:
        """The connection is gone: QoS 0 messages are too, the others wait for the next one."""
        self.line = None
        self.is_connected = False
        self.dialect = 0
        self.forget_routes()
        lost = 0
        for parcel in self.outbox.drop_untracked():
            lost += parcel.count
        if lost:
            self._count_shed(OFFLINE, lost)
        if self.unacknowledged:
            self.requeue()

    def requeue(self) -> None:
        """Bring the queue to what is not yet with the client, in the order of arrival."""
        self.outbox.drop_tracked()
        self.in_flight = 0
        self.in_flight_bytes = 0
        for delivery in self.unacknowledged.values():
            if delivery.stage == RELEASED:
                self.in_flight += 1
                self.in_flight_bytes += delivery.size
            elif delivery.stage != RECORDING:
                delivery.stage = QUEUED
                self.outbox.put_tracked(delivery, is_promised=True)

    def forget_routes(self) -> None:
        """Routes know whether a receiver is connected and which frames it takes."""
        for subscription in self.subscriptions.values():
            self.hub.router.invalidate(subscription.pattern)

    def forward(self, run: Run) -> None:
        line = self.line
        if line is None:
            self._count_shed(OFFLINE, run.count)
            return
        shed = self.outbox.put(run)
        if shed is not None:
            for each in shed:
                self._count_shed(SLOW_READER, each.count)
        if not line.is_dirty:
            self.hub.wake(line)

    def deliver(
        self, message: Message, qos: int, is_retained: bool, identifiers: tuple[int, ...]
    ) -> None:
        assert isinstance(message, MqttMessage)
        if qos > 0:
            self._deliver_tracked(message, qos, is_retained, identifiers)
            return
        line = self.line
        hub = self.hub
        if line is None:
            self._count_shed(OFFLINE, 1)
            return
        parcel: Parcel
        if self.dialect and not (is_retained or identifiers or message.expires_ms):
            parcel = Run(message.frame(self.version), 1, message.importance, hub.now_ms)
        else:
            parcel = Delivery(message, 0, is_retained, identifiers, 0, hub.now_ms)
        shed = self.outbox.put(parcel)
        if shed is not None:
            for each in shed:
                self._count_shed(SLOW_READER, each.count)
        hub.wake(line)

    def pull(self, bytes_wanted: int, frames: list[bytes]) -> None:
        """Add to `frames` what is to be sent next."""
        while self.has_waiting():
            # Not once only: all that was taken may have expired.
            if self._pull_some(bytes_wanted, frames):
                return

    def _pull_some(self, bytes_wanted: int, frames: list[bytes]) -> bool:
        hub = self.hub
        counters = hub.counters
        now_ms = hub.now_ms
        sent = [0, 0, 0]
        sent_bytes = 0
        # Those that were queued together are counted together.
        waited_ms = 0
        importance = 0
        waited = 0
        for parcel in self.outbox.take(bytes_wanted, self._free_window()):
            if 0 < parcel.expires_ms <= now_ms and not _has_begun(parcel):
                self._shed_parcel(parcel, EXPIRED)
                continue
            if isinstance(parcel, Run):
                frame = parcel.frames
                sent[0] += parcel.count
            else:
                assert isinstance(parcel, Delivery)
                frame = self._encode(parcel)
                if 0 < self.packet_limit < len(frame):
                    self._shed_parcel(parcel, PACKET_TOO_LARGE)
                    continue
                sent[parcel.qos] += 1
                if parcel.qos:
                    parcel.stage = SENT
                    parcel.was_sent = True
                    self.in_flight += 1
                    self.in_flight_bytes += parcel.size
            frames.append(frame)
            sent_bytes += len(frame)
            wait_ms = now_ms - parcel.queued_ms
            if wait_ms != waited_ms or parcel.importance != importance:
                if waited:
                    counters.waited(importance, waited_ms, waited)
                waited_ms = wait_ms
                importance = parcel.importance
                waited = 0
            waited += parcel.count
        if waited:
            counters.waited(importance, waited_ms, waited)
            counters.publish_bytes_sent += sent_bytes
            counters.packets_sent += sent[0] + sent[1] + sent[2]
            self.sent += sent[0] + sent[1] + sent[2]
            for qos in range(3):
                counters.publishes_sent[qos] += sent[qos]
        return waited > 0

    def has_waiting(self) -> bool:
        """Whether `pull` would find something now."""
        outbox = self.outbox
        return outbox.bytes > 0 or (outbox.tracked > 0 and self._free_window() > 0)

    def _free_window(self) -> int:
        """How many more may be on their way: their bytes count as if they were still queued."""
        if self.in_flight_bytes >= self.outbox.tracked_bytes_limit:
            return 0
        return self.window - self.in_flight

    def acknowledged(self, packet_id: int) -> bool:
        """The client has a QoS 1 message; False where it could not mean one."""
        delivery = self.unacknowledged.get(packet_id)
        if delivery is None or delivery.qos != 1 or delivery.stage != SENT:
            return False
        del self.unacknowledged[packet_id]
        self.in_flight -= 1
        self.in_flight_bytes -= delivery.size
        if self.is_durable:
            self.hub.record(Done(self.name, packet_id))
        if self.outbox.tracked and self.line is not None:
            self.hub.wake(self.line)
        return True

    def taken(self, packet_id: int, is_refused: bool) -> bool:
        """PUBREC: the client has a QoS 2 message, or will not have it."""
        delivery = self.unacknowledged.get(packet_id)
        if delivery is None or delivery.qos != 2 or delivery.stage < SENT:
            return False
        if is_refused:
            self._count_shed(REFUSED, 1)
            self._finish(delivery)
            return True
        line = self.line
        if delivery.stage == SENT:
            delivery.stage = RELEASED
            if self.is_durable:
                self.hub.record(Released(self.name, packet_id))
        if line is not None:
            frame = _PUBREL + packet_id.to_bytes(2, "big")
            if self.is_durable and self.hub.has_pending():
                line.hold(frame)
            else:
                line.reply(frame)
        return True

    def completed(self, packet_id: int) -> bool:
        """PUBCOMP: the client has forgotten a QoS 2 message's identifier."""
        delivery = self.unacknowledged.get(packet_id)
        if delivery is None or delivery.stage != RELEASED:
            return False
        self._finish(delivery)
        return True

    def admit(self, delivery: Delivery) -> None:
        """Queue what is recorded by now."""
        delivery.stage = QUEUED
        refused = self.outbox.put_tracked(delivery)
        if refused is not None:
            for each in refused:
                self._refuse(each)
        if self.line is not None:
            self.hub.wake(self.line)

    def abandon(self) -> None:
        """The session ends: whatever waits in it is shed."""
        if self.unacknowledged:
            self._count_shed(SESSION_ENDED, len(self.unacknowledged))
        self.unacknowledged = {}
        self.outbox.drop_tracked()
        for subscription in self.subscriptions.values():
            self.hub.router.remove(subscription)
        self.subscriptions = {}
        self.predicates = 0

    def check_invariants(self) -> None:
        stages = [delivery.stage for delivery in self.unacknowledged.values()]
        assert self.in_flight == sum(stage >= SENT for stage in stages)
        assert self.in_flight_bytes == sum(
            delivery.size for delivery in self.unacknowledged.values() if delivery.stage >= SENT
        )
        assert self.in_flight <= max(self.window, sum(stage == RELEASED for stage in stages))
        assert self.outbox.tracked <= len(self.unacknowledged)

    def _deliver_tracked(
        self, message: MqttMessage, qos: int, is_retained: bool, identifiers: tuple[int, ...]
    ) -> None:
        hub = self.hub
        packet_id = self._new_packet_id()
        if packet_id == 0:
            self._count_shed(QUEUE_FULL, 1)
            return
        delivery = Delivery(message, qos, is_retained, identifiers, packet_id, hub.now_ms)
        self.unacknowledged[packet_id] = delivery
        if self.is_durable and hub.is_durable:
            number = hub.store(message)
            hub.record(Queued(self.name, packet_id, number, qos, is_retained, identifiers))
            if qos == 2:
                delivery.stage = RECORDING
                hub.hold(HeldDelivery(self, delivery))
                return
        refused = self.outbox.put_tracked(delivery)
        if refused is not None:
            for each in refused:
                self._refuse(each)
        line = self.line
        if line is not None and not line.is_dirty:
            hub.wake(line)

    def _new_packet_id(self) -> int:
        if len(self.unacknowledged) == _LAST_PACKET_ID:
            return 0
        packet_id = self.last_packet_id
        while True:
            packet_id = packet_id + 1 if packet_id < _LAST_PACKET_ID else 1
            if packet_id not in self.unacknowledged:
                self.last_packet_id = packet_id
                return packet_id

    def _encode(self, delivery: Delivery) -> bytes:
        message = delivery.message
        first = PUBLISH | delivery.qos << 1
        if delivery.is_retained:
            first |= RETAINED
        if delivery.was_sent:
            first |= DUPLICATE
        is_special = delivery.identifiers or self.alias_limit
        if delivery.qos and not is_special and (self.version != V5 or message.expiry_s < 0):
            return message.tracked_frame(self.version, first, delivery.packet_id)
        alias = 0
        is_alias_known = False
        if self.alias_limit and self._surely_fits(delivery):
            alias = self.aliases.get(message.channel, 0)
            is_alias_known = alias > 0
            if not is_alias_known and len(self.aliases) < self.alias_limit:
                alias = len(self.aliases) + 1
                self.aliases[message.channel] = alias
        return message.encode(
            self.version,
            first,
            delivery.packet_id,
            delivery.identifiers,
            alias,
            is_alias_known,
            self.hub.now_ms,
        )

    def _surely_fits(self, delivery: Delivery) -> bool:
        """An alias must not be set up by a packet that is then too large to be sent."""
        size = delivery.size + 32 + 5 * len(delivery.identifiers)
        return self.packet_limit == 0 or size <= self.packet_limit

    def _finish(self, delivery: Delivery) -> None:
        self.in_flight -= 1
        self.in_flight_bytes -= delivery.size
        self._forget(delivery)
        if self.outbox.tracked and self.line is not None:
            self.hub.wake(self.line)

    def _forget(self, delivery: Delivery) -> None:
        del self.unacknowledged[delivery.packet_id]
        if self.is_durable:
            self.hub.record(Done(self.name, delivery.packet_id))

    def _refuse(self, parcel: Parcel) -> None:
        assert isinstance(parcel, Delivery)
        self._forget(parcel)
        self._count_shed(QUEUE_FULL, 1)

    def _shed_parcel(self, parcel: Parcel, cause: str) -> None:
        self._count_shed(cause, parcel.count)
        if isinstance(parcel, Delivery) and parcel.qos:
            self._forget(parcel)

    def _count_shed(self, cause: str, count: int) -> None:
        self.shed += count
        self.hub.counters.shed(cause, self.name, count)


def _has_begun(parcel: Parcel) -> bool:
    """Whether the client may have it already: then its delivery must be brought to an end."""
    return isinstance(parcel, Delivery) and parcel.was_sent


class HeldDelivery(Held):
    """A QoS 2 message that may be sent once a crash can't forget that it was."""

    def __init__(self, session: Session, delivery: Delivery) -> None:
        super().__init__()
        self.session = session
        self.delivery = delivery

    def release(self) -> None:
        if self.session.unacknowledged.get(self.delivery.packet_id) is self.delivery:
            self.session.admit(self.delivery)
