"""A client's MQTT session: its subscriptions and its messages, with or without a connection.

A QoS 1 or 2 message gets its packet identifier when it is queued. It is `sent` until PUBACK or
PUBREC, and `released` from PUBREC until PUBCOMP. When the connection is lost, sent messages return
to their old position in the queue and are retransmitted as duplicates. A session that ends with its
connection retransmits nothing, so its runs of QoS 1 messages get their identifiers when they are
sent. Runs of a durable session get them when they are queued, and are split into messages when the
connection is lost.

A durable session records every step on disk before the client can observe it: QoS 2 messages are
sent, and PUBREL is acknowledged, only once recorded. A crash may therefore duplicate QoS 1
messages, but never QoS 2 messages.

The policy grant of a message decides its bin in the queue. A message with a key replaces an older
one that is still queued; a message that would miss its deadline is not sent; and a message that the
link could not carry in time is shaped first, if its receiver accepts that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from accord.core.broker.broker_context import BrokerContext, ConnectionPort, ShapingWaiter
from accord.core.broker.delivery import (
    DENIED,
    EXPIRED,
    OFFLINE,
    PACKET_TOO_LARGE,
    QUEUE_FULL,
    QUEUED,
    REFUSED,
    RELEASED,
    SENT,
    SESSION_ENDED,
    SLOW_READER,
    SUPERSEDED,
    WAITING,
    ClientDelivery,
    expires_ms,
)
from accord.core.broker.delivery_accounting import (
    count_dropped,
    count_sent,
    received_ms,
    record_outcome,
)
from accord.core.broker.message import DUPLICATE, PUBLISH, RETAINED, MqttMessage
from accord.core.broker.message_shaping import join_shaping, shape_for
from accord.core.broker.runs import CutThrough, MessageRun, stored_run
from accord.core.broker.session_records import Done, DoneRun, Queued, QueuedRun, Released
from accord.core.model.channels import filter_selects, selects_any
from accord.core.monitoring.ledger import EXPIRED as EXPIRED_OUTCOME
from accord.core.monitoring.ledger import REFUSED as REFUSED_OUTCOME
from accord.core.monitoring.ledger import REPLACED as REPLACED_OUTCOME
from accord.core.monitoring.ledger import (
    SHED,
    deadline_detail,
    replacement_detail,
)
from accord.core.mqtt.codes import V5, V311
from accord.core.mqtt.packets import Will
from accord.core.native import cut, number, rewrite
from accord.core.policy.policies import Entity, Grant
from accord.core.router.fan_out import Receiver, RouterSubscription
from accord.core.router.message import Message
from accord.core.scheduling.link_estimator import LinkEstimator
from accord.core.scheduling.outbox import EventRun, Outbox, QueueEntry
from accord.core.scheduling.pacing import Gate
from accord.core.scheduling.shaping_decision import ImportanceRates
from accord.core.scheduling.timers import Timer

_LAST_PACKET_ID: Final = 65_535
_PUBREL: Final = b"\x62\x02"

# Shared empty collections of sessions that receive only QoS 0, as most idle ones do; never
# modified.
_NO_KEYS: Final[dict[tuple[str, str], ClientDelivery]] = {}
_NO_RUNS: Final[dict[int, InFlightRun | CutThrough]] = {}
_NO_IDS: Final[set[int]] = set()
_NO_ALIASES: Final[dict[bytes, int]] = {}
# Queue entries with their bytes as sent, until they are counted.
_NOTHING_PULLED: Final[list[tuple[MessageRun | ClientDelivery, int]]] = []


class MqttSession(Receiver):
    __slots__ = (
        "_pulled",
        "alias_limit",
        "aliases",
        "being_shaped",
        "connection",
        "context",
        "denied",
        "ends_ms",
        "expiry_s",
        "flows",
        "in_flight",
        "in_flight_bytes",
        "is_durable",
        "is_rate_limited",
        "last_packet_id",
        "outbox",
        "owner",
        "packet_limit",
        "predecessor_position",
        "predicates",
        "published",
        "queued_ids",
        "received",
        "replaceable",
        "replaced",
        "sent",
        "sent_bytes",
        "sent_runs",
        "shed",
        "subscriptions",
        "timer",
        "unacknowledged",
        "version",
        "wants_event_ids",
        "will",
        "will_due_ms",
        "window",
    )

    def __init__(self, client: str, context: BrokerContext) -> None:
        super().__init__(client, Entity(client, "", (), context.node))
        limits = context.limits
        self.context = context
        self.connection: ConnectionPort | None = None
        self.owner = ""  # the client's user
        self.denied: tuple[str, ...] = ()  # filters of channels whose events are withheld
        self.expiry_s = 0
        self.is_durable = False
        self.will: Will | None = None
        self.will_due_ms = 0
        self.ends_ms = 0  # when the session expires; 0 while connected
        self.predecessor_position = 0  # log position of the record that ended the previous session
        self.timer: Timer | None = None
        self.subscriptions: dict[str, RouterSubscription] = {}
        self.predicates = 0
        self.outbox = Outbox(
            bytes_limit=limits.outbox_bytes,
            tracked_limit=limits.queue_messages,
            tracked_bytes_limit=limits.queue_bytes,
            discipline=context.discipline,
        )
        # Queued messages that a later one of the same channel and key replaces. Few are being
        # shaped at a time.
        self.replaceable = _NO_KEYS
        self.being_shaped: tuple[ClientDelivery, ...] = ()
        self.flows: ImportanceRates | None = None  # set once something is to be shaped
        self.unacknowledged: dict[int, ClientDelivery] = {}
        # By unacknowledged packet identifier.
        self.sent_runs = _NO_RUNS
        self.queued_ids = _NO_IDS  # identifiers of queued runs, in a durable session
        # QoS 2 messages from the client until PUBREL; False while they wait to be matched.
        self.received: dict[int, bool] = {}
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.last_packet_id = 0
        # Message counts for monitoring.
        self.published = 0
        self.sent = 0
        self.sent_bytes = 0
        self.shed = 0
        self.replaced = 0
        self._pulled = _NOTHING_PULLED
        self.is_rate_limited = False  # whether the client advertised a maximum rate
        # Limits of the current connection.
        self.version = V311
        self.window = limits.inflight
        self.packet_limit = 0
        self.alias_limit = 0
        self.aliases = _NO_ALIASES
        self.wants_event_ids = False

    def attach(
        self,
        connection: ConnectionPort,
        version: int,
        window: int,
        packet_limit: int,
        alias_limit: int,
        wants_event_ids: bool = False,
    ) -> None:
        """Attach a connection and requeue unacknowledged messages for retransmission."""
        self.connection = connection
        self.is_connected = True
        self.ends_ms = 0
        self.version = version
        self.window = min(window, self.context.limits.inflight)
        self.packet_limit = packet_limit
        self.alias_limit = alias_limit
        self.aliases = {} if alias_limit else _NO_ALIASES
        self.wants_event_ids = wants_event_ids
        self.dialect = 0 if packet_limit or alias_limit or wants_event_ids else version
        self.run_qos = 1
        self.invalidate_fan_outs()
        for delivery in self.unacknowledged.values():
            if delivery.stage == RELEASED:
                connection.replies.reply(_PUBREL + delivery.packet_id.to_bytes(2, "big"))
        if not self.outbox.is_empty():
            self.context.wake(connection)

    def detach(self) -> None:
        """Detach the closed connection: QoS 0 messages are shed, others wait for the next one."""
        self.connection = None
        self.is_connected = False
        self.dialect = 0
        self.invalidate_fan_outs()
        for entry in self.outbox.drop_untracked():
            self._shed(entry, OFFLINE)
        self.replaceable = {
            key: each for key, each in self.replaceable.items() if each.qos and each.stage == QUEUED
        }
        if self.is_durable:
            self._split_runs()
        if self.outbox.tracked or self.unacknowledged:
            self.requeue()

    def requeue(self) -> None:
        """Rebuild the queue from what the client has not received, in order of arrival."""
        self._drop_tracked(OFFLINE)
        self.in_flight = 0
        self.in_flight_bytes = 0
        for delivery in self.unacknowledged.values():
            if delivery.stage == RELEASED:
                self.in_flight += 1
                self.in_flight_bytes += delivery.size
            elif delivery.stage != WAITING:
                delivery.stage = QUEUED
                self.outbox.put_tracked(delivery, is_promised=True)

    def deny(self, patterns: tuple[str, ...]) -> None:
        """Withhold events of these channels from now on; queued ones are still delivered."""
        if patterns != self.denied:
            self.denied = patterns
            for subscription in self.subscriptions.values():
                subscription.denied = patterns
            self.invalidate_fan_outs()

    def drop_denied(self) -> None:
        """Drop queued events of denied channels, for a client that is offline."""
        denied = [
            each
            for each in self.unacknowledged.values()
            if each.stage != RELEASED and selects_any(self.denied, each.message.channel)
        ]
        for delivery in denied:
            self._drop(delivery, DENIED, REFUSED_OUTCOME, DENIED)
        if denied:
            self.requeue()

    def invalidate_fan_outs(self) -> None:
        """Invalidate fan-outs, which cache whether a receiver is connected and its frame format."""
        for subscription in self.subscriptions.values():
            self.context.router.invalidate(subscription.pattern)

    def forward(self, run: EventRun) -> None:
        connection = self.connection
        if connection is None:
            self._shed(run, OFFLINE)
            return
        assert isinstance(run, MessageRun)
        if run.qos and self.is_durable:
            owned = self._record_run(run)
            if owned is None:
                for message, identifiers in run.messages():
                    self._deliver_tracked(message, run.qos, False, identifiers, run.grant)
                return
            run = owned
        shed = self.outbox.put_tracked(run) if run.qos else self.outbox.put(run)
        if shed is not None:
            self._drop_overflow(shed)
        if not connection.is_dirty:
            connection.is_dirty = True
            self.context.dirty.append(connection)

    def deliver(
        self,
        message: Message,
        qos: int,
        is_retained: bool,
        identifiers: tuple[int, ...],
        grant: Grant,
    ) -> None:
        assert isinstance(message, MqttMessage)
        if qos > 0:
            self._deliver_tracked(message, qos, is_retained, identifiers, grant)
            return
        context = self.context
        counts = message.counts
        if (
            self.dialect
            and counts is not None
            and not (
                is_retained or identifiers or message.key or grant.shaping or grant.keeps_order
            )
            and message.expiry_s < 0
        ):
            run = MessageRun(
                message.frame(self.version),
                1,
                grant,
                context.now_ms,
                message.number,
                message.channel,
                message.publisher,
                counts,
                self.version == V5,
            )
            if message.expires_ms:
                run.expires_ms = expires_ms(message, grant)
            self.forward(run)
            return
        delivery = ClientDelivery(message, 0, is_retained, identifiers, 0, context.now_ms, grant)
        if self.connection is None:
            self._shed(delivery, OFFLINE)
        elif grant.keeps_order and self.is_durable and context.has_pending():
            self._hold(delivery)  # like those before it
        elif not self._start_shaping(delivery):
            self._queue(delivery)

    def deliver_kept(
        self,
        message: MqttMessage,
        qos: int,
        identifiers: tuple[int, ...],
        grant: Grant,
        bin_: int = -1,
    ) -> ClientDelivery | None:
        """Deliver an event from history, in the given bin if any; None if that is not possible.

        It is not recorded: it is on disk already, and the requester can request it again.
        """
        context = self.context
        packet_id = self._new_packet_id() if qos else 0
        delivery = ClientDelivery(
            message, qos, False, identifiers, packet_id, context.now_ms, grant
        )
        if bin_ >= 0:
            delivery.bin = bin_
        if qos and packet_id == 0:
            self._count(QUEUE_FULL, 1)
            self._record_outcome(delivery, REFUSED_OUTCOME, QUEUE_FULL)
            return None
        if qos:
            self.unacknowledged[packet_id] = delivery
        elif self.connection is None:
            self._shed(delivery, OFFLINE)
            return None
        if not self._start_shaping(delivery):
            self._queue(delivery)
        return delivery

    def subscription_to(self, channel: str) -> RouterSubscription | None:
        """A subscription that selects `channel`, if there is one."""
        if self.denied and selects_any(self.denied, channel):
            return None
        exact = self.subscriptions.get(channel)
        if exact is not None:
            return exact
        for each in self.subscriptions.values():
            if not each.group and each.predicate is None and filter_selects(each.pattern, channel):
                return each
        return None

    def _queue(self, delivery: ClientDelivery) -> None:
        """Queue a message until it can be sent, or until the client reconnects."""
        if delivery.message.key and delivery.grant.is_replacing and self._replace_older(delivery):
            pass
        elif delivery.is_tracked:
            refused = self.outbox.put_tracked(delivery)
            if refused is not None:
                self._drop_overflow(refused)
        else:
            shed = self.outbox.put(delivery)
            if shed is not None:
                self._drop_overflow(shed)
        connection = self.connection
        if connection is not None and not connection.is_dirty:
            self.context.wake(connection)

    def _replace_older(self, delivery: ClientDelivery) -> bool:
        """Whether `delivery` replaced an older message with its key, or a newer one replaced it."""
        key = (delivery.message.channel, delivery.message.key)
        older = self.replaceable.get(key)
        if older is not None and older.stage == QUEUED and _is_newer(older, delivery):
            self._record_replaced(delivery, older)  # it was shaped or in transit for too long
            return True
        if not self.replaceable:
            self.replaceable = {}
        self.replaceable[key] = delivery
        if older is None or older.stage != QUEUED or older.was_sent:
            return False
        is_tracked = older.qos > 0
        self._record_replaced(older, delivery)
        if is_tracked != (delivery.qos > 0) or older.bin != delivery.bin:
            self.outbox.remove(older, is_tracked)
            return False
        older.replace_with(delivery)
        self.replaceable[key] = older
        if is_tracked:
            self.unacknowledged[older.packet_id] = older
        given_way = self.outbox.resize(older, delivery.size, is_tracked, delivery.expires_ms)
        if given_way is not None:
            self._drop_overflow(given_way)
        return True

    def _drop_overflow(self, entries: list[QueueEntry]) -> None:
        """Account for messages refused or shed because the queue is full."""
        for each in entries:
            if isinstance(each, ClientDelivery | MessageRun) and each.qos:
                if isinstance(each, ClientDelivery):
                    self._remove(each)
                else:
                    self._release_run(each)
                self._count(QUEUE_FULL, each.count)
                self._record_outcome(each, REFUSED_OUTCOME, QUEUE_FULL)
            else:
                self._shed(each, SLOW_READER)

    def _record_replaced(self, older: ClientDelivery, delivery: ClientDelivery) -> None:
        if older.qos:
            self._remove(older)
        self.replaced += 1
        self.context.counters.replaced += 1
        counts = older.message.counts
        if counts is not None:
            counts.replaced += 1
        if self.context.ledger.is_on:
            self._record_outcome(older, REPLACED_OUTCOME, replacement_detail(delivery.number))

    def _replace_shaping(self, delivery: ClientDelivery) -> None:
        """Drop messages being shaped that this later message of the same key replaces."""
        message = delivery.message
        left: list[ClientDelivery] = []
        for older in self.being_shaped:
            if older.message.key == message.key and older.message.channel == message.channel:
                self._record_replaced(older, delivery)
                older.stage = SUPERSEDED
            else:
                left.append(older)
        self.being_shaped = tuple(left)

    def _start_shaping(self, delivery: ClientDelivery) -> bool:
        """Whether `delivery` has to wait until its message is shaped."""
        if self.being_shaped and delivery.message.key and delivery.grant.is_replacing:
            self._replace_shaping(delivery)
        context = self.context
        connection = self.connection
        if (
            not delivery.grant.shaping
            or not context.is_shaping
            or not context.has_workers
            or connection is None
        ):
            return False
        if self.flows is None:
            self.flows = ImportanceRates(context.now_ms)
        shape = shape_for(delivery, connection.link, self.outbox, self.flows, context.now_ms)
        if shape is None:
            return False
        shaped = delivery.message.shaped
        if shaped is not None and shape in shaped:
            delivery.use_shaped(shaped[shape])
            return False
        if not join_shaping(context, delivery, shape, HeldDelivery(self, delivery)):
            return False
        delivery.stage = WAITING
        delivery.pending_conditions += 1
        if delivery.message.key:
            self.being_shaped += (delivery,)
        return True

    def pull(self, bytes_wanted: int, frames: list[bytes]) -> None:
        """Append the next frames to send to `frames`."""
        outbox = self.outbox
        # Repeated because everything taken may have expired.
        while outbox.bytes or outbox.tracked:
            window = self._free_window() if outbox.tracked else 0
            connection = self.connection
            if connection is None or (window <= 0 and not outbox.bytes):
                return
            gate = connection.link.gate
            if gate is None:
                single = outbox.take_single(bytes_wanted, window)
                entries = outbox.take(bytes_wanted, window) if single is None else [single]
            else:
                entries = outbox.take_admitted(bytes_wanted, window, gate)
                if not entries:
                    if self._expire_head(gate, connection.link):
                        continue
                    return
            if self._to_frames(entries, connection, frames):
                return

    def _to_frames(
        self, entries: list[QueueEntry], connection: ConnectionPort, frames: list[bytes]
    ) -> bool:
        """Append the entries that are still useful to `frames`; False if none is."""
        now_ms = self.context.now_ms
        link = connection.link
        useful: Iterable[QueueEntry] = entries
        # A single entry on a link not known to be slow only has to be in time now.
        if len(entries) > 1 or (
            entries[0].expires_ms > 0
            and (entries[0].expires_ms <= now_ms or link.rate_bps or link.limit_bps)
        ):
            useful = self._still_useful(entries, link)
        taken = self._pulled or []
        for entry in useful:
            if isinstance(entry, MessageRun):
                is_aged = entry.expiry_s >= 0 and now_ms - entry.queued_ms >= 1000
                is_ready = not entry.qos and not is_aged
                frame = entry.frames if is_ready else self._frames_of(entry)
            else:
                assert isinstance(entry, ClientDelivery)
                frame = self._encode(entry)
                if 0 < self.packet_limit < len(frame):
                    self._shed(entry, PACKET_TOO_LARGE)
                    continue
                if entry.message.key:
                    self._clear_replaceable(entry)
                if entry.qos:
                    entry.stage = SENT
                    entry.was_sent = True
                    # The client may have it, so the exchange must be completed.
                    entry.expires_ms = 0
                    self.in_flight += 1
                    self.in_flight_bytes += entry.size
            frames.append(frame)
            taken.append((entry, len(frame)))
        self._pulled = taken
        return bool(taken)

    def count_pulled(self) -> None:
        """Count and record what `pull` returned; called once that is being sent."""
        taken = self._pulled
        if not taken:
            return
        self._pulled = _NOTHING_PULLED
        context = self.context
        counters = context.counters
        now_ms = context.now_ms
        # Entries queued together are counted together.
        waited_ms = 0
        importance = 0
        waited = 0
        sent = 0
        sent_bytes = 0
        for entry, size in taken:
            count = entry.count
            wait_ms = now_ms - entry.queued_ms
            if self.flows is not None:
                self.flows.sent(entry.importance, size)
            count_sent(context, self.connection, self.name, entry, size, wait_ms)
            if wait_ms != waited_ms or entry.importance != importance:
                if waited:
                    counters.count_wait(importance, waited_ms, waited)
                waited_ms = wait_ms
                importance = entry.importance
                waited = 0
            waited += count
            sent += count
            sent_bytes += size
            counters.publishes_sent[entry.qos] += count
        counters.count_wait(importance, waited_ms, waited)
        counters.publish_bytes_sent += sent_bytes
        counters.packets_sent += sent
        self.sent += sent
        self.sent_bytes += sent_bytes

    def _still_useful(self, entries: list[QueueEntry], link: LinkEstimator) -> Iterator[QueueEntry]:
        """The entries expected to arrive in time, given the link estimate."""
        now_ms = self.context.now_ms
        size = 0
        for entry in entries:
            if entry.expires_ms > 0:
                due_ms = now_ms + link.sending_ms(size + entry.size)
                if entry.expires_ms <= due_ms:
                    if not isinstance(entry, MessageRun) or entry.count == 1:
                        self._expire(entry)
                        continue
                    for is_expired, piece in entry.by_expiry(due_ms):
                        if is_expired:
                            self._expire(piece)
                        else:
                            size += piece.size
                            yield piece
                    continue
            size += entry.size
            yield entry

    def _frames_of(self, run: MessageRun) -> bytes:
        """The frames of a run with current expiry intervals and packet identifiers."""
        frames = run.frames
        waited_s = (self.context.now_ms - run.queued_ms) // 1000 if run.expiry_s >= 0 else 0
        if waited_s > 0:
            frames = rewrite(frames, run.is_v5, run.is_v5, run.qos, waited_s, b"")
        if not run.qos:
            return frames
        if run.first_id:
            ids: Sequence[int] = range(run.first_id, run.first_id + run.count)
            self.queued_ids.difference_update(ids)
        else:
            ids = self._new_packet_ids(run.count)
        sent: dict[int, InFlightRun | CutThrough] = dict.fromkeys(ids, InFlightRun(run, ids))
        if self.sent_runs:
            self.sent_runs.update(sent)
        else:
            self.sent_runs = sent
        self.in_flight += run.count
        self.in_flight_bytes += run.size
        if isinstance(ids, range):
            return number(frames, ids.start)
        numbered: list[bytes] = []
        for packet_id in ids:
            size, _ = cut(frames, 1, 1, 1)
            numbered.append(number(frames[:size], packet_id))
            frames = frames[size:]
        return b"".join(numbered)

    def has_window(self) -> bool:
        """Whether a QoS 1 message that need not be recorded may be sent."""
        return not self.is_durable and self._free_window() > 0

    def track(self, made: CutThrough) -> None:
        """Assign a packet identifier to `made` and track its acknowledgement."""
        packet_id = made.packet_id = self._new_packet_id()
        made.frame = number(made.frame, packet_id)
        if self.sent_runs:
            self.sent_runs[packet_id] = made
        else:
            self.sent_runs = {packet_id: made}
        self.in_flight += 1
        self.in_flight_bytes += len(made.frame)

    def _expire_head(self, gate: Gate, link: LinkEstimator) -> bool:
        """Drop the head of the queue if it can't arrive in time; False if it can."""
        head = self.outbox.peek(self._free_window())
        if head is None or head.expires_ms == 0 or head.count > 1:
            return False
        takes_ms = gate.wait_us // 1_000 + link.sending_ms(head.size)
        if head.expires_ms > self.context.now_ms + takes_ms:
            return False
        self.outbox.remove(head, is_tracked(head))
        self._expire(head)
        return True

    def peek(self, gate: Gate | None) -> QueueEntry | None:
        """The entry `pull` would start with, as far as `gate` permits."""
        outbox = self.outbox
        head = outbox.peek(self._free_window(), 1, gate)
        connection = self.connection
        while head is None and gate is not None and connection is not None:
            if not self._expire_head(gate, connection.link):
                break
            head = outbox.peek(self._free_window(), 1, gate)
        return head

    def expire(self) -> None:
        """Drop queued messages that have expired."""
        for entry in self.outbox.expire(self.context.now_ms):
            self._expire(entry)

    def has_waiting(self) -> bool:
        """Whether `pull` would return anything now."""
        outbox = self.outbox
        return outbox.bytes > 0 or (outbox.tracked > 0 and self._free_window() > 0)

    def is_window_full(self) -> bool:
        """Whether tracked messages have to wait for an acknowledgement."""
        return self._free_window() <= 0

    def _free_window(self) -> int:
        """Remaining in-flight window; zero if the bytes in flight use up the queue's limit."""
        if self.in_flight_bytes >= self.outbox.tracked_bytes_limit:
            return 0
        return self.window - self.in_flight

    def on_puback(self, packet_id: int) -> bool:
        """PUBACK for one QoS 1 message; False if none was sent with this identifier."""
        return self.on_pubacks(packet_id, 1)

    def on_pubacks(self, first: int, count: int) -> bool:
        """PUBACK for `count` identifiers from `first` on; False if none matches."""
        done: list[tuple[int, int]] = []
        for packet_id in range(first, first + count):
            if not self._acknowledge(packet_id):
                continue
            if done and sum(done[-1]) == packet_id:
                done[-1] = (done[-1][0], done[-1][1] + 1)
            else:
                done.append((packet_id, 1))
        if not done:
            return False
        if self.is_durable:
            for start, several in done:
                self.context.record(DoneRun(self.name, start, several))
        if self.outbox.tracked and self.connection is not None:
            self.context.wake(self.connection)
        return True

    def _acknowledge(self, packet_id: int) -> bool:
        sent = self.sent_runs.pop(packet_id, None)
        if sent is not None:
            sent.unacknowledged -= 1
            self.in_flight -= 1
            if sent.unacknowledged == 0:
                self.in_flight_bytes -= sent.size
            return True
        delivery = self.unacknowledged.get(packet_id)
        if delivery is None or delivery.qos != 1 or delivery.stage != SENT:
            return False
        del self.unacknowledged[packet_id]
        self.in_flight -= 1
        self.in_flight_bytes -= delivery.size
        return True

    def on_pubrec(self, packet_id: int, is_refused: bool) -> bool:
        """PUBREC: the client received a QoS 2 message, or refused it."""
        delivery = self.unacknowledged.get(packet_id)
        if delivery is None or delivery.qos != 2 or delivery.stage < SENT:
            return False
        if is_refused:
            self._count(REFUSED, 1)
            self._record_outcome(delivery, REFUSED_OUTCOME, REFUSED)
            self._finish(delivery)
            return True
        connection = self.connection
        if delivery.stage == SENT:
            delivery.stage = RELEASED
            if self.is_durable:
                self.context.record(Released(self.name, packet_id))
        if connection is not None:
            frame = _PUBREL + packet_id.to_bytes(2, "big")
            if self.is_durable and self.context.has_pending():
                connection.replies.hold(frame)
            else:
                connection.replies.reply(frame)
        return True

    def on_pubcomp(self, packet_id: int) -> bool:
        """PUBCOMP: the client released a QoS 2 message's identifier."""
        delivery = self.unacknowledged.get(packet_id)
        if delivery is None or delivery.stage != RELEASED:
            return False
        self._finish(delivery)
        return True

    def admit(self, delivery: ClientDelivery) -> None:
        """Count down what `delivery` waits for; queue it once it is recorded and shaped."""
        delivery.pending_conditions -= 1
        if delivery.pending_conditions > 0 or delivery.stage == SUPERSEDED:
            return
        if delivery in self.being_shaped:
            self.being_shaped = tuple(each for each in self.being_shaped if each is not delivery)
        if delivery.qos:
            if self.unacknowledged.get(delivery.packet_id) is not delivery:
                return
        elif self.connection is None:
            self._shed(delivery, OFFLINE)
            return
        delivery.stage = QUEUED
        self._queue(delivery)

    def abandon(self) -> None:
        """End the session: everything pending is shed."""
        for delivery in self.unacknowledged.values():
            self._count(SESSION_ENDED, 1)
            self._record_outcome(delivery, SHED, SESSION_ENDED)
        for sent in dict.fromkeys(self.sent_runs.values()):
            self._count(SESSION_ENDED, sent.unacknowledged)
            marks = bytes(self.sent_runs.get(each) is sent for each in sent.ids)
            for is_left, piece in sent.run.pieces(marks):
                if is_left:
                    self._record_outcome(piece, SHED, SESSION_ENDED)
        self.unacknowledged = {}
        self.sent_runs = _NO_RUNS
        self.queued_ids = _NO_IDS
        self.replaceable = _NO_KEYS
        self.being_shaped = ()
        self._drop_tracked(SESSION_ENDED)
        for subscription in self.subscriptions.values():
            self.context.router.remove(subscription)
        self.subscriptions = {}
        self.predicates = 0

    def check_invariants(self) -> None:
        stages = [delivery.stage for delivery in self.unacknowledged.values()]
        assert self.in_flight == sum(stage >= SENT for stage in stages) + len(self.sent_runs)
        sent_runs = set(self.sent_runs.values())
        assert self.in_flight_bytes == sum(
            delivery.size for delivery in self.unacknowledged.values() if delivery.stage >= SENT
        ) + sum(sent.size for sent in sent_runs)
        assert sum(sent.unacknowledged for sent in sent_runs) == len(self.sent_runs)
        assert not self.sent_runs.keys() & self.unacknowledged.keys()
        assert self.queued_ids.isdisjoint(self.sent_runs.keys() | self.unacknowledged.keys())
        waiting = [each for each in self.outbox.tracked_entries() if isinstance(each, MessageRun)]
        assert len(self.queued_ids) == sum(run.count for run in waiting if run.first_id)
        assert self.in_flight <= max(self.window, sum(stage == RELEASED for stage in stages))
        for entry in self.outbox.tracked_entries():
            assert (
                isinstance(entry, MessageRun)
                or not cast("ClientDelivery", entry).qos
                or self.unacknowledged.get(cast("ClientDelivery", entry).packet_id) is entry
            )

    def _drop_tracked(self, cause: str) -> None:
        """Empty the tracked part of the queue; unacknowledged messages remain in the session."""
        for entry in self.outbox.drop_tracked():
            if isinstance(entry, MessageRun) or not cast("ClientDelivery", entry).qos:
                self._shed(entry, cause)

    def _deliver_tracked(
        self,
        message: MqttMessage,
        qos: int,
        is_retained: bool,
        identifiers: tuple[int, ...],
        grant: Grant,
    ) -> None:
        context = self.context
        packet_id = self._new_packet_id()
        delivery = ClientDelivery(
            message, qos, is_retained, identifiers, packet_id, context.now_ms, grant
        )
        if packet_id == 0:
            self._count(QUEUE_FULL, 1)
            self._record_outcome(delivery, REFUSED_OUTCOME, QUEUE_FULL)
            return
        self.unacknowledged[packet_id] = delivery
        if self.is_durable and context.is_durable:
            number = context.store(message)
            context.record(Queued(self.name, packet_id, number, qos, is_retained, identifiers))
            if qos == 2 or grant.keeps_order:
                self._hold(delivery)
        if not self._start_shaping(delivery) and delivery.pending_conditions == 0:
            self._queue(delivery)

    def _hold(self, delivery: ClientDelivery) -> None:
        """Queue `delivery` once everything recorded so far is on disk."""
        delivery.stage = WAITING
        delivery.pending_conditions += 1
        self.context.hold(HeldDelivery(self, delivery))

    def _record_run(self, run: MessageRun) -> MessageRun | None:
        """Copy a run for this durable session and record it; None if identifiers are exhausted."""
        ids = self._free_range(run.count)
        if ids is None:
            return None
        context = self.context
        if context.is_durable:
            if not run.stored_as:
                run.stored_as = context.new_record_number(run.count)
                context.record(stored_run(run))
            context.record(QueuedRun(self.name, ids.start, run.stored_as, run.count))
        if self.queued_ids:
            self.queued_ids.update(ids)
        else:
            self.queued_ids = set(ids)
        return run.with_ids(ids.start)

    def _release_run(self, run: MessageRun) -> None:
        """Release the identifiers of a run that will not be sent."""
        if run.first_id:
            self.queued_ids.difference_update(range(run.first_id, run.first_id + run.count))
            self.context.record(DoneRun(self.name, run.first_id, run.count))

    def iter_unacknowledged(self) -> Iterator[ClientDelivery | tuple[MessageRun, bool]]:
        """Unacknowledged messages in order of arrival; runs with whether they were sent."""
        runs: list[tuple[MessageRun, bool]] = []
        for entry in self.outbox.tracked_entries():
            if isinstance(entry, MessageRun) and entry.first_id:
                runs.append((entry, False))
        for sent in dict.fromkeys(self.sent_runs.values()):
            marks = bytes(self.sent_runs.get(each) is sent for each in sent.ids)
            for is_left, piece in sent.run.pieces(marks):
                if is_left:
                    runs.append((piece, True))
        runs.sort(key=lambda each: each[0].arrival, reverse=True)
        for delivery in self.unacknowledged.values():
            while runs and runs[-1][0].arrival < (delivery.queued_ms, delivery.number, 0):
                yield runs.pop()
            yield delivery
        yield from reversed(runs)

    def _split_runs(self) -> None:
        """Split runs into single messages, which can be retransmitted."""
        if not self.sent_runs and not self.queued_ids:
            return
        found = list(self.iter_unacknowledged())
        self.unacknowledged = {}
        for each in found:
            if isinstance(each, ClientDelivery):
                self.unacknowledged[each.packet_id] = each
                continue
            run, was_sent = each
            if not was_sent:
                self.outbox.remove(run, True)
            for packet_id, (message, identifiers) in enumerate(run.messages(), run.first_id):
                delivery = ClientDelivery(
                    message, run.qos, False, identifiers, packet_id, run.queued_ms, run.grant
                )
                delivery.was_sent = was_sent
                self.unacknowledged[packet_id] = delivery
        self.sent_runs = _NO_RUNS
        self.queued_ids = _NO_IDS

    def _is_free(self, packet_id: int) -> bool:
        return not (
            packet_id in self.unacknowledged
            or packet_id in self.sent_runs
            or packet_id in self.queued_ids
        )

    def unfinished(self) -> int:
        """Number of messages not yet sent or not yet acknowledged."""
        return max(len(self.unacknowledged), self.outbox.tracked + self.in_flight)

    def _new_packet_id(self) -> int:
        used = len(self.unacknowledged) + len(self.sent_runs) + len(self.queued_ids)
        if used >= _LAST_PACKET_ID:
            return 0
        packet_id = self.last_packet_id
        while True:
            packet_id = packet_id + 1 if packet_id < _LAST_PACKET_ID else 1
            if self._is_free(packet_id):
                self.last_packet_id = packet_id
                return packet_id

    def _free_range(self, count: int) -> range | None:
        """Allocate `count` consecutive packet identifiers, if there are."""
        for first in (self.last_packet_id + 1, 1):
            ids = range(first, first + count)
            if (
                ids.stop <= _LAST_PACKET_ID + 1
                and self.unacknowledged.keys().isdisjoint(ids)
                and self.sent_runs.keys().isdisjoint(ids)
                and self.queued_ids.isdisjoint(ids)
            ):
                self.last_packet_id = ids.stop - 1
                return ids
        return None

    def _new_packet_ids(self, count: int) -> Sequence[int]:
        """Allocate `count` packet identifiers; the window guarantees that as many are free."""
        ids = self._free_range(count)
        if ids is not None:
            return ids
        found: list[int] = []
        while len(found) < count:
            packet_id = self._new_packet_id()
            assert packet_id
            found.append(packet_id)
        return found

    def _encode(self, delivery: ClientDelivery) -> bytes:
        message = delivery.message
        first = PUBLISH | delivery.qos << 1
        if delivery.is_retained:
            first |= RETAINED
        if delivery.was_sent:
            first |= DUPLICATE
        is_special = delivery.identifiers or self.alias_limit or self.wants_event_ids
        if delivery.qos and not is_special and (self.version != V5 or message.expiry_s < 0):
            return message.tracked_frame(self.version, first, delivery.packet_id)
        alias = 0
        is_alias_known = False
        if self.alias_limit and self._fits_limit(delivery):
            alias = self.aliases.get(message.topic, 0)
            is_alias_known = alias > 0
            if not is_alias_known and len(self.aliases) < self.alias_limit:
                alias = len(self.aliases) + 1
                self.aliases[message.topic] = alias
        return message.encode(
            self.version,
            first,
            delivery.packet_id,
            delivery.identifiers,
            alias,
            is_alias_known,
            self.context.now_ms,
            message.event_id_block(self.context.node) if self.wants_event_ids else b"",
        )

    def _fits_limit(self, delivery: ClientDelivery) -> bool:
        """Whether a message fits the packet limit.

        An alias must not be set up by a packet that is then too large to send.
        """
        size = delivery.size + 32 + 5 * len(delivery.identifiers)
        if self.wants_event_ids:
            size += len(delivery.message.event_id_block(self.context.node))
        return self.packet_limit == 0 or size <= self.packet_limit

    def _finish(self, delivery: ClientDelivery) -> None:
        self.in_flight -= 1
        self.in_flight_bytes -= delivery.size
        self._remove(delivery)
        if self.outbox.tracked and self.connection is not None:
            self.context.wake(self.connection)

    def _remove(self, delivery: ClientDelivery) -> None:
        del self.unacknowledged[delivery.packet_id]
        if delivery.message.key:
            self._clear_replaceable(delivery)
        if self.is_durable:
            self.context.record(Done(self.name, delivery.packet_id))

    def _clear_replaceable(self, delivery: ClientDelivery) -> None:
        key = (delivery.message.channel, delivery.message.key)
        if self.replaceable.get(key) is delivery:
            del self.replaceable[key]

    def _expire(self, entry: QueueEntry) -> None:
        """Drop an entry that could not arrive in time."""
        detail = deadline_detail(entry.expires_ms - received_ms(entry))
        self._drop(entry, EXPIRED, EXPIRED_OUTCOME, detail)

    def _shed(self, entry: QueueEntry, cause: str) -> None:
        self._drop(entry, cause, SHED, cause)

    def _drop(self, entry: QueueEntry, cause: str, outcome: int, detail: str) -> None:
        self._count(cause, entry.count)
        count_dropped(entry, outcome == EXPIRED_OUTCOME)
        if isinstance(entry, ClientDelivery):
            if entry.message.key:
                self._clear_replaceable(entry)
            if entry.qos and entry.packet_id:
                self._remove(entry)
        elif isinstance(entry, MessageRun):
            self._release_run(entry)
        self._record_outcome(entry, outcome, detail)

    def _record_outcome(self, entry: QueueEntry, outcome: int, detail: str) -> None:
        if self.context.ledger.is_on:
            record_outcome(
                self.context, self.connection, self.name, entry, outcome, entry.size, detail
            )

    def _count(self, cause: str, count: int) -> None:
        self.shed += count
        self.context.counters.count_shed(cause, self.name, count)


