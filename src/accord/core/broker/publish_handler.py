"""Publishing side of a connection: the hot path from PUBLISH bytes to receiving sessions.

A client's channels are checked once, for syntax and rights, and cached with their fan-outs. From
then on messages that only need forwarding are handled as runs (`on_run`) and forwarded as the
publisher's bytes. `on_publish` decodes all others: QoS 2, retained, with a key, a deadline, a
response topic or XML metadata, or to a channel that this client has not used since a change.

Work that takes time, because predicates have to be matched, becomes a task. Tasks share the CPU by
importance, as messages share a link. A client with too many queued tasks is not read from until
they have run; under load, clients with unimportant tasks are paused first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from accord.core.broker import session_records
from accord.core.broker.broker import check_property_names, set_expiry_and_key
from accord.core.broker.broker_context import NodeRequest, WorkerOrder
from accord.core.broker.client_advertisements import OVER_RATE
from accord.core.broker.connection_state import OPEN
from accord.core.broker.delivery_accounting import record_unrouted
from accord.core.broker.feedback import TOPIC as FEEDBACK_TOPIC
from accord.core.broker.feedback import FeedbackHandler
from accord.core.broker.message import DUPLICATE, RETAINED, MqttMessage
from accord.core.broker.runs import RunForwarder, divide
from accord.core.broker.session import MqttSession
from accord.core.channels.channels import UNKNOWN
from accord.core.model.channels import problem_with_channel
from accord.core.model.document import Condition, Document
from accord.core.model.errors import EventError
from accord.core.monitoring.ledger import REFUSED, SHED, event_id
from accord.core.mqtt.codes import V5, PacketType, ProtocolError, Reason, malformed, violation
from accord.core.mqtt.event_mapping import EVENT
from accord.core.mqtt.packets import Puback, Pubrec
from accord.core.mqtt.properties import (
    NO_PROPERTIES,
    Properties,
    decode_properties,
    forwarded_block,
)
from accord.core.mqtt.wire import read_varint, string_bytes
from accord.core.native import Frames, scan
from accord.core.predicates.xpath import INLINE_COST
from accord.core.router.fan_out import DeferredMatchError, PublisherFanOut, Selection
from accord.core.router.limits import Limits
from accord.core.router.rights import (
    ADVERTISEMENTS,
    CAPABILITIES,
    EXPECTATIONS,
    FEEDBACK,
    FEEDBACK_PREFIX,
    PROPERTIES,
    Rights,
)
from accord.core.scheduling.tasks import UNKNOWN_US, Task

if TYPE_CHECKING:
    from accord.core.broker.connection import Connection

_MAX_CACHED_TOPICS: Final = 1_000
_MAX_TASKS: Final = 64  # queued tasks of one client before reading stops
_MAX_TASK_BYTES: Final = 262_144  # the same for bytes of runs
_PIECE_US: Final = 900  # CPU time of one piece of a run
_FIRST_PIECE: Final = 8  # messages in the first piece, before their cost is measured
_MAX_REQUESTS: Final = 1_000
_MAY_LACK_RESPONSE_TOPIC: Final = (EXPECTATIONS, CAPABILITIES, PROPERTIES, ADVERTISEMENTS)
_OVERLOAD: Final = "cpu overload"
_ACCEPTED: Final = bytes((Reason.SUCCESS,))
_UNMATCHED: Final = bytes((Reason.NO_MATCHING_SUBSCRIBERS,))

# Shared empty maps of clients that do not publish, as most idle ones; never modified.
_NO_FAN_OUTS: Final[dict[bytes, PublisherFanOut]] = {}
_NONE_PUBLISHED: Final[dict[str, int]] = {}
_NO_TOPICS: Final[
    tuple[dict[bytes, Selection | PublisherFanOut], dict[bytes, Selection | PublisherFanOut]]
] = ({}, {})
_NO_ALIASES: Final[dict[int, bytes]] = {}


class PublishHandler:
    """The publishing side of an open connection.

    Its tasks may run after the connection is closed: they check that before they reply.
    """

    __slots__ = (
        "_acks_event_ids",
        "_aliases",
        "_fan_outs",
        "_forwarder",
        "_importance",
        "_is_paused",
        "_published",
        "_task_bytes",
        "_tasks",
        "broker",
        "connection",
        "context",
        "replies",
        "session",
        "topics",
        "topics_at",
        "version",
    )

    def __init__(
        self, connection: Connection, session: MqttSession, *, acks_event_ids: bool
    ) -> None:
        self.connection = connection
        self.broker = connection.broker
        self.context = connection.context
        self.replies = connection.replies
        self.session = session
        self.version = connection.version
        self._fan_outs = _NO_FAN_OUTS
        self._published = _NONE_PUBLISHED  # by channel, of fan-outs no longer cached
        # By QoS, topics whose clean frames are runs, valid for one state of the router.
        self.topics = _NO_TOPICS
        self.topics_at = 0
        self._forwarder: RunForwarder | None = None
        self._aliases = _NO_ALIASES  # topics with their length prefixes
        self._tasks = 0  # queued
        self._task_bytes = 0  # bytes of runs among them
        self._importance = 0  # of the last one queued
        self._is_paused = False  # paused until a channel has room
        self._acks_event_ids = acks_event_ids  # whether acknowledgements carry event IDs

    def scan(self, data: bytes, at: int, limit: int, first: int) -> Frames | None:
        """The run of clean frames that starts at `at`, if any."""
        router = self.broker.router
        if self.topics_at != router.changes:
            # The change may have altered the receivers of any topic.
            self.topics_at = router.changes
            for topics in self.topics:
                topics.clear()
        qos = first >> 1 & 3
        topics = self.topics[qos]
        if not topics or self.context.overload_cause:
            return None  # nothing can be recorded: each message is checked by itself
        return scan(data, at, self.version == V5, limit, topics, self._aliases)

    def on_run(self, frames: Frames) -> None:
        """Count clean frames, and forward them or queue them as a task."""
        context = self.context
        counters = context.counters
        qos = frames.qos
        if qos:
            self._check_receive_maximum()
        count = frames.count
        ways: list[Selection | PublisherFanOut] = frames.ways
        counters.publishes_received[qos] += count
        self.session.published += count
        selection = ways[0]
        if (
            len(ways) == 1
            and isinstance(selection, Selection)
            and selection.groups is None
            and not selection.fan_out.pending
        ):
            # The common case: all frames go to the same receivers, at once.
            fan_out = selection.fan_out
            fan_out.published += count
            counts = fan_out.channel_fan_out.counts
            size = frames.end - frames.start
            counters.publish_bytes_received += size
            counts.published += count
            counts.published_bytes += size
            appended = context.appended
            if selection.copies:
                counters.matched += count
            else:
                counters.unmatched += count
            self.connection.can_cut_through = count == 1 and selection.only is not None
            (self._forwarder or self._get_forwarder()).forward_all(frames)
            if qos and self.connection.state == OPEN:
                code = _ACCEPTED if selection.copies else _UNMATCHED
                self.replies.reply_when_durable(frames.acks(code), appended, count)
            return
        at_once: list[int] = []
        sizes = frames.sizes()
        for label, (count, size) in enumerate(sizes):
            each = ways[label]
            fan_out = each.fan_out
            counters.publish_bytes_received += size
            fan_out.published += count
            counts = fan_out.channel_fan_out.counts
            counts.published += count
            counts.published_bytes += size
            if isinstance(each, Selection) and not fan_out.pending:
                if each.groups is None:
                    at_once.append(label)
                else:
                    at_once += [piece for piece, _, _ in divide(frames, label, count)]
            else:
                self._defer_run(frames, label, fan_out)
        if at_once:
            self._forward_labels(frames, sorted(at_once), frames.sizes(), context.appended)

    def _forward_labels(
        self,
        frames: Frames,
        labels: list[int],
        sizes: list[tuple[int, int]],
        appended: int,
        numbers: dict[int, Sequence[int]] | None = None,
    ) -> None:
        """Forward the frames of these labels, which denote selections, and acknowledge them.

        Records appended since `appended` must be on disk before the acknowledgements are sent.
        """
        counters = self.context.counters
        codes = bytearray(b"\xff" * (labels[-1] + 1))
        answered = 0
        for label in labels:
            count = sizes[label][0]
            answered += count
            if frames.ways[label].copies:
                counters.matched += count
                codes[label] = Reason.SUCCESS
            else:
                counters.unmatched += count
                codes[label] = Reason.NO_MATCHING_SUBSCRIBERS
        self._get_forwarder().forward(frames, labels, numbers)
        if frames.qos and self.connection.state == OPEN:
            self.replies.reply_when_durable(frames.acks(bytes(codes)), appended, answered)

    def _get_forwarder(self) -> RunForwarder:
        if self._forwarder is None:
            self._forwarder = RunForwarder(self.context, self.session.name, self.version == V5)
        return self._forwarder

    def _defer_run(self, frames: Frames, label: int, fan_out: PublisherFanOut) -> None:
        """Queue a run as a task, by the importance of its messages."""
        labels = {label: fan_out.grant.importance}
        if fan_out.side.mask:
            found = self._by_importance(frames, label, fan_out)
            if found is None:
                for message, packet_id in self._get_forwarder().messages(frames, label):
                    self.context.assign_number(message, fan_out.channel_fan_out.counts)
                    self._defer(message, fan_out, frames.qos, packet_id, message.size())
                return
            labels = found
        sizes = frames.sizes()
        for each, importance in labels.items():
            count, size = sizes[each]
            run = frames.piece(each, 0, count)
            task = RunTask(self, run, fan_out, size, importance)
            self._task_bytes += size
            if self._task_bytes >= _MAX_TASK_BYTES:
                self.connection.is_stalled = True
            self._submit(task, fan_out, count if frames.qos else 0)

    @staticmethod
    def _by_importance(
        frames: Frames, label: int, fan_out: PublisherFanOut
    ) -> dict[int, int] | None:
        """Labels of messages by importance, according to policy conditions on what is published."""
        view = fan_out.channel_fan_out.view
        found = view.match_frames(frames.data, frames.spans(label))
        if found is None or found.undecided:
            return None
        granted = [view.publish_grant(fan_out.side, sum(bits)).importance for bits in found.answers]
        levels = sorted({granted[each] for each in found.which})
        ranks = np.array([levels.index(each) if each in levels else 0 for each in granted], "I")
        which = ranks[np.frombuffer(found.which, "I")]
        first = frames.relabel(label, which, [fan_out] * len(levels))
        return dict(enumerate(levels, first))

    def _submit(
        self, task: PublishTask | RunTask, fan_out: PublisherFanOut, unacknowledged: int
    ) -> None:
        context = self.context
        fan_out.pending += 1
        self._tasks += 1
        self.replies.unacknowledged += unacknowledged
        self._importance = task.importance
        if self._tasks >= _MAX_TASKS or context.tasks.should_pause(task.importance):
            self.connection.is_stalled = True
        context.submit(task)

    def match_run(self, frames: Frames, fan_out: PublisherFanOut) -> None:
        """Match and forward a run of `fan_out` whose task is due."""
        found = self._match(frames, fan_out) if fan_out.has_runs else None
        if found is None:
            self._publish_singly(frames, fan_out)
            return
        selections, which = found
        context = self.context
        appended = context.appended
        entered = context.assign_numbers(frames.count)
        if fan_out.channel_fan_out.is_kept:
            self._get_forwarder().keep(frames, 0, fan_out.channel_fan_out, entered)
        numbers: dict[int, Sequence[int]] = {0: entered}
        if len(selections) == 1:
            frames.ways[0] = selections[0]
        else:
            first = frames.relabel(0, which, selections)
            ordered: Sequence[int] = entered
            if fan_out.channel_fan_out.is_kept:
                # In journal order; elsewhere the events of one selection are consecutive.
                ordered = (np.argsort(which, kind="stable") + entered.start).tolist()
            ends = np.cumsum(np.bincount(which)).tolist()
            numbers = {
                first + each: ordered[start:end]
                for each, (start, end) in enumerate(pairwise([0, *ends]))
            }
        for each in [each for each in numbers if frames.ways[each].groups is not None]:
            some = numbers.pop(each)
            for part, start, end in divide(frames, each, len(some)):
                numbers[part] = some[start:end]
        self._forward_labels(frames, sorted(numbers), frames.sizes(), appended, numbers)

    def _match(
        self, frames: Frames, fan_out: PublisherFanOut
    ) -> tuple[list[Selection], npt.NDArray[np.uint32]] | None:
        """The selections of a run's messages, and the selection of each message.

        None if some message has to be matched by itself: then all are, to preserve their order.
        """
        router = self.broker.router
        route = fan_out.channel_fan_out
        spans = frames.spans(0)
        selections: list[Selection] = []
        which = np.zeros(frames.count, "I")
        if route.has_predicates:
            found = router.match_frames(route, frames.data, spans)
            if found.undecided:
                return None
            # Different match results may select the same receivers.
            distinct: dict[Selection, int] = {}
            ranks = [0]
            known = fan_out.selections
            for keys in found.answers[1:]:
                selection = known.get(keys)
                if selection is None:
                    selection = router.select(fan_out, keys)
                ranks.append(distinct.setdefault(selection, len(distinct)))
            selections = list(distinct)
            which = np.array(ranks, "I")[np.frombuffer(found.which, "I")]
        else:
            selections.append(router.select(fan_out, ()))
        if any(each.needs_events for each in selections):
            return None
        if any(each.mask for each in selections):
            # Policy conditions are matched last: they count only for what receivers are granted.
            conditions = route.view.match_frames(frames.data, spans)
            if conditions is None or conditions.undecided:
                return None
            met = [sum(bits) for bits in conditions.answers]
            both = which * np.uint32(len(met)) + np.frombuffer(conditions.which, "I")
            different, inverse = np.unique(both, return_inverse=True)
            which = inverse.astype("I")
            selections = [
                selections[each // len(met)].for_conditions(met[each % len(met)])
                for each in different.tolist()
            ]
        return selections, which

    def _publish_singly(self, frames: Frames, fan_out: PublisherFanOut) -> None:
        for message, packet_id in self._get_forwarder().messages(frames, 0):
            self.context.assign_number(message, fan_out.channel_fan_out.counts)
            self.finish(message, fan_out, frames.qos, packet_id)

    def shed_run(self, frames: Frames, fan_out: PublisherFanOut) -> None:
        """Shed a run because the node is overloaded."""
        context = self.context
        count = frames.count
        number = context.assign_numbers(count).start
        context.counters.count_shed(_OVERLOAD, self.session.name, count)
        fan_out.channel_fan_out.counts.shed += count
        outcome = REFUSED if frames.qos else SHED
        channel = fan_out.channel_fan_out.channel
        record_unrouted(
            context,
            number,
            channel,
            self.session.name,
            outcome,
            context.now_ms,
            0,
            _OVERLOAD,
            count,
        )
        if frames.qos and self.connection.state == OPEN:
            self.replies.reply_when_durable(
                frames.acks(bytes((Reason.QUOTA_EXCEEDED,))), context.appended, count
            )

    def on_publish(self, data: bytes, start: int, body: int, end: int, now_ms: int) -> None:
        """Handle the PUBLISH from `start` to `end`; its fixed header ends at `body`."""
        first = data[start]
        qos = first >> 1 & 3
        if qos == 3:
            raise malformed("a PUBLISH with QoS 3")
        if qos == 0 and first & DUPLICATE:
            raise malformed("a PUBLISH with QoS 0 marked as sent before")
        at = body + 2
        if at > end:
            raise malformed("a PUBLISH without topic")
        at += data[body] << 8 | data[body + 1]
        topic = data[body:at]
        packet_id = 0
        if qos:
            if at + 2 > end:
                raise malformed("a PUBLISH that ends in its topic")
            packet_id = data[at] << 8 | data[at + 1]
            at += 2
            if packet_id == 0:
                raise violation("a packet identifier of 0")
        elif at > end:
            raise malformed("a PUBLISH that ends in its topic")
        tail = at
        version = self.version
        properties = NO_PROPERTIES
        has_alias = False
        block = b""
        if version == V5:
            if at < end and data[at] == 0:
                at += 1
            else:
                properties, block, at = _read_properties(data, at, end)
                has_alias = properties.topic_alias is not None
        context = self.context
        counters = context.counters
        counters.publishes_received[qos] += 1
        counters.publish_bytes_received += end - start
        session = self.session
        fan_out = self._fan_outs.get(topic)
        if fan_out is None or has_alias or not fan_out.channel_fan_out.is_valid:
            channel = self._channel(topic, properties)
            if not may_publish(self.connection.rights, channel):
                problem = (
                    f"no right to publish to {channel}; ask for it "
                    "(may.publish, may_not.publish in accord.toml)"
                )
                self._send_ack(qos, packet_id, Reason.NOT_AUTHORIZED, problem)
                counters.count_shed("not authorized", self.session.name)
                return
            topic = string_bytes(channel)
            fan_out = self._cached_fan_out(topic, channel)
            if problem := fan_out.channel_fan_out.traits.problem:
                self._record_refused(UNKNOWN, channel, problem)
                self._send_ack(qos, packet_id, Reason.IMPLEMENTATION_SPECIFIC_ERROR, problem)
                return
        route = fan_out.channel_fan_out
        session.published += 1
        if qos == 2 and packet_id in session.received:
            if session.received[packet_id]:
                self._send_ack(qos, packet_id, Reason.SUCCESS, "")
            return  # otherwise it is acknowledged when its task has run
        if qos:
            self._check_receive_maximum()
        if context.overload_cause and (qos or route.is_kept or first & RETAINED):
            counters.count_shed("journal overloaded", self.session.name)
            self._send_ack(qos, packet_id, Reason.QUOTA_EXCEEDED, context.overload_cause)
            return
        try:
            message = MqttMessage(
                route.channel,
                topic,
                data[at:end],
                qos,
                first & RETAINED != 0,
                self.session.name,
                now_ms,
                properties,
                block,
                0,
            )
            if properties is not NO_PROPERTIES:
                set_expiry_and_key(message)
                check_property_names(message)
                if properties.response_topic is not None and not route.is_request:
                    self._attach_receipt(message)
            if qos == 2:
                message.packet_id = packet_id
        except EventError as error:
            self.refuse_event(qos, packet_id, route.channel, error)
            return
        context.assign_number(message, route.counts)
        fan_out.published += 1
        route.counts.published += 1
        route.counts.published_bytes += end - start
        if (
            fan_out.is_rate_limited
            and not route.is_request
            and self._exceeds_rate(message, qos, packet_id)
        ):
            return
        if qos and properties is NO_PROPERTIES and not first & DUPLICATE:
            # Receivers at the same QoS get the publisher's frame with another identifier.
            head = data[start : body + len(topic)]
            message.set_frame(version, first, head, data[tail:end])
        if route.is_request:
            self._on_request(message, qos, packet_id)
        elif route.has_predicates or fan_out.pending:
            self._defer(message, fan_out, qos, packet_id, end - start)
        else:
            self.finish(message, fan_out, qos, packet_id)
        if fan_out.has_runs and qos < 2 and topic not in self.topics[qos]:
            self._cache_topic(topic, fan_out, qos)

    def published_channels(self) -> list[str]:
        """The channels this client publishes to, as far as cached."""
        return [fan_out.channel_fan_out.channel for fan_out in self._fan_outs.values()]

    def published(self) -> Iterator[tuple[str, int]]:
        """Events that this client published since it connected; a channel may occur twice.

        Of a client that publishes to more than 1,000 channels, some are left out.
        """
        yield from self._published.items()
        for fan_out in self._fan_outs.values():
            yield fan_out.channel_fan_out.channel, fan_out.published

    def published_to(self, channel: str) -> int:
        """Events that this client published to `channel` since it connected."""
        fan_out = self._fan_outs.get(string_bytes(channel))
        before = self._published.get(channel, 0)
        return before if fan_out is None else before + fan_out.published

    def enforce_rate(self, is_rate_limited: bool) -> None:
        self.topics = ({}, {})
        for fan_out in self._fan_outs.values():
            fan_out.is_rate_limited = is_rate_limited
            fan_out.renew(fan_out.channel_fan_out)

    def _exceeds_rate(self, message: MqttMessage, qos: int, packet_id: int) -> bool:
        """Whether a message exceeds its client's advertisement; it is then not forwarded."""
        admitting = self.broker.admission
        try:
            if admitting is None or not admitting.advertisements.exceeds_rate(message):
                return False
        except EventError as error:
            self.refuse_event(qos, packet_id, message.channel, error)
            return True
        self._record_shed(message, qos, OVER_RATE)
        self._send_ack(qos, packet_id, Reason.QUOTA_EXCEEDED, OVER_RATE)
        return True

    def _cached_fan_out(self, topic: bytes, channel: str) -> PublisherFanOut:
        """The fan-out of this client's messages to `channel`, cached under `topic`."""
        session = self.session
        if channel.startswith(FEEDBACK_PREFIX):  # one fan-out for all receipts
            topic, channel = FEEDBACK_TOPIC, FEEDBACK
        route = self.broker.router.fan_out(channel)
        fan_out = self._fan_outs.get(topic)
        if fan_out is not None:
            fan_out.renew(route)
            return fan_out
        fan_out = PublisherFanOut(session.entity, route, session.is_rate_limited)
        if route.is_valid:
            if not self._fan_outs or len(self._fan_outs) >= _MAX_CACHED_TOPICS:
                self.clear_fan_outs()
            self._fan_outs[topic] = fan_out
        return fan_out

    def _cache_topic(self, topic: bytes, fan_out: PublisherFanOut, qos: int) -> None:
        """Treat later clean frames of this topic as runs."""
        if (
            fan_out.channel_fan_out.is_valid
            and self._fan_outs.get(topic) is fan_out
            and not (qos and self._acks_event_ids)
        ):
            selection = self.broker.router.fixed_selection(fan_out)
            self.topics[qos][topic] = fan_out if selection is None else selection

    def clear_fan_outs(self) -> None:
        if self._fan_outs:
            self._published = dict(self._published)
        published = self._published
        for fan_out in self._fan_outs.values():
            channel = fan_out.channel_fan_out.channel
            if channel in published or len(published) < _MAX_CACHED_TOPICS:
                published[channel] = published.get(channel, 0) + fan_out.published
            fan_out.clear_caches()
        self._fan_outs = {}
        self.topics = ({}, {})

    def _defer(
        self, message: MqttMessage, fan_out: PublisherFanOut, qos: int, packet_id: int, size: int
    ) -> None:
        """Queue a message as a task."""
        if qos == 2:
            self.session.received[packet_id] = False
        task = PublishTask(self, message, fan_out, qos, packet_id, size)
        self._submit(task, fan_out, 1 if qos == 1 else 0)

    def on_task_ended(self, acknowledged: int, size: int = 0) -> None:
        """A task has ended: release its QoS 1 messages and the bytes of its run."""
        self._tasks -= 1
        self._task_bytes -= size
        self.replies.unacknowledged -= acknowledged
        if self.connection.is_stalled:
            is_low = self._tasks <= _MAX_TASKS // 2 and self.context.tasks.can_resume(
                self._importance
            )
            is_low = is_low and self._task_bytes <= _MAX_TASK_BYTES // 2
            if (is_low or self._tasks == 0) and not self._is_paused:
                self.connection.is_stalled = False
                self.context.wake(self.connection)  # resume reading

    def _pause_if_full(self, channel: str) -> None:
        """Pause reading from the client until its channel has room at all members."""
        bridge = self.broker.bridge
        if bridge is not None and bridge.pause_publisher(channel, self):
            self._is_paused = self.connection.is_stalled = True

    def resume_publishing(self) -> None:
        self._is_paused = False
        if self.connection.is_stalled and not self._tasks:
            self.connection.is_stalled = False
            self.context.wake(self.connection)

    def finish(
        self, message: MqttMessage, fan_out: PublisherFanOut, qos: int, packet_id: int
    ) -> None:
        """Publish a message, and acknowledge it if its client is still connected."""
        context = self.context
        session = self.session
        appended = context.appended
        recorded = len(context.state_records)
        try:
            reached = self.broker.publish(message, fan_out)
        except EventError as error:
            if qos == 2:
                session.received.pop(packet_id, None)
            self._handler_for_ack(qos).refuse_event(qos, packet_id, message.channel, error)
            return
        if fan_out.channel_fan_out.traits.can_be_full:
            self._pause_if_full(message.channel)
        if qos == 0:
            return
        if qos == 2:
            session.received[packet_id] = True
            if session.is_durable:
                self._record_received(packet_id, recorded)
        answering = self._handler_for_ack(qos)
        if answering.connection.state == OPEN:
            answering.acknowledge(message, qos, packet_id, reached, appended)

    def _record_received(self, packet_id: int, recorded: int) -> None:
        """Record the receipt atomically with the effects of a QoS 2 message.

        If only one survived a crash, the message would be published twice or never.
        """
        self.context.record(session_records.ReceivedRecord(self.session.name, packet_id))
        self.context.make_atomic(recorded)

    def _handler_for_ack(self, qos: int) -> PublishHandler:
        """The publishing side whose connection gets the acknowledgement of a message.

        A client that has reconnected meanwhile repeats QoS 2 messages until they are acknowledged.
        """
        connection = self.session.connection
        if qos == 2 and self.connection.state != OPEN and connection is not None:
            return connection.publisher or self
        return self

    def acknowledge(
        self, message: MqttMessage, qos: int, packet_id: int, reached: int, appended: int
    ) -> None:
        """Acknowledge an accepted message once that is durable."""
        reason = Reason.SUCCESS if reached else Reason.NO_MATCHING_SUBSCRIBERS
        if self._acks_event_ids:
            frame = self._ack_with_event_id(qos, packet_id, reason, message.number)
        else:
            frame = self._acknowledgement(qos, packet_id, reason)
        self.replies.reply_when_durable(frame, appended)

    def shed(self, message: MqttMessage, qos: int, packet_id: int) -> None:
        """Shed a message because the node is overloaded."""
        self._record_shed(message, qos, _OVERLOAD)
        if qos == 2:
            self.session.received.pop(packet_id, None)
        answering = self._handler_for_ack(qos)
        if answering.connection.state == OPEN:
            answering._send_ack(qos, packet_id, Reason.QUOTA_EXCEEDED, _OVERLOAD)

    def _record_shed(self, message: MqttMessage, qos: int, cause: str) -> None:
        """Count a message that is not forwarded, and record the cause."""
        context = self.context
        context.counters.count_shed(cause, message.publisher)
        if message.counts is not None:
            message.counts.shed += 1
        record_unrouted(
            context,
            message.number,
            message.channel,
            message.publisher,
            SHED if qos == 0 else REFUSED,
            message.received_ms,
            len(message.payload),
            cause,
        )

    def _on_request(self, message: MqttMessage, qos: int, packet_id: int) -> None:
        """A request to the node itself; the driver replies."""
        if message.channel == FEEDBACK and self.broker.feedback is not None:
            self._on_feedback(self.broker.feedback, message, qos, packet_id)
            return
        requests = self.context.requests
        session = self.session
        topic = message.properties.response_topic
        reason = Reason.IMPLEMENTATION_SPECIFIC_ERROR
        problem = ""
        topics = self.context.request_topics
        if message.channel not in topics:
            reason = Reason.TOPIC_NAME_INVALID
            problem = f"unknown request topic, expected {' or '.join(sorted(topics))}"
        elif topic is None and message.channel not in _MAY_LACK_RESPONSE_TOPIC:
            problem = "expected a response topic"
        elif len(requests) >= _MAX_REQUESTS:
            reason, problem = Reason.QUOTA_EXCEEDED, "too many requests at once"
        elif topic and session.subscription_to(topic) is None:
            problem = f"expected a response topic that you are subscribed to, got {topic}"
        else:
            rights = self.connection.rights
            requests.append(NodeRequest(message, session.name, session.owner, rights))
            reason = Reason.SUCCESS
        self._send_ack(qos, packet_id, reason, problem)

    def _attach_receipt(self, message: MqttMessage) -> None:
        """Attach a receipt for feedback if requested; raises EventError if that is not possible."""
        feedback = self.broker.feedback
        if feedback is not None:
            feedback.attach_receipt(message, self.session.owner, self.context.number + 1)

    def _on_feedback(
        self, feedback: FeedbackHandler, message: MqttMessage, qos: int, packet_id: int
    ) -> None:
        """Feedback to the source of an event."""
        session = self.session
        appended, recorded = self.context.appended, len(self.context.state_records)
        refused = feedback.on_feedback(message, session, self.connection.rights)
        if refused is not None:
            self._send_ack(qos, packet_id, refused.reason, refused.problem)
            return
        if qos == 2:
            session.received[packet_id] = True
            if session.is_durable:
                self._record_received(packet_id, recorded)
        if qos:
            self.acknowledge(message, qos, packet_id, 1, appended)

    def refuse_event(self, qos: int, packet_id: int, channel: str, error: EventError) -> None:
        self._record_refused("bad attributes", channel, str(error)[:200])
        if self.connection.state == OPEN:
            self._send_ack(qos, packet_id, Reason.PAYLOAD_FORMAT_INVALID, str(error))

    def _record_refused(self, cause: str, channel: str, problem: str) -> None:
        """Count an event that was not accepted, and record the problem."""
        context = self.context
        name = self.session.name
        context.counters.count_shed(cause, name)
        context.number += 1
        record_unrouted(context, context.number, channel, name, REFUSED, context.now_ms, 0, problem)

    def _check_receive_maximum(self) -> None:
        most = self.broker.limits.receive_maximum
        pending = self.replies.unacknowledged + len(self.session.received)
        if self.version == V5 and pending >= most:
            raise ProtocolError(
                Reason.RECEIVE_MAXIMUM_EXCEEDED, f"more than {most} messages not yet acknowledged"
            )

    def _channel(self, topic: bytes, properties: Properties) -> str:
        """The channel of a PUBLISH, by topic or alias."""
        try:
            channel = topic[2:].decode()
        except UnicodeDecodeError:
            raise malformed("a topic that is not UTF-8") from None
        alias = properties.topic_alias
        if alias is not None:
            if not 0 < alias <= self.broker.limits.topic_alias_maximum:
                raise ProtocolError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}")
            if channel:
                if not self._aliases:
                    self._aliases = {}
                self._aliases[alias] = topic
            elif alias in self._aliases:
                channel = self._aliases[alias][2:].decode()
            else:
                raise violation(f"topic alias {alias} is not known")
        if "\0" in channel:
            raise malformed("a topic with a null character")
        if problem := problem_with_channel(channel):
            raise ProtocolError(Reason.TOPIC_NAME_INVALID, problem)
        limits = self.broker.limits
        if has_too_many_levels(channel, limits):
            problem = f"expected at most {limits.channel_levels} levels"
            raise ProtocolError(Reason.TOPIC_NAME_INVALID, problem)
        return channel

    def _send_ack(self, qos: int, packet_id: int, reason: Reason, problem: str) -> None:
        """Acknowledge a message that was refused, or is a duplicate."""
        if qos == 0:
            return
        if self.version != V5 and reason >= Reason.UNSPECIFIED_ERROR:
            # MQTT 3.1.1 has no negative acknowledgement, and a positive one would be false.
            raise ProtocolError(reason, problem)
        frame = self._acknowledgement(qos, packet_id, reason, problem)
        self.replies.reply_when_durable(frame, self.context.appended)

    def _ack_with_event_id(self, qos: int, packet_id: int, reason: Reason, number: int) -> bytes:
        """An acknowledgement with the event ID, by which the publisher can look up the outcome."""
        make = Puback if qos == 1 else Pubrec
        named = Properties(user=((EVENT, event_id(number)),))
        short = make(packet_id, reason)
        return self.replies.encode_fitting(make(packet_id, reason, named), short, V5)

    def _acknowledgement(
        self, qos: int, packet_id: int, reason: Reason, problem: str = ""
    ) -> bytes:
        if self.version != V5 or reason == Reason.SUCCESS:
            return (b"\x40\x02" if qos == 1 else b"\x50\x02") + packet_id.to_bytes(2, "big")
        if not problem:
            head = b"\x40\x03" if qos == 1 else b"\x50\x03"
            return head + packet_id.to_bytes(2, "big") + bytes((reason,))
        make = Puback if qos == 1 else Pubrec
        packet = make(packet_id, reason, self.replies.reason_properties(problem))
        return self.replies.encode_fitting(packet, make(packet_id, reason), V5)


