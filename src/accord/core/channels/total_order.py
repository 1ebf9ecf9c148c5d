"""Total order: reliable multicast whose members all deliver in the same order.

A sequencer per channel, at the rendezvous node, grants positions in the order (`ordering`). A
source requests positions for its events and sends them, with their positions, along its own tree as
`reliable` does. Members deliver by position and acknowledge on delivery, so that events waiting for
their turn slow down their source and are bounded by its window.

An event keeps its position for ever and no member goes back in the order, so the order is the same
everywhere whatever fails. When the sequencer is suspected, the next rendezvous takes over with a
later epoch, after a prepare/promise round in which it learns the positions in use. Parts of a
divided overlay continue with sequencers of their own; events of the other part that a part had not
received when it continued without them are not delivered there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final

import msgspec

from accord.core.channels.control_unicast import ControlUnicast, HopAck, UnicastMessage
from accord.core.channels.ordering.messages import (
    MAX_INDEX,
    NO_EPOCH,
    Body,
    CurrentEpoch,
    Epoch,
    EpochPromise,
    HolderQuery,
    HolderReply,
    OrderPosition,
    PositionGrant,
    PositionPending,
    PositionQuery,
    PositionRange,
    PositionRequest,
    PositionVoid,
    PrepareEpoch,
    bodies,
    encode,
    epoch_of,
    is_plausible,
    is_valid_position,
    position_at,
)
from accord.core.channels.ordering.ordered_receiver import OrderedReceiver
from accord.core.channels.ordering.sequencer_manager import SequencerManager
from accord.core.channels.ordering.source_queue import OwnPositions, SourceQueue
from accord.core.channels.reliable import (
    EXPIRE_US,
    QUEUE_FULL,
    SLOW_MEMBERS,
    Reliable,
    stall_timeout_us,
)
from accord.core.channels.streams.messages import NOTHING, Message, StreamHeader, StreamState
from accord.core.channels.streams.source_stream import BufferedEvent, SourceStream
from accord.core.channels.streams.stream_sender import StreamSender, fitting
from accord.core.channels.template import SAME_ORDER, Context
from accord.core.model.errors import decode_or_none
from accord.core.model.units import NEVER_US
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.signalling import TransitEvent

TOO_LATE: Final = "position already passed"
TOO_MANY: Final = "too many channels in use"
MAX_CHANNELS: Final = 4_096
MAX_POSITIONS: Final = 16_384
_UNDEFINED: Final = ChannelDefinition(name="#")
_messages: Final[msgspec.msgpack.Decoder[Message | UnicastMessage | HopAck]] = (
    msgspec.msgpack.Decoder(Message | UnicastMessage | HopAck)
)


class TotalOrder(Reliable):
    """Template `total_order`."""

    promises: ClassVar[tuple[str, ...]] = (*Reliable.promises, SAME_ORDER)
    delivers_own: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.unicast = ControlUnicast(
            context.name, context.incarnation, context.map, self._send_hop, self._on_unicast
        )
        self.queues: dict[str, SourceQueue] = {}  # in order of use
        self.receivers: dict[str, OrderedReceiver] = {}
        self._with_deadline: dict[str, bool] = {}  # channels that may have a deadline
        # Last delivered position of evicted channels that this node is a member of: it must not go
        # back.
        self.positions: dict[str, OrderPosition] = {}
        self.manager = SequencerManager(context, self.queues, self._send_unicast)
        self.own_positions = OwnPositions(context, self.queues, self.senders)

    # ---------------------------------------------------------------------------------- template

    def on_published(
        self,
        event: TransitEvent,
        destinations: list[str],  # noqa: ARG002
        definition: ChannelDefinition,  # noqa: ARG002
        now_us: int,
    ) -> None:
        if not self.members.of(event.channel):
            return
        if not self._open(event.channel, now_us):
            self.context.report_dropped(event, TOO_MANY)
            return
        queue = self.queues[event.channel]
        if self.load.is_overfull() or not queue.put(event, now_us):
            self.context.report_dropped(event, QUEUE_FULL)
            return
        self.update_load(event.channel)
        self._request_positions(event.channel, queue, now_us)

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_messages, body)
        match message:
            case None:
                pass
            case UnicastMessage():
                self.unicast.on_message(neighbour, channel, message, now_us)
            case HopAck():
                self.unicast.on_ack(neighbour, message)
            case _:
                self.on_stream_message(neighbour, channel, message, now_us)

    def is_valid_header(self, channel: str, header: StreamHeader) -> bool:
        is_place = header.position is None or is_valid_position(
            header.position, self._latest(channel)
        )
        return is_place and super().is_valid_header(channel, header)

    def _latest(self, channel: str) -> Epoch:
        """The latest epoch known at this node."""
        queue = self.queues.get(channel)
        return NO_EPOCH if queue is None else queue.latest

    def on_ready(self, kept: BufferedEvent, now_us: int) -> None:
        channel = kept.event.channel
        stamp = kept.header.position
        if stamp is None:
            return
        if not self._is_member(channel):
            if channel in self.queues:
                self._with_deadline[channel] = True
                self._record_contact(kept.event.source, channel, stamp, now_us)
        elif self._open(channel, now_us):
            self._record_contact(kept.event.source, channel, stamp, now_us)
            self._enqueue(kept, now_us)
            self._deliver_ordered(channel, now_us)
        else:
            self.context.report_dropped(kept.event, TOO_MANY)

    def _record_contact(
        self, source: str, channel: str, position: OrderPosition, now_us: int
    ) -> None:
        self.manager.on_message(source, now_us)
        self.queues[channel].on_epoch(epoch_of(position), now_us)

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self.unicast.advance(now_us)
        self.manager.advance(now_us)
        for channel in list(self._with_deadline):
            queue, member = self.queues.get(channel), self.receivers.get(channel)
            if queue is not None:
                self._request_positions(channel, queue, now_us)
            if member is not None and (member.gap is not None or member.retry_us <= now_us):
                self._resolve_gap(channel, member, now_us)
            if self._order_due_us(channel) == NEVER_US:
                del self._with_deadline[channel]

    def next_due_us(self) -> int | None:
        due_us = super().next_due_us()
        if not self.queues and not len(self.unicast):
            return due_us  # no ordering state
        soonest_us = self.manager.next_due_us()
        for own_us in (due_us, self.unicast.next_due_us()):
            if own_us is not None and own_us < soonest_us:
                soonest_us = own_us
        for channel in self._with_deadline:
            soonest_us = min(soonest_us, self._order_due_us(channel))
        return None if soonest_us == NEVER_US else soonest_us

    def _order_due_us(self, channel: str) -> int:
        queue, member = self.queues.get(channel), self.receivers.get(channel)
        asks_us = NEVER_US if queue is None else queue.request_us
        return asks_us if member is None else min(asks_us, member.next_due_us())

    def has_room(self, channel: str) -> bool:
        queue = self.queues.get(channel)
        return super().has_room(channel) and (queue is None or queue.has_room())

    def published_to(self) -> Collection[str]:
        return {*self.senders, *self.queues}

    def load_of(self, channel: str) -> tuple[int, int]:
        count, size = super().load_of(channel)
        queue = self.queues.get(channel)
        return (count, size) if queue is None else (count + len(queue.pending), size + queue.bytes)

    def unconfirmed(self, channel: str) -> list[int]:
        queue = self.queues.get(channel)
        pending = [] if queue is None else [event.event for event, _ in queue.pending]
        return super().unconfirmed(channel) + pending

    def retained_state(self) -> dict[str, int]:
        return {
            **super().retained_state(),
            "letters": len(self.unicast),
            "desks": len(self.queues),
            "ordered": len(self.receivers),
            "positions": len(self.positions),
            "sequencers": len(self.manager.sequencers),
            "contacts": len(self.manager.detector),
        }

    def check_invariants(self) -> None:
        super().check_invariants()
        self.unicast.check_invariants()
        for queue in self.queues.values():
            queue.check_invariants()
        for member in self.receivers.values():
            member.check_invariants()
        self.manager.check_invariants()
        # Waiting events are bounded by the windows of their streams.
        for (channel, _), stream in self.streams.items():
            assert all(stamp in self.receivers[channel] for stamp in stream.undelivered)
        for channel, sender in self.senders.items():
            assert not sender.backlog
            assert all(stamp in self.receivers[channel] for stamp in sender.stream.undelivered)
        for channel in (*self.queues, *self.receivers):
            assert channel in self._with_deadline or self._order_due_us(channel) == NEVER_US
        assert len(self.queues) <= MAX_CHANNELS
        assert len(self.positions) <= MAX_POSITIONS
        assert not any(channel in self.receivers for channel in self.positions)
        assert all(channel in self.queues for channel in self.receivers)
        assert all(channel in self.queues for channel in self.manager.sequencers)

    # ---------------------------------------------------------------------------- control unicast

    def _on_unicast(self, origin: str, channel: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(bodies, body)
        if message is None or not is_plausible(message, self._latest(channel)):
            return
        if not self._open(channel, now_us):
            return
        self.manager.on_message(origin, now_us)
        match message:
            case PositionRequest():
                self.manager.on_position_request(origin, channel, message, now_us)
            case PositionGrant():
                self._on_grant(channel, message, now_us)
            case PrepareEpoch():
                self._on_prepare(origin, channel, message, now_us)
            case EpochPromise():
                self.manager.on_promise(origin, channel, message, now_us)
            case CurrentEpoch():
                self.queues[channel].on_epoch(message.epoch, now_us)
            case HolderQuery():
                self.manager.on_holder_query(origin, channel, message, now_us)
            case PositionQuery():
                self._on_position_query(origin, channel, message, now_us)
            case HolderReply() | PositionPending() | PositionVoid():
                self._on_reply(channel, message, now_us)

    def _send_unicast(self, to: str, channel: str, body: Body, now_us: int) -> None:
        self.unicast.send(to, channel, encode(body), now_us)

    def _send_hop(self, neighbour: str, channel: str, message: UnicastMessage | HopAck) -> None:
        self.context.send_message(neighbour, channel, encode(message))

    # --------------------------------------------------------------------------------------- source

    def _open(self, channel: str, now_us: int) -> bool:
        """Get or create the ordering state of a channel; False if too many channels are in use."""
        self._schedule_sweep(now_us)
        queue = self.queues.pop(channel, None)
        if queue is None:
            if len(self.queues) >= MAX_CHANNELS and not self._evict_one():
                return False
            queue = SourceQueue(self.context.incarnation, now_us)
            if channel in self.positions:
                queue.on_epoch(epoch_of(self.positions[channel]), now_us)
        self.queues[channel] = queue
        self._with_deadline[channel] = True
        queue.used_us = now_us
        return True

    def _evict_one(self) -> bool:
        """Evict the least recently used channel in which nothing waits."""
        for channel in self.queues:
            if self._is_idle(channel):
                self._evict(channel)
                return True
        return False

    def _is_idle(self, channel: str) -> bool:
        sender = self.senders.get(channel)
        sequencer = self.manager.sequencers.get(channel)
        is_sent = not self.queues[channel].pending and (sender is None or sender.is_confirmed())
        is_busy = sequencer is not None and sequencer.is_busy
        return is_sent and not is_busy and not self.receivers.get(channel)

    def _request_positions(self, channel: str, queue: SourceQueue, now_us: int) -> None:
        if queue.request_us > now_us:
            return
        sender = self.senders.get(channel)
        events = queue.next_events()
        room = fitting(events) if sender is None else sender.fitting(events)
        ask = queue.next_request(room, now_us)
        if ask is not None:
            self._send_unicast(self.manager.sequencer_of(channel, now_us), channel, ask, now_us)

    def _update_sender(self, sender: StreamSender, now_us: int) -> None:
        super()._update_sender(sender, now_us)
        queue = self.queues.get(sender.stream.channel)
        if queue is not None:
            self._with_deadline[sender.stream.channel] = True
            queue.resume(now_us)

    def _on_grant(self, channel: str, message: PositionGrant, now_us: int) -> None:
        held = message.held
        if not self.own_positions.is_own(held):
            return
        granted = self.queues[channel].on_grant(message, now_us)
        for place, (event, came_us) in enumerate(granted, held.first):
            note = StreamHeader(NOTHING, event.deadline_us, position_at(held.epoch, place))
            aged = msgspec.structs.replace(
                event,
                age_us=event.age_us + now_us - came_us,
                source=self.context.name,
                incarnation=self.context.incarnation,
            )
            is_sent = self.send(aged, note, now_us)
            assert is_sent  # it requests no more positions than the window has room for
            self._enqueue(BufferedEvent(aged, note, now_us), now_us)
        if granted:
            self._deliver_ordered(channel, now_us)
            self._update_sender(self.senders[channel], now_us)

    def _on_prepare(self, origin: str, channel: str, message: PrepareEpoch, now_us: int) -> None:
        queue = self.queues[channel]
        latest = queue.latest
        queue.on_epoch(message.epoch, now_us)
        self.manager.step_down(channel, message.epoch)
        contacts = self.manager.detector
        in_touch = tuple(each for each in message.suspected if contacts.is_in_contact(each, now_us))
        answer = EpochPromise(
            message.epoch, latest, self.own_positions.all(channel), message.suspected, in_touch
        )
        self._send_unicast(origin, channel, answer, now_us)

    def _on_position_query(
        self, origin: str, channel: str, message: PositionQuery, now_us: int
    ) -> None:
        self.queues[channel].on_epoch(message.latest, now_us)
        answer = self.own_positions.reply_to(origin, channel, message.held)
        self._send_unicast(origin, channel, answer, now_us)

    # --------------------------------------------------------------------------------------- member

    def _on_reply(
        self, channel: str, message: HolderReply | PositionPending | PositionVoid, now_us: int
    ) -> None:
        member = self.receivers.get(channel)
        if member is None:
            return
        match message:
            case HolderReply():
                member.on_holders(message, self._excluded_ranges(channel, message, now_us))
            case PositionVoid():
                member.on_void(message)
        self._resolve_gap(channel, member, now_us)

    def _excluded_ranges(
        self, channel: str, message: HolderReply, now_us: int
    ) -> list[PositionRange]:
        """Ranges that excluded sources may hold in the epoch of this node's last position."""
        low, contacts = message.low, self.manager.detector
        if low is None:
            return []
        streams = [self.streams.get((channel, each)) for each in message.excluded]
        keys = [each.key for each in streams if each is not None]
        return [
            PositionRange(epoch_of(low), low[3] + 1, MAX_INDEX, key.source, key.incarnation)
            for key in keys
            if contacts.is_in_contact(key.source, now_us)
        ]

    def _resolve_gap(self, channel: str, receiver: OrderedReceiver, now_us: int) -> None:
        contacts = self.manager.detector
        receiver.timeout_us = self._wait_timeout_us(channel)
        if self.context.can_accept(channel):
            receiver.skip_suspected(lambda source: contacts.is_suspected(source, now_us))
        self._deliver_ordered(channel, now_us)
        question = receiver.holder_query(self.queues[channel].latest, now_us)
        if question is not None:
            self._send_unicast(
                self.manager.sequencer_of(channel, now_us), channel, question, now_us
            )
        for held in receiver.position_queries(now_us):
            contacts.expect_reply(held.source, now_us)
            yours = PositionQuery(held, self.queues[channel].latest)
            self._send_unicast(held.source, channel, yours, now_us)

    def can_accept(self, channel: str) -> bool:  # noqa: ARG002
        """Always True: an arrived event waits for its turn, and is not acknowledged before."""
        return True

    def _on_state(
        self, neighbour: str, channel: str, state: StreamState, now_us: int
    ) -> SourceStream | None:
        stream = super()._on_state(neighbour, channel, state, now_us)
        if stream is not None and stream.acked_through + 1 < stream.window_base:
            self._skip_waits(stream)
        return stream

    def _skip_waits(self, stream: SourceStream) -> None:
        """Stop waiting before events below the base: their source has stopped waiting."""
        member = self.receivers.get(stream.channel)
        if member is None:
            return
        for number, kept in stream.events.items():
            if number < stream.window_base and kept.header.position is not None:
                member.stop_waiting_before(kept.header.position)

    def _enqueue(self, kept: BufferedEvent, now_us: int) -> None:
        """Queue an event until its turn; it is acknowledged then."""
        event, stamp = kept.event, kept.header.position
        assert stamp is not None
        channel = event.channel
        if not self._is_member(channel):
            self._release(kept, now_us)
            return
        member = self.receivers.get(channel)
        if member is None:
            position = self.positions.pop(channel, None)
            member = self.receivers[channel] = OrderedReceiver(
                self._wait_timeout_us(channel), position
            )
        if member.put(stamp, kept, now_us):
            stream = self.streams.get((channel, event.source))
            if stream is not None and event.number >= stream.window_base:
                stream.undelivered[stamp] = event.number
            return
        self.context.report_dropped(event, TOO_LATE)
        self._release(kept, now_us)
        queue = self.queues[channel]
        if epoch_of(stamp) < queue.latest and queue.may_send_notice(now_us):
            self._send_unicast(event.source, channel, CurrentEpoch(queue.latest), now_us)

    def _deliver_ordered(self, channel: str, now_us: int) -> None:
        member = self.receivers.get(channel)
        if member is None:
            return
        member.retry_us = NEVER_US
        while self.context.can_accept(channel) or member.must_not_wait():
            found = member.ready(now_us, 1)
            if not found:
                return
            for kept in found:
                self._release(kept, now_us)
                if member.is_outdated(kept):
                    self.context.report_dropped(kept.event, TOO_LATE)
                else:
                    self.deliver(kept.event, kept.at_us, now_us)
        member.hold(now_us)

    def _release(self, kept: BufferedEvent, now_us: int) -> None:
        """Release an event from its stream's `held_back`, so that it is acknowledged."""
        event, stamp = kept.event, kept.header.position
        assert stamp is not None
        sender = self.senders.get(event.channel)
        stream = self.streams.get((event.channel, event.source))
        if sender is not None and event.source == self.context.name:
            sender.stream.undelivered.pop(stamp, None)
            if kept.at_us < now_us:  # otherwise the caller does so anyway
                self._update_sender(sender, now_us)
        elif stream is not None and stream.undelivered.pop(stamp, 0) and kept.at_us < now_us:
            self.relay.on_event(stream, now_us)
            self._schedule(stream)

    def _wait_timeout_us(self, channel: str) -> int:
        """How long an event waits for earlier ones: half of its own source's timeout."""
        definition = self.context.definition(channel) or _UNDEFINED
        if definition.options.get(SLOW_MEMBERS) == "wait":
            return NEVER_US
        return stall_timeout_us(definition) // 2

    # --------------------------------------------------------------------------------------- timers

    def _expire_unused(self, now_us: int) -> None:
        for channel in list(self.receivers):
            if not self._is_member(channel):
                self._leave_order(channel, now_us)
        self.manager.expire(now_us - EXPIRE_US, now_us)
        for channel, queue in list(self.queues.items()):
            is_used = channel in self.manager.sequencers or now_us - queue.used_us < EXPIRE_US
            if not is_used and self._is_idle(channel):
                self._evict(channel)
        for channel in [each for each in self.positions if not self._is_member(each)]:
            del self.positions[channel]
        if not self.queues:
            self.manager.detector.clear()
        super()._expire_unused(now_us)

    def _leave_order(self, channel: str, now_us: int) -> None:
        """Release waiting events that no local client wants; the position is kept for a rejoin."""
        for kept in self.receivers[channel].leave():
            self._release(kept, now_us)

    def _evict(self, channel: str) -> None:
        """Drop an idle channel's ordering state, but keep the position if this node is a member."""
        del self.queues[channel]
        member = self.receivers.pop(channel, None)
        if member is not None and member.position is not None and self._is_member(channel):
            while len(self.positions) >= MAX_POSITIONS:
                del self.positions[next(iter(self.positions))]
            self.positions[channel] = member.position
        self.manager.drop(channel)
