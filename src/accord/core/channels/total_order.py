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
    MAX_PLACE,
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
    is_sane,
    is_stamp,
    stamp_of,
)
from accord.core.channels.ordering.ordered_receiver import OrderedReceiver
from accord.core.channels.ordering.sequencer_manager import SequencerManager
from accord.core.channels.ordering.source_queue import OwnPositions, SourceQueue
from accord.core.channels.reliable import (
    FORGET_US,
    LAGGARDS,
    QUEUE_FULL,
    Reliable,
    patience_us,
)
from accord.core.channels.streams.messages import NOTHING, Message, StreamHeader, StreamState
from accord.core.channels.streams.source_stream import BufferedEvent, SourceStream
from accord.core.channels.streams.stream_sender import StreamSender, fitting
from accord.core.channels.template import SAME_ORDER, Context
from accord.core.model.errors import decode_or_none
from accord.core.model.units import NEVER_US
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.signalling import Carried

TOO_LATE: Final = "others were before it"
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
        self.letters = ControlUnicast(
            context.name, context.incarnation, context.map, self._say_letter, self._letter
        )
        self.desks: dict[str, SourceQueue] = {}  # in order of use
        self.ordered: dict[str, OrderedReceiver] = {}
        self._restless: dict[str, bool] = {}  # channels that may have a deadline
        # Last delivered position of evicted channels that this node is a member of: it must not go
        # back.
        self.positions: dict[str, OrderPosition] = {}
        self.office = SequencerManager(context, self.desks, self._post)
        self.holdings = OwnPositions(context, self.desks, self.senders)

    # ---------------------------------------------------------------------------------- template

    def published(
        self,
        event: Carried,
        destinations: list[str],  # noqa: ARG002
        definition: ChannelDefinition,  # noqa: ARG002
        now_us: int,
    ) -> None:
        if not self.members.of(event.channel):
            return
        if not self._open(event.channel, now_us):
            self.context.lose(event, TOO_MANY)
            return
        desk = self.desks[event.channel]
        if self.load.is_overfull() or not desk.put(event, now_us):
            self.context.lose(event, QUEUE_FULL)
            return
        self.weigh(event.channel)
        self._tend_desk(event.channel, desk, now_us)

    def said(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_messages, body)
        match message:
            case None:
                pass
            case UnicastMessage():
                self.letters.came(neighbour, channel, message, now_us)
            case HopAck():
                self.letters.got(neighbour, message)
            case _:
                self.heard(neighbour, channel, message, now_us)

    def is_note(self, channel: str, note: StreamHeader) -> bool:
        is_place = note.stamp is None or is_stamp(note.stamp, self._latest(channel))
        return is_place and super().is_note(channel, note)

    def _latest(self, channel: str) -> Epoch:
        """The latest epoch known at this node."""
        desk = self.desks.get(channel)
        return NO_EPOCH if desk is None else desk.latest

    def arrived(self, kept: BufferedEvent, now_us: int) -> None:
        channel = kept.event.channel
        stamp = kept.note.stamp
        if stamp is None:
            return
        if not self._is_member(channel):
            if channel in self.desks:
                self._restless[channel] = True
                self._heard_from(kept.event.source, channel, stamp, now_us)
        elif self._open(channel, now_us):
            self._heard_from(kept.event.source, channel, stamp, now_us)
            self._take_in(kept, now_us)
            self._hand_out(channel, now_us)
        else:
            self.context.lose(kept.event, TOO_MANY)

    def _heard_from(self, source: str, channel: str, stamp: OrderPosition, now_us: int) -> None:
        self.office.hear(source, now_us)
        self.desks[channel].heard_of(epoch_of(stamp), now_us)

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self.letters.advance(now_us)
        self.office.advance(now_us)
        for channel in list(self._restless):
            desk, member = self.desks.get(channel), self.ordered.get(channel)
            if desk is not None:
                self._tend_desk(channel, desk, now_us)
            if member is not None and (member.gap is not None or member.held_us <= now_us):
                self._tend_member(channel, member, now_us)
            if self._order_due_us(channel) == NEVER_US:
                del self._restless[channel]

    def next_due_us(self) -> int | None:
        due_us = super().next_due_us()
        if not self.desks and not len(self.letters):
            return due_us  # no ordering state
        soonest_us = self.office.next_due_us()
        for own_us in (due_us, self.letters.next_due_us()):
            if own_us is not None and own_us < soonest_us:
                soonest_us = own_us
        for channel in self._restless:
            soonest_us = min(soonest_us, self._order_due_us(channel))
        return None if soonest_us == NEVER_US else soonest_us

    def _order_due_us(self, channel: str) -> int:
        desk, member = self.desks.get(channel), self.ordered.get(channel)
        asks_us = NEVER_US if desk is None else desk.asks_us
        return asks_us if member is None else min(asks_us, member.next_due_us())

    def has_room(self, channel: str) -> bool:
        desk = self.desks.get(channel)
        return super().has_room(channel) and (desk is None or desk.has_room())

    def published_to(self) -> Collection[str]:
        return {*self.senders, *self.desks}

    def load_of(self, channel: str) -> tuple[int, int]:
        count, size = super().load_of(channel)
        desk = self.desks.get(channel)
        return (count, size) if desk is None else (count + len(desk.pending), size + desk.bytes)

    def unsettled(self, channel: str) -> list[int]:
        desk = self.desks.get(channel)
        pending = [] if desk is None else [event.event for event, _ in desk.pending]
        return super().unsettled(channel) + pending

    def left(self) -> dict[str, int]:
        return {
            **super().left(),
            "letters": len(self.letters),
            "desks": len(self.desks),
            "ordered": len(self.ordered),
            "positions": len(self.positions),
            "sequencers": len(self.office.sequencers),
            "contacts": len(self.office.contacts),
        }

    def check_invariants(self) -> None:
        super().check_invariants()
        self.letters.check_invariants()
        for desk in self.desks.values():
            desk.check_invariants()
        for member in self.ordered.values():
            member.check_invariants()
        self.office.check_invariants()
        # Waiting events are bounded by the windows of their streams.
        for (channel, _), stream in self.streams.items():
            assert all(stamp in self.ordered[channel] for stamp in stream.held_back)
        for channel, sender in self.senders.items():
            assert not sender.backlog
            assert all(stamp in self.ordered[channel] for stamp in sender.stream.held_back)
        for channel in (*self.desks, *self.ordered):
            assert channel in self._restless or self._order_due_us(channel) == NEVER_US
        assert len(self.desks) <= MAX_CHANNELS
        assert len(self.positions) <= MAX_POSITIONS
        assert not any(channel in self.ordered for channel in self.positions)
        assert all(channel in self.desks for channel in self.ordered)
        assert all(channel in self.desks for channel in self.office.sequencers)

    # ---------------------------------------------------------------------------- control unicast

    def _letter(self, origin: str, channel: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(bodies, body)
        if message is None or not is_sane(message, self._latest(channel)):
            return
        if not self._open(channel, now_us):
            return
        self.office.hear(origin, now_us)
        match message:
            case PositionRequest():
                self.office.asked_for_places(origin, channel, message, now_us)
            case PositionGrant():
                self._granted(channel, message, now_us)
            case PrepareEpoch():
                self._asked_what_is_held(origin, channel, message, now_us)
            case EpochPromise():
                self.office.collected(origin, channel, message, now_us)
            case CurrentEpoch():
                self.desks[channel].heard_of(message.epoch, now_us)
            case HolderQuery():
                self.office.asked_who(origin, channel, message, now_us)
            case PositionQuery():
                self._asked_whether(origin, channel, message, now_us)
            case HolderReply() | PositionPending() | PositionVoid():
                self._answered(channel, message, now_us)

    def _post(self, to: str, channel: str, body: Body, now_us: int) -> None:
        self.letters.post(to, channel, encode(body), now_us)

    def _say_letter(self, neighbour: str, channel: str, message: UnicastMessage | HopAck) -> None:
        self.context.say(neighbour, channel, encode(message))

    # --------------------------------------------------------------------------------------- source

    def _open(self, channel: str, now_us: int) -> bool:
        """Get or create the ordering state of a channel; False if too many channels are in use."""
        self._use(now_us)
        desk = self.desks.pop(channel, None)
        if desk is None:
            if len(self.desks) >= MAX_CHANNELS and not self._forget_one():
                return False
            desk = SourceQueue(self.context.incarnation, now_us)
            if channel in self.positions:
                desk.heard_of(epoch_of(self.positions[channel]), now_us)
        self.desks[channel] = desk
        self._restless[channel] = True
        desk.used_us = now_us
        return True

    def _forget_one(self) -> bool:
        """Evict the least recently used channel in which nothing waits."""
        for channel in self.desks:
            if self._is_settled(channel):
                self._forget(channel)
                return True
        return False

    def _is_settled(self, channel: str) -> bool:
        sender = self.senders.get(channel)
        sequencer = self.office.sequencers.get(channel)
        is_sent = not self.desks[channel].pending and (sender is None or sender.is_done())
        is_busy = sequencer is not None and sequencer.is_busy
        return is_sent and not is_busy and not self.ordered.get(channel)

    def _tend_desk(self, channel: str, desk: SourceQueue, now_us: int) -> None:
        if desk.asks_us > now_us:
            return
        sender = self.senders.get(channel)
        events = desk.next_events()
        room = fitting(events) if sender is None else sender.fitting(events)
        ask = desk.ask(room, now_us)
        if ask is not None:
            self._post(self.office.head(channel, now_us), channel, ask, now_us)

    def _tend_sender(self, sender: StreamSender, now_us: int) -> None:
        super()._tend_sender(sender, now_us)
        desk = self.desks.get(sender.stream.channel)
        if desk is not None:
            self._restless[sender.stream.channel] = True
            desk.go_on(now_us)

    def _granted(self, channel: str, message: PositionGrant, now_us: int) -> None:
        held = message.held
        if not self.holdings.is_own(held):
            return
        granted = self.desks[channel].granted(message, now_us)
        for place, (event, came_us) in enumerate(granted, held.first):
            note = StreamHeader(NOTHING, event.deadline_us, stamp_of(held.epoch, place))
            aged = msgspec.structs.replace(
                event,
                age_us=event.age_us + now_us - came_us,
                source=self.context.name,
                incarnation=self.context.incarnation,
            )
            is_sent = self.send(aged, note, now_us)
            assert is_sent  # it requests no more positions than the window has room for
            self._take_in(BufferedEvent(aged, note, now_us), now_us)
        if granted:
            self._hand_out(channel, now_us)
            self._tend_sender(self.senders[channel], now_us)

    def _asked_what_is_held(
        self, origin: str, channel: str, message: PrepareEpoch, now_us: int
    ) -> None:
        desk = self.desks[channel]
        latest = desk.latest
        desk.heard_of(message.epoch, now_us)
        self.office.step_down(channel, message.epoch)
        contacts = self.office.contacts
        in_touch = tuple(each for each in message.lost if contacts.is_in_touch(each, now_us))
        answer = EpochPromise(
            message.epoch, latest, self.holdings.all(channel), message.lost, in_touch
        )
        self._post(origin, channel, answer, now_us)

    def _asked_whether(
        self, origin: str, channel: str, message: PositionQuery, now_us: int
    ) -> None:
        self.desks[channel].heard_of(message.latest, now_us)
        answer = self.holdings.whether(origin, channel, message.held)
        self._post(origin, channel, answer, now_us)

    # --------------------------------------------------------------------------------------- member

    def _answered(
        self, channel: str, message: HolderReply | PositionPending | PositionVoid, now_us: int
    ) -> None:
        member = self.ordered.get(channel)
        if member is None:
            return
        match message:
            case HolderReply():
                member.holders(message, self._of_left_out(channel, message, now_us))
            case PositionVoid():
                member.void(message)
        self._tend_member(channel, member, now_us)

    def _of_left_out(self, channel: str, message: HolderReply, now_us: int) -> list[PositionRange]:
        """Ranges that excluded sources may hold in the epoch of this node's last position."""
        low, contacts = message.low, self.office.contacts
        if low is None:
            return []
        streams = [self.streams.get((channel, each)) for each in message.left_out]
        keys = [each.key for each in streams if each is not None]
        return [
            PositionRange(epoch_of(low), low[3] + 1, MAX_PLACE, key.source, key.incarnation)
            for key in keys
            if contacts.is_in_touch(key.source, now_us)
        ]

    def _tend_member(self, channel: str, member: OrderedReceiver, now_us: int) -> None:
        contacts = self.office.contacts
        member.patience_us = self._patience_us(channel)
        if self.context.takes(channel):
            member.wait_less(lambda source: contacts.is_lost(source, now_us))
        self._hand_out(channel, now_us)
        question = member.question(self.desks[channel].latest, now_us)
        if question is not None:
            self._post(self.office.head(channel, now_us), channel, question, now_us)
        for held in member.questions(now_us):
            contacts.ask(held.source, now_us)
            yours = PositionQuery(held, self.desks[channel].latest)
            self._post(held.source, channel, yours, now_us)

    def takes(self, channel: str) -> bool:  # noqa: ARG002
        """Always True: an arrived event waits for its turn, and is not acknowledged before."""
        return True

    def _hear(
        self, neighbour: str, channel: str, state: StreamState, now_us: int
    ) -> SourceStream | None:
        stream = super()._hear(neighbour, channel, state, now_us)
        if stream is not None and stream.done + 1 < stream.base:
            self._hurry(stream)
        return stream

    def _hurry(self, stream: SourceStream) -> None:
        """Stop waiting before events below the base: their source has stopped waiting."""
        member = self.ordered.get(stream.channel)
        if member is None:
            return
        for number, kept in stream.events.items():
            if number < stream.base and kept.note.stamp is not None:
                member.hurry(kept.note.stamp)

    def _take_in(self, kept: BufferedEvent, now_us: int) -> None:
        """Queue an event until its turn; it is acknowledged then."""
        event, stamp = kept.event, kept.note.stamp
        assert stamp is not None
        channel = event.channel
        if not self._is_member(channel):
            self._let_go(kept, now_us)
            return
        member = self.ordered.get(channel)
        if member is None:
            position = self.positions.pop(channel, None)
            member = self.ordered[channel] = OrderedReceiver(self._patience_us(channel), position)
        if member.put(stamp, kept, now_us):
            stream = self.streams.get((channel, event.source))
            if stream is not None and event.number >= stream.base:
                stream.held_back[stamp] = event.number
            return
        self.context.lose(event, TOO_LATE)
        self._let_go(kept, now_us)
        desk = self.desks[channel]
        if epoch_of(stamp) < desk.latest and desk.is_to_tell(now_us):
            self._post(event.source, channel, CurrentEpoch(desk.latest), now_us)

    def _hand_out(self, channel: str, now_us: int) -> None:
        member = self.ordered.get(channel)
        if member is None:
            return
        member.held_us = NEVER_US
        while self.context.takes(channel) or member.is_in_a_hurry():
            found = member.ready(now_us, 1)
            if not found:
                return
            for kept in found:
                self._let_go(kept, now_us)
                if member.is_outdated(kept):
                    self.context.lose(kept.event, TOO_LATE)
                else:
                    self.deliver(kept.event, kept.at_us, now_us)
        member.hold(now_us)

    def _let_go(self, kept: BufferedEvent, now_us: int) -> None:
        """Release an event from its stream's `held_back`, so that it is acknowledged."""
        event, stamp = kept.event, kept.note.stamp
        assert stamp is not None
        sender = self.senders.get(event.channel)
        stream = self.streams.get((event.channel, event.source))
        if sender is not None and event.source == self.context.name:
            sender.stream.held_back.pop(stamp, None)
            if kept.at_us < now_us:  # otherwise the caller does so anyway
                self._tend_sender(sender, now_us)
        elif stream is not None and stream.held_back.pop(stamp, 0) and kept.at_us < now_us:
            self.relay.came(stream, now_us)
            self._plan(stream)

    def _patience_us(self, channel: str) -> int:
        """How long an event waits for earlier ones: half of its own source's timeout."""
        definition = self.context.definition(channel) or _UNDEFINED
        if definition.options.get(LAGGARDS) == "wait":
            return NEVER_US
        return patience_us(definition) // 2

    # --------------------------------------------------------------------------------------- timers

    def _tidy(self, now_us: int) -> None:
        for channel in list(self.ordered):
            if not self._is_member(channel):
                self._leave_order(channel, now_us)
        self.office.forget(now_us - FORGET_US, now_us)
        for channel, desk in list(self.desks.items()):
            is_used = channel in self.office.sequencers or now_us - desk.used_us < FORGET_US
            if not is_used and self._is_settled(channel):
                self._forget(channel)
        for channel in [each for each in self.positions if not self._is_member(each)]:
            del self.positions[channel]
        if not self.desks:
            self.office.contacts.clear()
        super()._tidy(now_us)

    def _leave_order(self, channel: str, now_us: int) -> None:
        """Release waiting events that no local client wants; the position is kept for a rejoin."""
        for kept in self.ordered[channel].leave():
            self._let_go(kept, now_us)

    def _forget(self, channel: str) -> None:
        """Drop an idle channel's ordering state, but keep the position if this node is a member."""
        del self.desks[channel]
        member = self.ordered.pop(channel, None)
        if member is not None and member.position is not None and self._is_member(channel):
            while len(self.positions) >= MAX_POSITIONS:
                del self.positions[next(iter(self.positions))]
            self.positions[channel] = member.position
        self.office.drop(channel)