class PublishTask(Task):
    """A message queued to be matched and forwarded."""

    def __init__(
        self,
        handler: PublishHandler,
        message: MqttMessage,
        fan_out: PublisherFanOut,
        qos: int,
        packet_id: int,
        size: int,
    ) -> None:
        grant = fan_out.grant
        view = fan_out.channel_fan_out.view
        if fan_out.side.mask:
            matching = handler.broker.router.matching_policies(message, view)
            grant = view.publish_grant(fan_out.side, matching)
        context = handler.context
        learned = context.tasks.cost_estimate(message.channel)
        if fan_out.pending == 0:
            fan_out.is_light = learned.is_light
        super().__init__(
            size,
            int(learned.mean) if learned.is_known else UNKNOWN_US,
            grant.importance,
            context.now_ms,
            message.expires_ms,
            2 * grant.importance + fan_out.is_light,
            # MQTT 3.1.1 can't report a refused message.
            is_promised=qos > 0 and handler.version != V5,
            number=message.number,
        )
        self.learned = learned
        self.handler = handler
        self.message = message
        self.fan_out = fan_out
        self.qos = qos
        self.packet_id = packet_id

    def run(self) -> None:
        publishing = self.handler
        fan_out = self.fan_out
        if not fan_out.channel_fan_out.is_valid:
            fan_out.renew(publishing.broker.router.fan_out(fan_out.channel_fan_out.channel))
        if publishing.context.has_workers:
            self._defer_conditions()
        try:
            publishing.finish(self.message, fan_out, self.qos, self.packet_id)
        except DeferredMatchError as heavy:
            publishing.context.orders.append(ConditionsOrder(self, heavy.document))
            return
        except ProtocolError as error:
            publishing.connection.end(error.reason, error.problem)
        self._end()

    def resubmit(self) -> None:
        """Queue the task again once its deferred conditions are evaluated."""
        self.handler.context.submit(self)

    def _defer_conditions(self) -> None:
        """Have worker processes evaluate conditions that would block this one."""
        try:
            document = self.message.document()
        except EventError:
            return
        if document is not None:
            document.defer(INLINE_COST)

    def record_cost(self, spent_us: int) -> None:
        self.learned.add(spent_us)

    def shed(self) -> None:
        self._end()
        try:
            self.handler.shed(self.message, self.qos, self.packet_id)
        except ProtocolError as error:
            self.handler.connection.end(error.reason, error.problem)

    def _end(self) -> None:
        self.fan_out.pending -= 1
        self.handler.on_task_ended(1 if self.qos == 1 else 0)


