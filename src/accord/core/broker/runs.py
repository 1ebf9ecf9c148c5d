"""Runs: messages with the same receivers are forwarded together, as the publisher's own frames.

`core.native` scans a read once and gives each frame a label; `frames.ways` maps a label to what it
denotes, in the end a `Selection` of receivers. `RunForwarder` builds one run for all receivers of
the same frames: the frames of their labels, in order of arrival. Counting, numbering and recording
happen once per label of a run, not once per message.

Receivers that take no frames get the same messages one by one, as do receivers whose message has to
be built individually; frames are decoded only for them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from msgspec import Struct

from accord.core.broker.broker_context import BrokerContext, ConnectionPort, KeptRun
from accord.core.broker.message import MqttMessage
from accord.core.broker.session_records import StoredRun
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.mqtt.codes import V5, PacketType
from accord.core.mqtt.properties import NO_PROPERTIES, decode_properties, forwarded_block
from accord.core.mqtt.wire import read_varint, string_bytes, varint_bytes
from accord.core.native import Frames, cut, expired, rewrite
from accord.core.policy.policies import Grant
from accord.core.router.fan_out import FanOut, Receiver, ReceiverCopy, Selection
from accord.core.scheduling.queue_entries import ANY_NUMBER, EventRun, cost_in_parts

MAX_PARTS: Final = 255  # labels of one run: one byte per frame
_IDENTIFIER: Final = b"\x0b"
_EVERYTHING: Final = 1 << 62
_PUBACK: Final = b"\x40\x02"
ACK_BYTES: Final = 4

# A receiver's copy with the labels of the frames it gets.
CopyLabels = tuple[ReceiverCopy, list[int]]


class Part(NamedTuple):
    """The events of one channel in a run, by their numbers."""

    channel: str
    counts: ChannelCounts
    numbers: Sequence[int]


class MessageRun(EventRun):
    """Frames of one publisher, with the counts and records due when they are sent.

    A run of several channels, or of one channel whose events are not numbered consecutively, has
    `parts`; with several parts, `marks` holds the part of each frame, counted from 1. `expiry_s` is
    the smallest of any frame, -1 if none expires. QoS 1 frames get their packet identifiers when
    they are sent; in durable sessions identifiers are assigned before, from `first_id` on, and the
    events are stored in the state log from `stored_as` on. Pieces of a run are ordered by
    `arrival`.
    """

    __slots__ = (
        "arrival",
        "channel",
        "counts",
        "expiry_s",
        "first_id",
        "grant",
        "is_v5",
        "marks",
        "parts",
        "publisher",
        "qos",
        "stored_as",
    )

    def __init__(
        self,
        frames: bytes,
        count: int,
        grant: Grant,
        queued_ms: int,
        number: int,
        channel: str,
        publisher: str,
        counts: ChannelCounts,
        is_v5: bool = False,
        qos: int = 0,
        expiry_s: int = -1,
    ) -> None:
        # Without a call of EventRun.__init__, which is a good part of the cost of a message.
        importance = grant.importance
        self.size = len(frames)
        self.count = count
        self.importance = importance
        light = counts.light
        self.bin = 2 * importance + (light if light >= 0 else counts.is_light())
        self.queued_ms = queued_ms
        self.expires_ms = queued_ms + grant.deadline_ms if grant.deadline_ms else 0
        if expiry_s >= 0:
            due_ms = queued_ms + expiry_s * 1000
            if self.expires_ms == 0 or due_ms < self.expires_ms:
                self.expires_ms = due_ms
        self.number = number
        self.frames = frames
        self.channel = channel
        self.publisher = publisher
        self.grant = grant
        self.counts = counts
        self.is_v5 = is_v5
        self.qos = qos
        self.expiry_s = expiry_s
        self.parts: tuple[Part, ...] | None = None
        self.marks = b""
        self.first_id = 0
        self.stored_as = 0
        self.arrival = (queued_ms, number, 0)

    def cost(self, wanted: int) -> int:
        return cost_in_parts(self, wanted)

    def part(self, wanted: int, largest: int) -> int:
        if self.count == 1 or self.size <= min(wanted, largest):
            return self.size
        return cut(self.frames, wanted, largest, ANY_NUMBER)[0]

    def split(self, bytes_wanted: int, most: int) -> tuple[MessageRun, MessageRun] | None:
        at, count = cut(self.frames, bytes_wanted, _EVERYTHING, most)
        if not 0 < count < self.count:
            return None
        return self._piece(0, at, 0, count), self._piece(at, self.size, count, self.count)

    def by_expiry(self, due_ms: int) -> Iterator[tuple[bool, MessageRun]]:
        """Pieces of the run in order, each with whether its events have expired by `due_ms`."""
        deadline_ms = self.grant.deadline_ms
        if deadline_ms and self.queued_ms + deadline_ms <= due_ms:
            return iter([(True, self)])
        return self.pieces(expired(self.frames, self.is_v5, due_ms - self.queued_ms))

    def pieces(self, marks: bytes) -> Iterator[tuple[bool, MessageRun]]:
        """Pieces of the run in order with their marks; `marks` has 0 or 1 for each event."""
        start = at = 0
        while start < self.count:
            mark = marks[start]
            end = marks.find(1 - mark, start)
            end = self.count if end < 0 else end
            size, _ = cut(self.frames[at:], _EVERYTHING, _EVERYTHING, end - start)
            yield mark == 1, self._piece(at, at + size, start, end)
            start, at = end, at + size

    def numbered(self) -> Iterator[tuple[str, int, int]]:
        """Ranges of consecutively numbered events: channel, first number, count."""
        if self.parts is None:
            yield self.channel, self.number, self.count
            return
        for channel, _, numbers in self.parts:
            start = 0
            for at in range(1, len(numbers) + 1):
                if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
                    yield channel, numbers[start], at - start
                    start = at

    def numbers(self) -> list[int]:
        """The numbers of the events, frame by frame."""
        if self.parts is None:
            return list(range(self.number, self.number + self.count))
        if len(self.parts) == 1:
            return list(self.parts[0].numbers)
        left = [iter(part.numbers) for part in self.parts]
        return [next(left[mark - 1]) for mark in self.marks]

    def messages(self) -> Iterator[tuple[MqttMessage, tuple[int, ...]]]:
        """The messages of the run with their subscription identifiers."""
        counts = {part.channel: part.counts for part in self.parts or ()}
        found = _read_messages(
            self.frames, self.numbers(), self.is_v5, self.publisher, self.queued_ms
        )
        for place, (message, identifiers) in enumerate(found):
            message.counts = counts.get(message.channel, self.counts)
            message.stored_as = self.stored_as + place if self.stored_as else 0
            yield message, identifiers

    def with_ids(self, first_id: int) -> MessageRun:
        """A copy for one receiver, with packet identifiers."""
        made = self._piece(0, self.size, 0, self.count)
        made.first_id = first_id
        if made.parts is not None:
            made.arrival = (made.queued_ms, min(part.numbers[0] for part in made.parts), 0)
        return made

    def has(self, number: int) -> bool:
        return any(first <= number < first + count for _, first, count in self.numbered())

    def count_delivered(self, wait_ms: int) -> None:
        """Count the whole run as delivered to one receiver."""
        has_deadline = self.expires_ms > 0
        if self.parts is None:
            self.counts.count_delivered(self.count, self.size, wait_ms)
            self.counts.with_deadline += self.count if has_deadline else 0
            return
        mean_bytes = self.size // self.count
        for _, counts, numbers in self.parts:
            counts.count_delivered(len(numbers), len(numbers) * mean_bytes, wait_ms)
            counts.with_deadline += len(numbers) if has_deadline else 0

    def count_dropped(self, is_expired: bool) -> None:
        """Count the whole run as not delivered to one receiver."""
        if self.parts is None:
            self.counts.count_dropped(self.count, is_expired)
            return
        for _, counts, numbers in self.parts:
            counts.count_dropped(len(numbers), is_expired)

    def _copy(self, frames: bytes, count: int) -> MessageRun:
        made = MessageRun(
            frames,
            count,
            self.grant,
            self.queued_ms,
            self.number,
            self.channel,
            self.publisher,
            self.counts,
            self.is_v5,
            self.qos,
            self.expiry_s,
        )
        made.bin = self.bin
        return made

    def _piece(self, at: int, end: int, first: int, last: int) -> MessageRun:
        """The events from `first` to before `last`, whose frames are `frames[at:end]`."""
        made = self._copy(self.frames[at:end], last - first)
        made.first_id = self.first_id + first if self.first_id else 0
        made.stored_as = self.stored_as + first if self.stored_as else 0
        made.arrival = (*self.arrival[:2], self.arrival[2] + first)
        if self.parts is None:
            made.number = self.number + first
        elif len(self.parts) == 1:
            made.parts = (_sliced(self.parts[0], first, last),)
        else:
            marks = self.marks
            made.marks = marks[first:last]
            places = [
                (marks.count(mark, 0, first), made.marks.count(mark))
                for mark in range(1, len(self.parts) + 1)
            ]
            made.parts = tuple(
                _sliced(part, place, place + count)
                for part, (place, count) in zip(self.parts, places, strict=True)
                if count
            )
            if len(made.parts) < len(self.parts):
                left = [mark for mark, (_, count) in enumerate(places, 1) if count]
                table = bytearray(256)
                for mark, each in enumerate(left, 1):
                    table[each] = mark
                made.marks = made.marks.translate(bytes(table))
        return made


def _sliced(part: Part, start: int, end: int) -> Part:
    return Part(part.channel, part.counts, part.numbers[start:end])


class CutThrough(Struct, eq=False):
    """A frame written to `connection` as it was received, before it is counted.

    The publisher sent it with packet identifier `publisher_packet_id`, the receiver gets it with
    `packet_id`; both are 0 at QoS 0. It can stand for a run with `unacknowledged` unacknowledged
    messages.
    """

    connection: ConnectionPort
    frame: bytes
    qos: int
    publisher_packet_id: int
    selection: Selection
    publisher: Receiver
    at_ms: int
    number: int
    expiry_s: int
    packet_id: int = 0
    unacknowledged: int = 1

    @property
    def size(self) -> int:
        return len(self.frame)

    @property
    def ids(self) -> tuple[int, ...]:
        return (self.packet_id,)

    @property
    def run(self) -> MessageRun:
        """This frame as a run."""
        route = self.selection.fan_out.channel_fan_out
        copy = self.selection.copies[0]
        return MessageRun(
            self.frame,
            1,
            copy.grant,
            self.at_ms,
            self.number,
            route.channel,
            self.publisher.name,
            route.counts,
            copy.receiver.dialect == V5,
            self.qos,
            self.expiry_s,
        )

    def ack(self) -> bytes:
        """The PUBACK for the publisher, at QoS 1."""
        return _PUBACK + self.publisher_packet_id.to_bytes(2, "big")


class RunForwarder:
    """Forwards the frames of one publisher to their receivers."""

    def __init__(self, context: BrokerContext, publisher: str, is_v5: bool) -> None:
        self.context = context
        self.publisher = publisher
        self.is_v5 = is_v5

    def forward(
        self, frames: Frames, labels: list[int], numbers: dict[int, Sequence[int]] | None = None
    ) -> None:
        """Forward the frames of these labels, which denote selections without groups.

        They are numbered label by label and kept if their channels are, unless `numbers` already
        has the numbers of each label's events.
        """
        if numbers is None and len(labels) == 1 and len(frames.ways) == 1:
            self.forward_all(frames)
            return
        parts: dict[int, Part] = {}
        sizes = frames.sizes() if numbers is None else []
        for label in labels:
            route = frames.ways[label].fan_out.channel_fan_out
            if numbers is not None:
                parts[label] = Part(route.channel, route.counts, numbers[label])
                continue
            entered = self.context.assign_numbers(sizes[label][0])
            parts[label] = Part(route.channel, route.counts, entered)
            if route.is_kept:
                self.keep(frames, label, route, entered)
        # Receivers with their labels and copies; events of the same importance stay in order.
        wanting: dict[tuple[object, ...], dict[tuple[object, ...], CopyLabels]] = {}
        for label in labels:
            for copy in frames.ways[label].copies:
                place = (copy.receiver, copy.rank, copy.grant.importance)
                known = wanting.setdefault(place, {})
                if copy.key in known:
                    known[copy.key][1].append(label)
                else:
                    known[copy.key] = copy, [label]
        shared: dict[tuple[object, ...], list[MessageRun]] = {}
        events = _Events(self, frames, parts)
        for several in wanting.values():
            if numbers is not None and len(several) > 1:
                self._interleave(frames, parts, list(several.values()), events)
                continue
            for copy, wanted in several.values():
                if not copy.takes_run(frames.qos):
                    events.deliver([(copy, wanted)])
                    continue
                key = (*copy.key, *wanted)
                runs = shared.get(key)
                if runs is None:
                    runs = shared[key] = self._runs(frames, parts, copy, wanted)
                for run in runs:
                    copy.receiver.forward(run)

    def _interleave(
        self, frames: Frames, parts: dict[int, Part], several: list[CopyLabels], events: _Events
    ) -> None:
        """Deliver what one receiver gets of a channel, each stretch according to its own copy."""
        qos = frames.qos
        labels = [label for _, some in several for label in some]
        if len(labels) > MAX_PARTS or not all(copy.takes_run(qos) for copy, _ in several):
            events.deliver(several)
            return
        table = bytearray(max(labels) + 1)
        for mark, label in enumerate(labels, 1):
            table[label] = mark
        taken, marks, expiry_s = frames.take(bytes(table))
        channel, counts, _ = parts[labels[0]]
        numbers = [iter(parts[label].numbers) for label in labels]
        copies = [copy for copy, some in several for _ in some]
        at = 0
        for copy, stretch in groupby(marks, lambda mark: copies[mark - 1]):
            part = Part(channel, counts, [next(numbers[mark - 1]) for mark in stretch])
            size, _ = cut(taken[at:], _EVERYTHING, _EVERYTHING, len(part.numbers))
            run = self._run(taken[at : at + size], part, copy, qos, expiry_s)
            run.parts = (part,)
            copy.receiver.forward(run)
            at += size

    def forward_all(self, frames: Frames) -> None:
        """Forward frames that all have one label, the common case."""
        selection: Selection = frames.ways[0]
        route = selection.fan_out.channel_fan_out
        copies = selection.copies
        numbers = self.context.assign_numbers(frames.count)
        if not copies and not route.is_kept:
            return
        taken, _, expiry_s = frames.take(b"\1")
        part = (route.channel, route.counts, numbers)
        if len(copies) == 1 and copies[0].takes_run(frames.qos):
            copies[0].receiver.forward(self._run(taken, part, copies[0], frames.qos, expiry_s))
        elif copies:
            self._share(frames, taken, Part(*part), copies, expiry_s)
        if route.is_kept:
            self.keep(frames, 0, route, numbers)

    def _share(
        self, frames: Frames, taken: bytes, part: Part, copies: list[ReceiverCopy], expiry_s: int
    ) -> None:
        """Share one run between receivers that get the same bytes."""
        made: MessageRun | None = None
        made_for: ReceiverCopy | None = None
        shared: dict[tuple[object, ...], MessageRun] = {}
        for copy in copies:
            if not copy.takes_run(frames.qos):
                _Events(self, frames, {0: part}).deliver([(copy, [0])])
                continue
            if made is None or made_for is None or made_for.key != copy.key:
                made = shared.get(copy.key)
                if made is None:
                    made = self._run(taken, part, copy, frames.qos, expiry_s)
                    shared[copy.key] = made
                made_for = copy
            copy.receiver.forward(made)

    def _runs(
        self, frames: Frames, parts: dict[int, Part], copy: ReceiverCopy, wanted: list[int]
    ) -> list[MessageRun]:
        """The frames of the labels `wanted`: one run per `MAX_PARTS` labels."""
        runs: list[MessageRun] = []
        for start in range(0, len(wanted), MAX_PARTS):
            some = wanted[start : start + MAX_PARTS]
            table = bytearray(max(some) + 1)
            for mark, label in enumerate(some, 1):
                table[label] = mark
            taken, marks, expiry_s = frames.take(bytes(table))
            few = tuple(parts[label] for label in some)
            run = self._run(taken, few[0], copy, frames.qos, expiry_s)
            if len(few) > 1 or not isinstance(few[0].numbers, range):
                run.count = len(marks)
                run.parts, run.marks = few, marks
            runs.append(run)
        return runs

    def _run(
        self,
        taken: bytes,
        part: tuple[str, ChannelCounts, Sequence[int]],
        copy: ReceiverCopy,
        qos: int,
        expiry_s: int,
    ) -> MessageRun:
        """The run for the receivers of a copy."""
        to_v5 = copy.receiver.dialect == V5
        at_qos = qos if qos < copy.qos else copy.qos
        more = b""
        if copy.identifiers and to_v5:
            more = b"".join(_IDENTIFIER + varint_bytes(each) for each in copy.identifiers)
        frames = taken
        if more or at_qos != qos or to_v5 != self.is_v5:
            frames = rewrite(taken, self.is_v5, to_v5, at_qos, 0, more)
        channel, counts, numbers = part
        return MessageRun(
            frames,
            len(numbers),
            copy.grant,
            self.context.now_ms,
            numbers[0],
            channel,
            self.publisher,
            counts,
            to_v5,
            at_qos,
            expiry_s,
        )

    def keep(self, frames: Frames, label: int, route: FanOut, numbers: range) -> None:
        """Append the frames of a label to the journal."""
        taken, _, _ = frames.take(bytes(label) + b"\1")
        context = self.context
        kept = KeptRun(
            taken,
            self.is_v5,
            len(numbers),
            route.channel,
            self.publisher,
            frames.qos,
            numbers.start,
            context.now_ms,
        )
        context.keep_run(kept)

    def messages(self, frames: Frames, label: int) -> Iterator[tuple[MqttMessage, int]]:
        """The frames of a label as messages without numbers, with their packet identifiers."""
        route = frames.ways[label].fan_out.channel_fan_out
        for start, end in frames.places(label):
            message, packet_id, _ = read_message(
                frames.data,
                start,
                end,
                self.is_v5,
                self.publisher,
                self.context.now_ms,
                route.channel,
            )
            message.counts = route.counts
            yield message, packet_id


class _Events:
    """Messages of labels, decoded when the first receiver needs them."""

    def __init__(self, forwarder: RunForwarder, frames: Frames, parts: dict[int, Part]) -> None:
        self._forwarder = forwarder
        self._frames = frames
        self._parts = parts
        self._messages: dict[int, list[tuple[int, MqttMessage]]] = {}

    def deliver(self, several: list[CopyLabels]) -> None:
        """Deliver one receiver's messages in order of arrival."""
        found = [
            (start, message, copy)
            for copy, labels in several
            for label in labels
            for start, message in self._of(label)
        ]
        found.sort(key=itemgetter(0))
        for _, message, copy in found:
            qos = min(copy.qos, self._frames.qos)
            copy.receiver.deliver(message, qos, False, copy.identifiers, copy.grant)

    def _of(self, label: int) -> list[tuple[int, MqttMessage]]:
        """The messages of a label with the offsets at which they start."""
        found = self._messages.get(label)
        if found is None:
            found = self._messages[label] = []
            numbers = self._parts[label].numbers
            places = self._frames.places(label)
            messages = self._forwarder.messages(self._frames, label)
            for number, (start, _), (message, _) in zip(numbers, places, messages, strict=True):
                message.number = number
                found.append((start, message))
        return found


