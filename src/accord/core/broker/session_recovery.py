"""Recovery of the broker's durable state from its log, and snapshots of that state.

A crash is not recorded: sessions whose clients were connected count as left at recovery, so their
wills are published then. Whether a queued message was sent before the crash is not recorded; if it
may have been, it is sent as a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from accord.core.broker import session_records
from accord.core.broker.broker import FOREVER, Broker, SubscriptionPredicate, split_shared
from accord.core.broker.delivery import RELEASED, ClientDelivery
from accord.core.broker.message import MqttMessage
from accord.core.broker.runs import restored_run, stored_run
from accord.core.broker.session import MqttSession
from accord.core.model import former_names
from accord.core.model.errors import AccordError
from accord.core.router.fan_out import RouterSubscription


class RecoveredState(msgspec.Struct):
    """Result of a recovery; `problems` are the first unusable records with the reason."""

    records: int = 0
    sessions: int = 0
    subscriptions: int = 0
    messages: int = 0
    retained: int = 0
    unusable: int = 0
    problems: list[str] = []
    kept_through: int | None = None  # the last `KeptThrough`, if any


def restore(broker: Broker, records: Iterable[bytes], *, now_ms: int) -> RecoveredState:
    """Apply `records` to a new `broker`, as of `now_ms`."""
    restoring = _Restoring(broker)
    report = RecoveredState()
    context = broker.context
    is_durable, context.is_durable, context.now_ms = context.is_durable, False, now_ms
    for data in records:
        report.records += 1
        try:
            restoring.apply(session_records.decode_record(data))
        except (ValueError, OverflowError, RecursionError, AccordError) as error:
            report.unusable += 1
            if len(report.problems) < 5:
                report.problems.append(f"record {report.records}: {error}")
    context.is_durable = is_durable
    restoring.finish(now_ms)
    report.kept_through = restoring.kept_through
    report.sessions = len(broker.sessions)
    report.subscriptions = broker.router.size
    report.messages = sum(len(session.unacknowledged) for session in broker.sessions.values())
    report.retained = broker.retained.messages
    return report


def snapshot(broker: Broker) -> list[bytes]:
    """Records that create the present durable state."""
    return [session_records.encode_record(record) for record in _snapshot(broker)]


def redo_publish(broker: Broker, message: MqttMessage) -> bool:
    """Redo the effects of a kept QoS 2 message that a crash interrupted.

    Its publisher may send it again and then gets the acknowledgement only. False if the effects are
    already recorded, or no client would send it again.
    """
    session = broker.sessions.get(message.publisher)
    if session is None or not session.is_durable or not message.packet_id:
        return False
    if message.packet_id in session.received:
        return False
    recorded = len(broker.context.state_records)
    broker.republish(message, session.entity)
    session.received[message.packet_id] = True
    broker.context.record(session_records.ReceivedRecord(session.name, message.packet_id))
    broker.context.make_atomic(recorded)
    return True


class _Restoring:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._messages: dict[int, MqttMessage] = {}
        self._identifiers: dict[int, tuple[int, ...]] = {}  # of messages in runs
        self._connected: set[str] = set()  # clients connected at the crash
        self.kept_through: int | None = None

    def apply(self, record: session_records.SessionLogRecord) -> None:
        if isinstance(record, session_records.AtomicRecords):
            for data in record.records:
                self.apply(session_records.decode_record(data))
        elif isinstance(record, session_records.Stored):
            self._messages[record.number] = session_records.restored_message(record)
            self._broker.context.restore_record_number(record.number)
        elif isinstance(record, session_records.StoredRun):
            for message, identifiers in restored_run(record):
                self._messages[message.stored_as] = message
                self._broker.context.restore_record_number(message.stored_as)
                if identifiers:
                    self._identifiers[message.stored_as] = identifiers
        elif isinstance(record, session_records.Retained):
            if record.number in self._messages:
                self._broker.retained.set(self._messages[record.number])
        elif isinstance(record, session_records.RetainedCleared):
            self._broker.retained.remove(record.channel)
        elif isinstance(record, session_records.KeptThrough):
            self.kept_through = record.offset
        elif isinstance(record, session_records.SessionOpened):
            self._open(record)
        else:
            session = self._broker.sessions.get(record.client)
            if session is not None:
                self._apply_to(session, record)

    def finish(self, now_ms: int) -> None:
        broker = self._broker
        for session in list(broker.sessions.values()):
            if broker.denied_to is not None:
                # Before its client reconnects: other members of its groups may get what it is
                # denied.
                session.deny(broker.denied_to(session.owner, session.name))
            session.requeue()
            if session.unacknowledged:
                session.last_packet_id = next(reversed(session.unacknowledged))
            if session.name in self._connected:
                self._mark_offline(session, now_ms)
            broker.set_timer(session)

    def _mark_offline(self, session: MqttSession, now_ms: int) -> None:
        """Start the timers of a session whose client was connected at the crash."""
        if session.expiry_s != FOREVER:
            session.ends_ms = now_ms + session.expiry_s * 1000
        if session.will is not None:
            delay_s = min(session.will.properties.will_delay_s or 0, session.expiry_s)
            session.will_due_ms = now_ms + delay_s * 1000
        self._broker.context.record(self._broker.left_record(session))

    def _open(self, record: session_records.SessionOpened) -> None:
        session = self._broker.sessions.get(record.client)
        if session is None:
            session = self._broker.sessions[record.client] = MqttSession(
                record.client, self._broker.context
            )
        session.version = record.version
        session.expiry_s = record.expiry_s
        session.is_durable = True
        session.will = record.will
        self._broker.set_owner(session, record.owner)
        session.will_due_ms = 0
        session.ends_ms = 0
        self._connected.add(record.client)
        for delivery in session.unacknowledged.values():
            delivery.was_sent = True

    def _apply_to(self, session: MqttSession, record: session_records.SessionRecord) -> None:
        if isinstance(record, session_records.Subscribed | session_records.Unsubscribed):
            pattern = former_names.CHANNELS.get(record.pattern, record.pattern)
            record = msgspec.structs.replace(record, pattern=pattern)
        if isinstance(record, session_records.Queued):
            self._queue(session, record)
        elif isinstance(record, session_records.QueuedRun):
            for place in range(record.count):
                number = record.number + place
                queued = session_records.Queued(
                    record.client,
                    record.packet_id + place,
                    number,
                    1,
                    False,
                    self._identifiers.get(number, ()),
                    record.was_sent,
                )
                self._queue(session, queued)
        elif isinstance(record, session_records.Done):
            session.unacknowledged.pop(record.packet_id, None)
        elif isinstance(record, session_records.DoneRun):
            for packet_id in range(record.packet_id, record.packet_id + record.count):
                session.unacknowledged.pop(packet_id, None)
        elif isinstance(record, session_records.Released):
            delivery = session.unacknowledged.get(record.packet_id)
            if delivery is not None:
                delivery.stage = RELEASED
        elif isinstance(record, session_records.ReceivedRecord):
            session.received[record.packet_id] = True
        elif isinstance(record, session_records.Completed):
            session.received.pop(record.packet_id, None)
        elif isinstance(record, session_records.Subscribed):
            self._subscribe(session, record)
        elif isinstance(record, session_records.Unsubscribed):
            self._broker.remove_subscription(session, record.pattern)
        elif isinstance(record, session_records.SessionLeft):
            self._leave(session, record)
        else:
            self._connected.discard(session.name)
            session.will = None
            self._broker.end_session(session)

    def _leave(self, session: MqttSession, record: session_records.SessionLeft) -> None:
        self._connected.discard(session.name)
        session.expiry_s = record.expiry_s
        session.ends_ms = 0 if record.expiry_s == FOREVER else record.at_ms + record.expiry_s * 1000
        session.will_due_ms = record.will_due_ms
        if not record.will_due_ms:
            session.will = None

    def _queue(self, session: MqttSession, record: session_records.Queued) -> None:
        message = self._messages.get(record.number)
        if message is None:
            raise AccordError(f"message {record.number} is missing")
        delivery = ClientDelivery(
            message,
            record.qos,
            record.is_retained,
            record.identifiers,
            record.packet_id,
            message.received_ms,
            self._broker.grant(message, session),
        )
        delivery.was_sent = record.was_sent or session.name in self._connected
        session.unacknowledged[record.packet_id] = delivery

    def _subscribe(self, session: MqttSession, record: session_records.Subscribed) -> None:
        self._broker.remove_subscription(session, record.pattern)
        condition = SubscriptionPredicate.parse(record.where, record.xpath)
        group, pattern = split_shared(record.pattern)
        subscription = RouterSubscription(
            session,
            pattern,
            group=group,
            qos=record.qos,
            is_local_excluded=record.is_local_excluded,
            keeps_retained_flag=record.keeps_retained_flag,
            identifier=record.identifier,
            predicate=condition.predicate,
            where=record.where,
            xpath=record.xpath,
        )
        if record.history is not None:
            is_live = record.history[4]
            self._broker.add_catch_up(session, record.pattern, subscription).resume(record.history)
            if is_live:
                subscription.receiver = session
        if record.persistent_history is not None:
            self._broker.recovered_histories[subscription] = (
                session,
                record.pattern,
                record.persistent_history,
            )
        self._broker.add_subscription(session, record.pattern, subscription)
        if record.expect and self._broker.quality is not None:
            self._broker.quality.restore(session, record.pattern, pattern, record.expect)


def _snapshot(broker: Broker) -> Iterator[session_records.SessionLogRecord]:
    written: set[int] = set()
    for message in broker.retained.all():
        assert isinstance(message, MqttMessage)
        if message.stored_as:
            yield from _stored(message, written)
            yield session_records.Retained(message.stored_as)
    for session in broker.sessions.values():
        if session.is_durable:
            yield from _session(broker, session, written)


def _session(
    broker: Broker, session: MqttSession, written: set[int]
) -> Iterator[session_records.SessionLogRecord]:
    client = session.name
    yield session_records.SessionOpened(
        client, session.version, session.expiry_s, session.will, session.owner
    )
    if session.connection is None:
        # Before its messages: those queued while a client is connected count as sent.
        yield broker.left_record(session)
    for pattern in session.subscriptions:
        yield broker.subscribed_record(session, pattern)
    for delivery in session.iter_unacknowledged():
        if not isinstance(delivery, ClientDelivery):
            run, was_sent = delivery
            yield stored_run(run)
            yield session_records.QueuedRun(
                client, run.first_id, run.stored_as, run.count, was_sent
            )
            continue
        if not delivery.original.stored_as:
            continue  # history: it can be read again
        yield from _stored(delivery.original, written)
        yield session_records.Queued(
            client,
            delivery.packet_id,
            delivery.original.stored_as,
            delivery.qos,
            delivery.is_retained,
            delivery.identifiers,
            delivery.was_sent,
        )
        if delivery.stage == RELEASED:
            yield session_records.Released(client, delivery.packet_id)
    for packet_id, is_taken in session.received.items():
        if is_taken:
            yield session_records.ReceivedRecord(client, packet_id)


def _stored(message: MqttMessage, written: set[int]) -> Iterator[session_records.Stored]:
    if message.stored_as not in written:
        written.add(message.stored_as)
        yield session_records.stored_record(message.stored_as, message)