class RunTask(Task):
    """A run queued to be matched and forwarded in pieces of less than a millisecond.

    More important work need not wait longer than one piece.
    """

    def __init__(
        self,
        handler: PublishHandler,
        frames: Frames,
        fan_out: PublisherFanOut,
        size: int,
        importance: int,
    ) -> None:
        learned = handler.context.tasks.cost_estimate(fan_out.channel_fan_out.channel)
        if fan_out.pending == 0:
            fan_out.is_light = learned.is_light
        super().__init__(
            size,
            UNKNOWN_US,
            importance,
            handler.context.now_ms,
            0,
            2 * importance + fan_out.is_light,
            # MQTT 3.1.1 can't report a refused message.
            is_promised=frames.qos > 0 and handler.version != V5,
            count=frames.count,
        )
        self.learned = learned
        self.handler = handler
        self.frames = frames
        self.fan_out = fan_out
        self._step = 0  # messages in the last piece

    def cost(self, wanted: int) -> int:  # noqa: ARG002
        if not self.learned.is_known:
            return UNKNOWN_US
        return max(int(self.learned.mean * min(self.count, self._piece_size())), 1)

    def run(self) -> None:
        publishing = self.handler
        fan_out = self.fan_out
        if not fan_out.channel_fan_out.is_valid:
            fan_out.renew(publishing.broker.router.fan_out(fan_out.channel_fan_out.channel))
        self._step = min(self.count, self._piece_size())
        piece = self._piece(self._step)
        self.count -= self._step
        try:
            publishing.match_run(piece, fan_out)
        except ProtocolError as error:
            publishing.connection.end(error.reason, error.problem)
        # Per piece, not at the end: the client may send as many more once it has the
        # acknowledgements.
        publishing.replies.unacknowledged -= self._step if self.frames.qos else 0
        if self.count:
            publishing.context.tasks.put_first(self)
        else:
            self._end(0)

    def record_cost(self, spent_us: int) -> None:
        self.learned.add(spent_us / max(self._step, 1))

    def shed(self) -> None:
        try:
            self.handler.shed_run(self._piece(self.count), self.fan_out)
        except ProtocolError as error:
            self.handler.connection.end(error.reason, error.problem)
        self._end(self.count if self.frames.qos else 0)

    def _piece(self, count: int) -> Frames:
        """The next `count` messages."""
        done = self.frames.count - self.count
        return self.frames.piece(0, done, count) if done or count < self.count else self.frames

    def _piece_size(self) -> int:
        """Number of messages matched before other tasks run."""
        if not self.learned.is_known:
            return _FIRST_PIECE
        return max(int(_PIECE_US / max(self.learned.mean, 0.01)), 1)

    def _end(self, acknowledged: int) -> None:
        self.fan_out.pending -= 1
        self.handler.on_task_ended(acknowledged, self.size)