def read_message(
    data: bytes,
    start: int,
    end: int,
    is_v5: bool,
    publisher: str,
    received_ms: int,
    channel: str = "",
) -> tuple[MqttMessage, int, tuple[int, ...]]:
    """Decode a clean frame: message, packet identifier, subscription identifiers.

    `channel` is given if an alias may stand for it.
    """
    qos = data[start] >> 1 & 3
    _, body = read_varint(data, start + 1, end)
    at = body + 2 + (data[body] << 8 | data[body + 1])
    channel = channel or data[body + 2 : at].decode()
    packet_id = 0
    if qos:
        packet_id = data[at] << 8 | data[at + 1]
        at += 2
    properties, block = NO_PROPERTIES, b""
    if is_v5:
        properties, at = decode_properties(data, at, end, PacketType.PUBLISH)
        if properties is not NO_PROPERTIES:
            block = forwarded_block(properties)
    expiry_s = properties.message_expiry_s
    message = MqttMessage(
        channel,
        string_bytes(channel),
        data[at:end],
        qos,
        False,
        publisher,
        received_ms,
        properties,
        block,
        0 if expiry_s is None else received_ms + expiry_s * 1000,
    )
    return message, packet_id, properties.subscription_identifiers


def divide(frames: Frames, label: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Distribute a label's frames over the members of its selection's shared groups in turn.

    Its `count` frames are divided evenly into consecutive pieces. Yields for each piece its own
    label and the range of its frames: first, and one past the last.
    """
    selection: Selection = frames.ways[label]
    assert selection.groups is not None
    turns = [group.choose(members, count) for group, members in selection.groups]
    ends = sorted({end for turn in turns for end in _ends(len(turn), count)})
    which = array("I")
    ways: list[Selection] = []
    start = 0
    for end in ends:
        members = tuple(turn[_piece_of(start, len(turn), count)] for turn in turns)
        which.extend([len(ways)] * (end - start))
        ways.append(selection.with_members(members))
        start = end
    first = frames.relabel(label, which, ways)
    for piece, (start, end) in enumerate(pairwise([0, *ends])):
        yield first + piece, start, end


def _ends(pieces: int, count: int) -> list[int]:
    """End offsets of the pieces; the first ones have one more if `count` does not divide evenly."""
    each, more = divmod(count, pieces)
    return [each * piece + min(piece, more) for piece in range(1, pieces + 1)]


def _piece_of(place: int, pieces: int, count: int) -> int:
    return next(piece for piece, end in enumerate(_ends(pieces, count)) if place < end)


def stored_run(run: MessageRun) -> StoredRun:
    """The record of a run whose events are numbered."""
    events: list[tuple[int, int]] = []
    for number in run.numbers():
        if events and sum(events[-1]) == number:
            events[-1] = (events[-1][0], events[-1][1] + 1)
        else:
            events.append((number, 1))
    return StoredRun(
        run.stored_as, run.frames, run.is_v5, run.publisher, run.queued_ms, tuple(events)
    )


def restored_run(record: StoredRun) -> Iterator[tuple[MqttMessage, tuple[int, ...]]]:
    """The messages of a record; raises ProtocolError or ValueError if it is damaged."""
    if sum(count for _, count in record.events) > len(record.frames):
        raise ValueError("expected a frame for each event")
    numbers = [number for first, count in record.events for number in range(first, first + count)]
    found = _read_messages(
        record.frames, numbers, record.is_v5, record.publisher, record.received_ms
    )
    for place, (message, identifiers) in enumerate(found):
        message.stored_as = record.number + place
        yield message, identifiers


def _read_messages(
    frames: bytes, numbers: list[int], is_v5: bool, publisher: str, received_ms: int
) -> Iterator[tuple[MqttMessage, tuple[int, ...]]]:
    """Decode frames with these numbers into messages with their subscription identifiers."""
    at = 0
    for number in numbers:
        length, body = read_varint(frames, at + 1, len(frames))
        end = body + length
        if end > len(frames):
            raise ValueError("expected a frame for each event")
        message, _, identifiers = read_message(frames, at, end, is_v5, publisher, received_ms)
        message.number = number
        yield message, identifiers
        at = end