class InFlightRun:
    """A sent run of QoS 1 messages with packet `ids`, with the count of those unacknowledged."""

    __slots__ = ("ids", "run", "size", "unacknowledged")

    def __init__(self, run: MessageRun, ids: Sequence[int]) -> None:
        self.run = run
        self.size = run.size
        self.ids = ids
        self.unacknowledged = run.count


class HeldDelivery(ShapingWaiter):
    """A message that is queued once it is recorded or shaped."""

    def __init__(self, session: MqttSession, delivery: ClientDelivery) -> None:
        super().__init__()
        self.session = session
        self.delivery = delivery

    def release(self) -> None:
        self.session.admit(self.delivery)

    def on_shaped(self, message: MqttMessage | None) -> None:
        if message is not None:
            self.delivery.use_shaped(message)
        self.release()


def _is_newer(one: ClientDelivery, other: ClientDelivery) -> bool:
    """Compare by number if both are from one node, otherwise by time: numbers are per node."""
    ours, theirs = one.original, other.original
    if ours.event_node == theirs.event_node:
        return one.number > other.number
    return ours.received_ms > theirs.received_ms


def is_tracked(entry: QueueEntry) -> bool:
    """Whether an entry's delivery is acknowledged."""
    if isinstance(entry, MessageRun):
        return entry.qos > 0
    return isinstance(entry, ClientDelivery) and entry.is_tracked