class ConditionsOrder(WorkerOrder):
    """Costly conditions on a message's metadata that have to be evaluated to match it."""

    def __init__(self, task: PublishTask, document: Document) -> None:
        super().__init__(task.message, task.importance, task.expires_ms)
        self.task = task
        self.document = document

    def finish(self, conditions: list[Condition], values: list[bool | None]) -> None:
        """Store the results, None for those that failed, and run the task again."""
        for condition, value in zip(conditions, values, strict=True):
            self.document.remember(condition, value)
        self.task.resubmit()

    def fail(self) -> None:
        conditions = self.document.deferred
        self.finish(conditions, [None] * len(conditions))


def may_publish(rights: Rights | None, channel: str) -> bool:
    if channel.startswith("$SYS/") or channel == "$SYS":
        return False
    return rights is None or rights.may_publish(channel)


def has_too_many_levels(channel: str, limits: Limits) -> bool:
    return channel.count("/") >= limits.channel_levels


def _read_properties(data: bytes, at: int, end: int) -> tuple[Properties, bytes, int]:
    """A PUBLISH's properties, the encoded block of those passed on, and where they end."""
    properties, after = decode_properties(data, at, end, PacketType.PUBLISH)
    if properties.subscription_identifiers:
        raise violation("a subscription identifier in a client's PUBLISH")
    if properties.topic_alias is None and properties.message_expiry_s is None:
        return properties, data[read_varint(data, at, end)[1] : after], after
    return properties, forwarded_block(properties), after
