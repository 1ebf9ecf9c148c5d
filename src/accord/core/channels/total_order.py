"""Reliable, and the same order everywhere.

A source asks the channel's sequencer, at the rendezvous, for places in the order (`ordering`), and
sends its events with them along its own tree as `reliable` does; members hand them over by place.
An event has one place for ever, and no member goes back in the order: so it is the same everywhere,
whatever fails. When the sequencer fails the next rendezvous takes over with a later epoch, after it
has found out which places were taken. Parts of a divided overlay go on with sequencers of their
own; what one part had not yet got of the other when it went on without it, it does not get.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from accord.core.channels.letters import Got, Letter, Letters
from accord.core.channels.ordering.desk import Desk
from accord.core.channels.ordering.member import Member
from accord.core.channels.ordering.sequencer import COLLECT_US, Sequencer
from accord.core.channels.ordering.stamps import (
    Ask,
    Between,
    Body,
    Collect,
    Collected,
    Epoch,
    Grant,
    Held,
    Holders,
    Void,
    Yours,
    bodies,
    encode,
    epoch_of,
    stamp_of,
)
from accord.core.channels.reliable import FORGET_US, QUEUE_FULL, Reliable
from accord.core.channels.rendezvous import Rendezvous
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
        self.rendezvous = Rendezvous(context.name, context.map)
        self.letters = Letters(
            context.name, context.incarnation, context.map, self._say_letter, self._letter
        )
        self.desks: dict[str, Desk] = {}
        self.ordered: dict[str, Member] = {}
        self.sequencers: dict[str, Sequencer] = {}
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
        if not desk.has_room():
            self.context.lose(event, QUEUE_FULL)
            return
        desk.put(event, now_us)
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
        self._desk(channel, now_us).heard_of(epoch_of(stamp))
        if not self.members.has(channel, self.context.name):
            return
        member = self.ordered.get(channel)
        if member is None:
            member = self.ordered[channel] = Member(now_us)
        if not member.put(stamp, kept, now_us):
            self.late += 1
            self.context.lose(kept.event, TOO_LATE)
        self._hand_out(member, now_us)

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self.letters.advance(now_us)
        for channel, sequencer in list(self.sequencers.items()):
            if sequencer.waiting and sequencer.asked_us + COLLECT_US <= now_us:
                self._collect(channel, sequencer, now_us)
        for channel, desk in list(self.desks.items()):
            self._tend_desk(channel, desk, now_us)
        for channel, member in list(self.ordered.items()):
            self._tend_member(channel, member, now_us)

    def next_due_us(self) -> int | None:
        dues = [super().next_due_us(), self.letters.next_due_us()]
        found = [due for due in dues if due is not None]
        found += [each.asks_us for each in self.desks.values()]
        found += [each.next_due_us() for each in self.ordered.values()]
        found += [each.asked_us + COLLECT_US for each in self.sequencers.values() if each.waiting]
        due_us = min(found, default=NEVER)
        return None if due_us == NEVER else due_us

    def has_room(self, channel: str) -> bool:
        desk = self.desks.get(channel)
        return super().has_room(channel) and (desk is None or desk.has_room())

    def left(self) -> dict[str, int]:
        return {
            **super().left(),
            "letters": len(self.letters),
            "desks": len(self.desks),
            "ordered": len(self.ordered),
            "sequencers": len(self.sequencers),
        }

    def check_invariants(self) -> None:
        super().check_invariants()
        self.letters.check_invariants()
        for desk in self.desks.values():
            desk.check_invariants()
        for member in self.ordered.values():
            member.check_invariants()
        for sequencer in self.sequencers.values():
            sequencer.check_invariants()

    # ------------------------------------------------------------------------------------ letters

    def _letter(self, origin: str, channel: str, body: bytes, now_us: int) -> None:
        try:
            message = bodies.decode(body)
        except msgspec.DecodeError:
            return
        self._use(now_us)
        match message:
            case Ask():
                self._asked_for_places(origin, channel, message, now_us)
            case Grant():
                self._granted(channel, message, now_us)
            case Collect():
                self._asked_what_is_held(origin, channel, message, now_us)
            case Collected():
                self._collected(origin, channel, message, now_us)
            case Between():
                self._asked_who(origin, channel, message, now_us)
            case Yours():
                self._asked_whether(origin, channel, message, now_us)
            case Holders() | Void():
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
            desk = self.desks[channel] = Desk(self.context.incarnation, now_us)
        desk.used_us = now_us
        return desk

    def _tend_desk(self, channel: str, desk: Desk, now_us: int) -> None:
        if desk.asks_us <= now_us:
            self._post(self.rendezvous.of(channel), channel, desk.ask(now_us), now_us)

    def _granted(self, channel: str, message: Grant, now_us: int) -> None:
        desk = self._desk(channel, now_us)
        held = message.held
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
        desk.heard_of(message.epoch)
        sequencer = self.sequencers.get(channel)
        if (
            sequencer is not None
            and sequencer.epoch < message.epoch
            and origin != self.context.name
        ):
            del self.sequencers[channel]
        self._post(origin, channel, Collected(message.epoch, latest, tuple(desk.held)), now_us)

    def _asked_whether(self, origin: str, channel: str, message: Yours, now_us: int) -> None:
        """Silence is the answer while it may come."""
        desk = self._desk(channel, now_us)
        held = message.held
        is_here = held.source == self.context.name and held.incarnation == self.context.incarnation
        if is_here and (desk.is_asking() or self._is_coming(origin, channel, held)):
            return
        self._post(origin, channel, Void(held), now_us)

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

    # ------------------------------------------------------------------------------- as a sequencer

    def _sequencer(self, channel: str, latest: Epoch, now_us: int) -> Sequencer | None:
        """If this is the rendezvous, and has taken over."""
        if self.rendezvous.of(channel) != self.context.name:
            return None
        sequencer = self.sequencers.get(channel)
        if sequencer is None:
            sequencer = Sequencer(self.context.name, self.context.incarnation, now_us)
            self.sequencers[channel] = sequencer
        sequencer.used_us = now_us
        if sequencer.epoch[0] == 0 or latest > sequencer.epoch:
            sequencer.begin(latest, self.rendezvous.nodes())
            self._collect(channel, sequencer, now_us)
        return sequencer if sequencer.is_ready else None

    def _collect(self, channel: str, sequencer: Sequencer, now_us: int) -> None:
        sequencer.keep_waiting_for(self.rendezvous.nodes())
        sequencer.asked_us = now_us
        for node in list(sequencer.waiting):
            self._post(node, channel, Collect(sequencer.epoch), now_us)

    def _collected(self, origin: str, channel: str, message: Collected, now_us: int) -> None:
        sequencer = self.sequencers.get(channel)
        if sequencer is None or sequencer.collected(origin, message):
            return
        if self.rendezvous.of(channel) == self.context.name:
            sequencer.begin(message.latest, self.rendezvous.nodes())
            self._collect(channel, sequencer, now_us)
        else:
            del self.sequencers[channel]

    def _asked_for_places(self, origin: str, channel: str, message: Ask, now_us: int) -> None:
        sequencer = self._sequencer(channel, message.latest, now_us)
        if sequencer is not None:
            grant = sequencer.grant(origin, message, now_us)
            self._post(origin, channel, grant, now_us)

    def _asked_who(self, origin: str, channel: str, message: Between, now_us: int) -> None:
        sequencer = self._sequencer(channel, epoch_of(message.high), now_us)
        if sequencer is not None:
            self._post(origin, channel, sequencer.holders(message), now_us)

    # ---------------------------------------------------------------------------------- as a member

    def _answered(self, channel: str, message: Holders | Void, now_us: int) -> None:
        member = self.ordered.get(channel)
        if member is None:
            return
        if isinstance(message, Void):
            member.void(message)
        else:
            member.holders(message)
        self._tend_member(channel, member, now_us)

    def _tend_member(self, channel: str, member: Member, now_us: int) -> None:
        if member.gap is not None:
            member.wait_less(self.context.map.distances(self.context.name).costs, now_us)
            self._hand_out(member, now_us)
        question = member.question(now_us)
        if question is not None:
            self._post(self.rendezvous.of(channel), channel, question, now_us)
        for held in member.questions(now_us):
            self._post(held.source, channel, Yours(held), now_us)

    def _hand_out(self, member: Member, now_us: int) -> None:
        for kept in member.ready(now_us):
            self.deliver(kept.event, kept.at_us, now_us)

    def _sweep(self, now_us: int) -> None:
        for channel, member in list(self.ordered.items()):
            is_member = self.members.has(channel, self.context.name)
            if not is_member or (member.is_empty() and now_us - member.used_us >= FORGET_US):
                del self.ordered[channel]
        for channel, desk in list(self.desks.items()):
            if not desk.pending and now_us - desk.used_us >= FORGET_US:
                del self.desks[channel]
        for channel, sequencer in list(self.sequencers.items()):
            if now_us - sequencer.used_us >= FORGET_US:
                del self.sequencers[channel]
        super()._sweep(now_us)
