"""Reliable, and the same order everywhere.

A source asks the channel's sequencer, at the rendezvous, for places in the order (`ordering`), and
sends its events with them along its own tree as `reliable` does; members hand them over by place.
An event has one place for ever, and no member goes back in the order: so it is the same everywhere,
whatever fails. When the sequencer is lost the next rendezvous takes over with a later epoch, after
it has found out which places were taken. Parts of a divided overlay go on with sequencers of their
own; what one part had not yet got of the other when it went on without it, it does not get.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from accord.core.channels.letters import Got, Letter, Letters
from accord.core.channels.ordering.desk import Desk
from accord.core.channels.ordering.member import Member
from accord.core.channels.ordering.office import MOST_CHANNELS, Office
from accord.core.channels.ordering.stamps import (
    Ask,
    Between,
    Body,
    Collect,
    Collected,
    Coming,
    Grant,
    Held,
    Holders,
    Reign,
    Void,
    Yours,
    bodies,
    encode,
    epoch_of,
    is_sane,
    stamp_of,
)
from accord.core.channels.reliable import FORGET_US, QUEUE_FULL, Reliable
from accord.core.channels.streams.messages import NOTHING, Message, Note
from accord.core.channels.streams.stream import NEVER, Kept
from accord.core.channels.template import SAME_ORDER, Context
from accord.core.overlay.registry import ChannelDefinition
from accord.core.overlay.signals import Carried

TOO_LATE: Final = "others were before it"
_UNDEFINED: Final = ChannelDefinition(name="#")
_messages: Final[msgspec.msgpack.Decoder[Message | Letter | Got]] = msgspec.msgpack.Decoder(
    Message | Letter | Got
)


class TotalOrder(Reliable):
    promises: ClassVar[tuple[str, ...]] = (*Reliable.promises, SAME_ORDER)
    delivers_own: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.office = Office(context, self._desk, self._post)
        self.letters = Letters(
            context.name, context.incarnation, context.map, self._say_letter, self._letter
        )
        self.desks: dict[str, Desk] = {}
        self.ordered: dict[str, Member] = {}
        self.late = 0  # events that came too late here

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
        desk = self._desk(event.channel, now_us)
        if not desk.put(event, now_us):
            self.context.lose(event, QUEUE_FULL)
            return
        self._tend_desk(event.channel, desk, now_us)

    def said(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        try:
            message = _messages.decode(body)
        except msgspec.DecodeError:
            return
        match message:
            case Letter():
                self.letters.came(neighbour, channel, message, now_us)
            case Got():
                self.letters.got(message)
            case _:
                self.heard(neighbour, channel, message, now_us)

    def arrived(self, kept: Kept, now_us: int) -> None:
        channel = kept.event.channel
        stamp = kept.note.stamp
        if stamp is None:
            return
        self.office.contacts.hear(kept.event.source)
        desk = self._desk(channel, now_us)
        desk.heard_of(epoch_of(stamp), now_us)
        if not self.members.has(channel, self.context.name):
            return
        member = self.ordered.get(channel)
        if member is None:
            member = self.ordered[channel] = Member()
        if not member.put(stamp, kept):
            self._lose(kept)
            if epoch_of(stamp) < desk.latest and desk.is_to_tell(now_us):
                self._post(kept.event.source, channel, Reign(desk.latest), now_us)
        self._hand_out(channel, member, now_us)

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self.letters.advance(now_us)
        self.office.advance(now_us)
        for channel, desk in list(self.desks.items()):
            if desk.asks_us <= now_us:
                self._tend_desk(channel, desk, now_us)
        for channel, member in list(self.ordered.items()):
            if member.gap is not None or member.held_us <= now_us:
                self._tend_member(channel, member, now_us)

    def next_due_us(self) -> int | None:
        due_us = super().next_due_us()
        if not self.desks and not len(self.letters):
            return due_us  # there is nothing else
        dues = [due_us, self.letters.next_due_us(), self.office.next_due_us()]
        found = [due for due in dues if due is not None]
        found += [each.asks_us for each in self.desks.values()]
        found += [each.next_due_us() for each in self.ordered.values()]
        due_us = min(found)
        return None if due_us == NEVER else due_us

    def has_room(self, channel: str) -> bool:
        desk = self.desks.get(channel)
        return super().has_room(channel) and (desk is None or desk.has_room())

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
        assert len(self.desks) <= MOST_CHANNELS
        assert all(channel in self.desks for channel in self.ordered)
        assert all(channel in self.desks for channel in self.office.sequencers)

    # ------------------------------------------------------------------------------------ letters

    def _letter(self, origin: str, channel: str, body: bytes, now_us: int) -> None:
        try:
            message = bodies.decode(body)
        except msgspec.DecodeError:
            return
        if not is_sane(message):
            return
        self._use(now_us)
        self.office.contacts.hear(origin)
        match message:
            case Ask():
                self.office.asked_for_places(origin, channel, message, now_us)
            case Grant():
                self._granted(channel, message, now_us)
            case Collect():
                self._asked_what_is_held(origin, channel, message, now_us)
            case Collected():
                self.office.collected(origin, channel, message, now_us)
            case Reign():
                self._desk(channel, now_us).heard_of(message.epoch, now_us)
            case Between():
                self.office.asked_who(origin, channel, message, now_us)
            case Yours():
                self._asked_whether(origin, channel, message, now_us)
            case Holders() | Coming() | Void():
                self._answered(channel, message, now_us)

    def _post(self, to: str, channel: str, body: Body, now_us: int) -> None:
        self.letters.post(to, channel, encode(body), now_us)

    def _say_letter(self, neighbour: str, channel: str, message: Letter | Got) -> None:
        self.context.say(neighbour, channel, encode(message))

    # ---------------------------------------------------------------------------------- as a source

    def _desk(self, channel: str, now_us: int) -> Desk:
        self._use(now_us)
        desk = self.desks.get(channel)
        if desk is None:
            while len(self.desks) >= MOST_CHANNELS:
                self._forget(next(iter(self.desks)))
            desk = self.desks[channel] = Desk(self.context.incarnation, now_us)
        desk.used_us = now_us
        return desk

    def _tend_desk(self, channel: str, desk: Desk, now_us: int) -> None:
        if desk.asks_us <= now_us:
            head = self.office.head(channel, now_us)
            self._post(head, channel, desk.ask(now_us), now_us)

    def _granted(self, channel: str, message: Grant, now_us: int) -> None:
        desk = self._desk(channel, now_us)
        held = message.held
        if not self._is_ours(held):
            return
        definition = self.context.definition(channel) or _UNDEFINED
        for place, (event, came_us) in enumerate(desk.granted(message, now_us), held.first):
            note = Note(NOTHING, event.deadline_us, stamp_of(held.epoch, place))
            aged = msgspec.structs.replace(event, age_us=event.age_us + now_us - came_us)
            own = msgspec.structs.replace(
                aged, source=self.context.name, incarnation=self.context.incarnation
            )
            if self.send(aged, note, definition, now_us):
                self.arrived(Kept(own, note, now_us), now_us)
        self._tend_desk(channel, desk, now_us)

    def _asked_what_is_held(self, origin: str, channel: str, message: Collect, now_us: int) -> None:
        desk = self._desk(channel, now_us)
        latest = desk.latest
        desk.heard_of(message.epoch, now_us)
        self.office.step_down(channel, message.epoch)
        self._post(origin, channel, Collected(message.epoch, latest, tuple(desk.held)), now_us)

    def _asked_whether(self, origin: str, channel: str, message: Yours, now_us: int) -> None:
        desk = self._desk(channel, now_us)
        held = message.held
        is_coming = desk.may_take(held) or self._is_coming(origin, channel, held)
        answer = Coming(held) if self._is_ours(held) and is_coming else Void(held)
        self._post(origin, channel, answer, now_us)

    def _is_ours(self, held: Held) -> bool:
        own = (self.context.name, self.context.incarnation)
        return (held.source, held.incarnation) == own

    def _is_coming(self, origin: str, channel: str, held: Held) -> bool:
        """Whether some of these places is on its way to that member."""
        sender = self.senders.get(channel)
        if sender is None:
            return False
        progress = sender.members.get(origin)
        if progress is None or progress.is_dropped:
            return False
        stamps = dict.fromkeys(held.stamps(), True)
        return any(note.stamp in stamps for note in sender.notes_after(progress.acked))

    # ---------------------------------------------------------------------------------- as a member

    def _answered(self, channel: str, message: Holders | Coming | Void, now_us: int) -> None:
        member = self.ordered.get(channel)
        if member is None:
            return
        match message:
            case Holders():
                member.holders(message)
            case Void():
                member.void(message)
        self._tend_member(channel, member, now_us)

    def _tend_member(self, channel: str, member: Member, now_us: int) -> None:
        contacts = self.office.contacts
        if member.gap is not None and self.context.takes(channel):
            member.wait_less(lambda source: contacts.is_lost(source, now_us), now_us)
        self._hand_out(channel, member, now_us)
        question = member.question(self.desks[channel].latest, now_us)
        if question is not None:
            self._post(self.office.head(channel, now_us), channel, question, now_us)
        for held in member.questions(now_us):
            contacts.ask(held.source, now_us)
            self._post(held.source, channel, Yours(held), now_us)

    def _hand_out(self, channel: str, member: Member, now_us: int) -> None:
        member.held_us = NEVER
        while self.context.takes(channel):
            found = member.ready(now_us, 1)
            if not found:
                return
            for kept in found:
                if member.is_outdated(kept):
                    self._lose(kept)
                else:
                    self.deliver(kept.event, kept.at_us, now_us)
        member.hold(now_us)

    def _lose(self, kept: Kept) -> None:
        self.late += 1
        self.context.lose(kept.event, TOO_LATE)

    # ---------------------------------------------------------------------------------- what is due

    def _sweep(self, now_us: int) -> None:
        for channel in list(self.ordered):
            if not self.members.has(channel, self.context.name):
                del self.ordered[channel]
        self.office.forget(now_us - FORGET_US, now_us)
        for channel, desk in list(self.desks.items()):
            member = self.ordered.get(channel)
            is_empty = not desk.pending and (member is None or member.is_empty())
            is_used = channel in self.office.sequencers or now_us - desk.used_us < FORGET_US
            if is_empty and not is_used:
                self._forget(channel)
        if not self.desks:
            self.office.contacts.clear()
        super()._sweep(now_us)

    def _forget(self, channel: str) -> None:
        """All that is known of an order."""
        for event, _ in self.desks.pop(channel).pending:
            self.context.lose(event, QUEUE_FULL)
        self.ordered.pop(channel, None)
        self.office.sequencers.pop(channel, None)
