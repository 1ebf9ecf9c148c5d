"""Reliable multicast: every member that stays receives every event, in order per source.

The source numbers its events (`streams.stream_sender`) and sends them along a distribution tree of
the members (`trees`). Retransmission is hop by hop (`streams.stream_relay`): every node of the tree
buffers the events that some member may lack, and discards them once all members have them. When
links or nodes fail, the source chooses another tree; streams and sequence numbers stay as they are.

A slow member is dropped after a timeout. The events it misses are counted and recorded both at the
source and, when the stream reaches it again, at the member. A source keeps a stream's state until
its dropped members have learnt what they missed, within a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, Final

import msgspec

from accord.core.channels.members import INTEREST, Members
from accord.core.channels.streams.messages import (
    NOTHING,
    Ack,
    Have,
    Message,
    Nack,
    StreamHeader,
    StreamHeartbeat,
    StreamId,
    StreamState,
    headers,
    messages,
)
from accord.core.channels.streams.source_stream import BufferedEvent, SourceStream
from accord.core.channels.streams.stream_relay import StreamRelay
from accord.core.channels.streams.stream_sender import StreamSender
from accord.core.channels.streams.stream_tables import (
    InboundStreams,
    InFlightBudget,
    OutboundStreams,
)
from accord.core.channels.template import (
    COMPLETE,
    IN_ORDER,
    NO_DUPLICATES,
    Check,
    Context,
    Template,
    one_of,
    whole_number,
)
from accord.core.channels.tree_multicast import TreeMulticast, factor_of
from accord.core.channels.trees.tree_cache import TreeCache
from accord.core.model.errors import decode_or_none
from accord.core.model.units import NEVER_US
from accord.core.overlay.anti_entropy import earlier
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.neighbour_outbox import EXPIRED
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.validation import MAX_DEADLINE_US
from accord.core.scheduling.timers import Timer, Timers

SLOW_MEMBERS: Final = "slow_members"  # option: `drop` slow members, or `wait` for them
STALL_TIMEOUT: Final = "stall_timeout_ms"  # option: timeout of a slow member
MAX_MS: Final = 86_400_000
QUEUE_FULL: Final = "queue full"
SLOW_MEMBER: Final = "slow member"
MISSED: Final = "missed: dropped as slow member"
GONE: Final = "missed: source gone"
DEFAULT_STALL_TIMEOUT_US: Final = 60_000_000
EXPIRE_US: Final = 120_000_000  # twice the default timeout of a source
_LONGER_US: Final = (
    EXPIRE_US - DEFAULT_STALL_TIMEOUT_US
)  # beyond the source's timeout, for incomplete streams
_SWEEP_US: Final = 5_000_000
_AT_A_TIME: Final = 256  # streams per call, so that nothing else waits long
_NEXT_SWEEP_US: Final = 20_000
_MAX_MISSED: Final = 1 << 31  # bound on one reported count, which a neighbour controls
_DIGITS: Final = 12
_UNDEFINED: Final = ChannelDefinition(name="#")


class Reliable(Template):
    """Template `reliable`: sequence numbers, nacks and cumulative acks along a tree per source."""

    promises: ClassVar[tuple[str, ...]] = (NO_DUPLICATES, COMPLETE, IN_ORDER)
    options: ClassVar[Mapping[str, Check]] = {
        **TreeMulticast.options,
        SLOW_MEMBERS: one_of("drop", "wait"),
        STALL_TIMEOUT: whole_number(1, MAX_MS),
    }

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.members = Members(context.watch)
        self.tree_cache = TreeCache(context.map)
        self.relay = StreamRelay(context)
        self.senders = OutboundStreams(context.name, context.incarnation)
        self.streams = InboundStreams()  # streams of other nodes
        self.unreachable: dict[str, int] = {}  # since when members dropped as unreachable stalled
        self._map_version = -1
        self._has_left = False  # this node withdrew an interest
        self._sweep_us = 0
        self._to_sweep: list[str] = []  # channels, taken from the end
        self._timers = Timers()  # of all streams
        self.load = InFlightBudget()
        context.watch(INTEREST, self._on_interest)

    # ---------------------------------------------------------------------------------- template

    def on_published(
        self,
        event: TransitEvent,
        destinations: list[str],  # noqa: ARG002
        definition: ChannelDefinition,  # noqa: ARG002
        now_us: int,
    ) -> None:
        if self.load.is_overfull():
            self.context.report_dropped(event, QUEUE_FULL)
        else:
            self.send(event, StreamHeader(NOTHING, event.deadline_us), now_us)

    def on_event(self, neighbour: str, event: TransitEvent, now_us: int) -> None:
        note = decode_or_none(headers, event.header)
        if note is None or not self.is_valid_header(event.channel, note):
            return
        stream = self._on_state(neighbour, event.channel, note.state, now_us)
        if stream is None:
            return
        event = msgspec.structs.replace(event, deadline_us=note.deadline_us, header=b"")
        kept = BufferedEvent(event, note, now_us)
        is_new = stream.put(event.number, kept)
        self._deliver_ready(stream, now_us)
        if is_new:
            self.relay.forward(stream, event.number, kept, neighbour, now_us)
        self.relay.on_event(stream, now_us)
        self._schedule(stream)

    def is_valid_header(self, channel: str, header: StreamHeader) -> bool:  # noqa: ARG002
        """Whether the header is valid for an event of that channel."""
        return 0 <= header.deadline_us <= MAX_DEADLINE_US

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(messages, body)
        if message is not None:
            self.on_stream_message(neighbour, channel, message, now_us)

    def advance(self, now_us: int) -> None:
        if self._has_left:
            self._has_left = False
            self.streams.on_left(self._is_member)
        self._prune_unreachable()
        self._timers.advance(now_us, _AT_A_TIME)
        if 0 < self._sweep_us <= now_us:
            self._sweep(now_us)

    def next_due_us(self) -> int | None:
        return earlier(self._timers.next_due(), self._sweep_us or None)

    def has_room(self, channel: str) -> bool:
        sender = self.senders.get(channel)
        return self.load.has_room(channel) and (sender is None or sender.has_room())

    def unconfirmed(self, channel: str) -> list[int]:
        sender = self.senders.get(channel)
        return [] if sender is None else sender.unconfirmed()

    def retained_state(self) -> dict[str, int]:
        return {
            "trees": len(self.relay.trees),
            "grown": len(self.tree_cache),
            "senders": len(self.senders),
            "streams": len(self.streams),
        }

    def check_invariants(self) -> None:
        self.members.check_invariants()
        self.tree_cache.check_invariants()
        self.relay.trees.check_invariants()
        self.senders.check_invariants()
        loads = {channel: self.load_of(channel) for channel in self.published_to()}
        assert all(self.load.of(channel) == load for channel, load in loads.items())
        counts, sizes = zip(*loads.values(), strict=True) if loads else ((), ())
        assert self.load.total == (sum(counts), sum(sizes))
        self.streams.check_invariants()
        for stream in (*self.streams.values(), *(each.stream for each in self.senders.values())):
            due_us = stream.next_due_us()
            assert due_us == NEVER_US or (stream.timer and 0 < stream.timer.queued <= due_us)

    # ----------------------------------------------------------------------------- extension points

    def send(self, event: TransitEvent, header: StreamHeader, now_us: int) -> bool:
        """Send an event of this node to all members; False if there is no room for it."""
        sender = self.senders.get_or_create(event.channel, now_us)
        event = msgspec.structs.replace(
            event, source=self.context.name, incarnation=self.context.incarnation
        )
        if not sender.put(event, header, now_us):
            self.context.report_dropped(event, QUEUE_FULL)
            return False
        self._schedule_sweep(now_us)
        self._update_sender(sender, now_us)
        return True

    def on_stream_message(
        self, neighbour: str, channel: str, message: Message, now_us: int
    ) -> None:
        """Handle a neighbour's message about a stream or a tree."""
        match message:
            case Have(is_missing=True):
                self.relay.trees.unconfirm(neighbour, message.digest)
            case Have():
                self.relay.trees.confirm(neighbour, message.digest, now_us)
            case StreamHeartbeat():
                self._on_heartbeat(neighbour, channel, message, now_us)
            case Nack():
                stream = self._stream(channel, message.key)
                if stream is not None:
                    self.relay.on_nack(neighbour, stream, message, now_us)
                    self._schedule(stream)
            case Ack():
                self._on_ack(neighbour, channel, message, now_us)

    def published_to(self) -> Collection[str]:
        """Channels to which local clients have published."""
        return self.senders

    def load_of(self, channel: str) -> tuple[int, int]:
        """Number and bytes of local events that some member may lack."""
        sender = self.senders.get(channel)
        return (0, 0) if sender is None else sender.load()

    def update_load(self, channel: str) -> None:
        """Update the in-flight budget after a channel's load may have changed."""
        self.load.set_usage(channel, *self.load_of(channel))

    def can_accept(self, channel: str) -> bool:
        """Whether `on_ready` accepts more events of a channel now."""
        return self.context.can_accept(channel)

    def on_ready(self, kept: BufferedEvent, now_us: int) -> None:
        """Handle an event that is next in its stream."""
        self.deliver(kept.event, kept.at_us, now_us)

    def deliver(self, event: TransitEvent, received_us: int, now_us: int) -> None:
        """Deliver an event to local clients unless there are none or its deadline has passed."""
        age_us = event.age_us + now_us - received_us
        aged = msgspec.structs.replace(event, age_us=age_us)
        if 0 < event.deadline_us <= age_us:
            self.context.report_dropped(aged, EXPIRED)
        elif self.members.has(event.channel, self.context.name):
            self.context.deliver(aged)

    # ------------------------------------------------------------------------------------- streams

    def _on_state(
        self, neighbour: str, channel: str, state: StreamState, now_us: int
    ) -> SourceStream | None:
        """Apply a stream state received from a neighbour; None if it is outdated.

        Also None if there is no room for another stream: its source waits for this node and
        retransmits.
        """
        key = state.key
        if key.source == self.context.name or state.window_base < 1:
            return None
        known = self.streams.get_or_create(channel, key, state.window_base, now_us)
        if known is None or known.key.is_after(key):
            return None
        if known.key != key:
            self._end(known, MISSED if known.key.incarnation == key.incarnation else GONE, now_us)
            known = self.streams[channel, key.source] = SourceStream(
                channel, key, state.window_base, now_us
            )
        self._schedule_sweep(now_us)
        known.update_window(state.window_base, state.last_sent)
        self.relay.adopt_tree(neighbour, known, state, now_us)
        return known

    def _end(self, stream: SourceStream, cause: str, now_us: int) -> None:
        """End a stream: deliver what is buffered behind a gap, which will not be filled."""
        stream.end()
        self._deliver_ready(stream, now_us, cause)

    def _stream(self, channel: str, key: StreamId) -> SourceStream | None:
        if key.source == self.context.name:
            sender = self.senders.get(channel)
            stream = None if sender is None else sender.stream
        else:
            stream = self.streams.get((channel, key.source))
        return stream if stream is not None and stream.key == key else None

    def _deliver_ready(self, stream: SourceStream, now_us: int, cause: str = MISSED) -> None:
        """Deliver as many events as this node accepts; the rest stays unacknowledged."""
        before = stream.skipped
        while found := stream.ready(1 if self.can_accept(stream.channel) else 0):
            for kept in found:
                self.on_ready(kept, now_us)
        stream.hold(now_us)
        if stream.skipped > before and stream.was_member:
            key = stream.key
            missed = TransitEvent(key.source, key.incarnation, 0, (), stream.channel, b"")
            self.context.report_dropped(missed, cause, min(stream.skipped - before, _MAX_MISSED))
        stream.was_member = stream.was_member or self._is_member(stream.channel)

    def _is_member(self, channel: str) -> bool:
        return self.members.has(channel, self.context.name)

    def _on_interest(self, node: str, key: str, value: bytes | None) -> None:  # noqa: ARG002
        self._has_left = self._has_left or (node == self.context.name and value is None)

    def _on_heartbeat(
        self, neighbour: str, channel: str, message: StreamHeartbeat, now_us: int
    ) -> None:
        stream = self._on_state(neighbour, channel, message.state, now_us)
        if stream is not None:
            self._deliver_ready(stream, now_us)
            self.relay.on_heartbeat(neighbour, stream, message, now_us)
            self.relay.run_due(stream, now_us)
            self._schedule(stream)

    def _on_ack(self, neighbour: str, channel: str, message: Ack, now_us: int) -> None:
        stream = self._stream(channel, message.key)
        if stream is None or neighbour == stream.parent:
            return
        self.relay.on_ack(neighbour, stream, message, now_us)
        sender = self.senders.get(channel)
        if sender is not None and sender.stream is stream:
            self._update_sender(sender, now_us)
            self.relay.start_heartbeats(stream, now_us, is_new_tree=False)
        self._schedule(stream)

    # --------------------------------------------------------------------------------------- timers

    def _run_due_stream(self, stream: SourceStream, now_us: int) -> None:
        if stream.retry_us <= now_us:
            before = stream.received_through
            self._deliver_ready(stream, now_us)
            if stream.received_through > before:
                stream.ack_us = now_us
        self.relay.run_due(stream, now_us)

    def _update_sender(self, sender: StreamSender, now_us: int) -> None:
        """Update a sender's members and tree, drop slow members, and fill the window."""
        stream = sender.stream
        own = self.context.name
        members = tuple(each for each in self.members.of(stream.channel) if each != own)
        definition = self.context.definition(stream.channel) or _UNDEFINED
        sender.versions = self._versions()
        sender.stall_timeout_us = stall_timeout_us(definition)
        missed = sender.set_members(members, now_us)
        for member in sender.slow_members(
            sender.stall_timeout_us, self._prune_unreachable(), now_us
        ):
            if not self.context.map.is_reachable(own, member):
                self.unreachable.setdefault(member, sender.members[member].since_us)
            elif definition.options.get(SLOW_MEMBERS) == "wait":
                continue
            missed += sender.drop(member, now_us)
        self._choose_tree(sender, members, factor_of(definition), now_us)
        while numbers := sender.take(now_us):
            for number in numbers:
                self.relay.forward(stream, number, stream.events[number], "", now_us)
            if not sender.is_waiting():
                missed += sender.advance(now_us)
        for event in missed:
            self.context.report_dropped(event, SLOW_MEMBER)
        self.update_load(stream.channel)
        self.relay.run_due(stream, now_us)
        self._schedule(stream)

    def _prune_unreachable(self) -> dict[str, int]:
        """Remove nodes that are reachable again from `unreachable`, and return it."""
        if self.unreachable and self._map_version != self.context.map.version:
            self._map_version = self.context.map.version
            for node in list(self.unreachable):
                if self.context.map.is_reachable(self.context.name, node):
                    del self.unreachable[node]
        return self.unreachable

    def _choose_tree(
        self, sender: StreamSender, members: tuple[str, ...], factor: float, now_us: int
    ) -> None:
        stream = sender.stream
        own = self.context.name
        wanted = (*self._tree_members(sender, members), own)
        grown = self.tree_cache.tree(own, wanted, factor, now_us)
        self.relay.trees.learn(grown.tree, grown.digest, now_us)
        if grown.digest != stream.digest:
            stream.digest = grown.digest
            stream.tree_epoch += 1
            stream.heartbeats.clear()
            self.relay.start_heartbeats(stream, now_us, is_new_tree=True)

    def _tree_members(self, sender: StreamSender, members: tuple[str, ...]) -> Iterator[str]:
        """All members except dropped ones that are unreachable."""
        for member in members:
            is_dropped = sender.members[member].is_dropped
            if not is_dropped or self.context.map.is_reachable(self.context.name, member):
                yield member

    def _sweep(self, now_us: int) -> None:
        """Visit all senders, a bounded number per call."""
        self._to_sweep = self._to_sweep or list(self.senders)
        for channel in self._to_sweep[-_AT_A_TIME:]:
            sender = self.senders.get(channel)
            if sender is not None:
                self._update_sender(sender, now_us)
        del self._to_sweep[-_AT_A_TIME:]
        if self._to_sweep:
            self._sweep_us = now_us + _NEXT_SWEEP_US
            return
        self._expire_unused(now_us)
        self._sweep_us = now_us + _SWEEP_US if any(self.retained_state().values()) else 0

    def _expire_unused(self, now_us: int) -> None:
        """Expire unused state."""
        self.senders.expire_idle(now_us)
        for stream in list(self.streams.values()):
            if now_us - stream.received_us >= self._expiry_us(stream):
                self._end(stream, GONE, now_us)
                self.streams.evict(stream)
        nodes = dict.fromkeys(self.context.map.nodes(), True)
        self.streams.prune_checkpoints(nodes)
        self.unreachable = {
            node: since_us for node, since_us in self.unreachable.items() if node in nodes
        }
        self.relay.response_times.prune(nodes)
        self.relay.trees.expire(now_us)
        self.tree_cache.expire(now_us)

    def _expiry_us(self, stream: SourceStream) -> int:
        """Age without contact at which the source no longer waits for this node."""
        if not stream.is_incomplete():
            return EXPIRE_US
        definition = self.context.definition(stream.channel) or _UNDEFINED
        return max(EXPIRE_US, stall_timeout_us(definition) + _LONGER_US)

    def on_timer(self, stream: SourceStream, now_us: int) -> None:
        """Handle the timer of a stream; it may fire early."""
        if self._stream(stream.channel, stream.key) is not stream:
            return
        sender = self.senders.get(stream.channel)
        if sender is None or sender.stream is not stream:
            self._run_due_stream(stream, now_us)
        elif sender.versions != self._versions() or sender.slow_members(
            sender.stall_timeout_us, self.unreachable, now_us
        ):
            self._update_sender(sender, now_us)
        else:
            self.relay.run_due(stream, now_us)
        self._schedule(stream)

    def _versions(self) -> tuple[int, int]:
        """Versions of the inputs of a sender: memberships and map."""
        return self.members.version, self.context.map.version

    def _schedule(self, stream: SourceStream) -> None:
        due_us = stream.next_due_us()
        if due_us < NEVER_US:
            stream.timer = stream.timer or StreamTimer(self, stream)
            self._timers.set(stream.timer, due_us)
        elif stream.timer is not None:
            self._timers.cancel(stream.timer)

    def _schedule_sweep(self, now_us: int) -> None:
        self._sweep_us = self._sweep_us or now_us + _SWEEP_US


class StreamTimer(Timer):
    """The timer of one stream."""

    def __init__(self, template: Reliable, stream: SourceStream) -> None:
        super().__init__()
        self._template = template
        self._stream = stream

    def fire(self, now: int) -> None:
        self._template.on_timer(self._stream, now)


def stall_timeout_us(definition: ChannelDefinition) -> int:
    """How long a slow member is waited for, unless the channel waits for all members."""
    given = definition.options.get(STALL_TIMEOUT, "")
    is_number = given.isdecimal() and len(given) < _DIGITS
    return int(given) * 1_000 if is_number and int(given) else DEFAULT_STALL_TIMEOUT_US
