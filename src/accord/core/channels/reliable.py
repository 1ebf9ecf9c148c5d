"""Every event to every member that stays, in order from each source.

The node of a source numbers its events (`streams.sender`) and sends them along a tree of its
members (`trees`). Every hop takes care of itself (`streams.relay`), and all nodes of the tree keep
what somebody may still lack. What everybody has is forgotten everywhere. When links or nodes fail
the source chooses another tree; only the hops change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import msgspec

from accord.core.channels.members import Members
from accord.core.channels.multicast import factor_of
from accord.core.channels.streams.messages import (
    NOTHING,
    Ack,
    Have,
    Key,
    Message,
    Nack,
    Note,
    State,
    Sync,
    messages,
    notes,
)
from accord.core.channels.streams.relay import Relay
from accord.core.channels.streams.sender import PATIENCE_US, Sender
from accord.core.channels.streams.stream import NEVER, Kept, Stream
from accord.core.channels.template import ALL, IN_ORDER, ONCE, Context, Template
from accord.core.channels.trees.growing import Growing
from accord.core.overlay.registry import ChannelDefinition
from accord.core.overlay.signals import Carried
from accord.core.overlay.transit import EXPIRED

LAGGARDS: Final = "laggards"  # the option: `drop` them, or `wait`
PATIENCE: Final = "patience_ms"  # and how long they have
QUEUE_FULL: Final = "queue full"
LAGGARD: Final = "a member does not keep up"
FORGET_US: Final = 120_000_000  # twice as long as sources usually wait
_SWEEP_US: Final = 5_000_000
_STREAMS: Final = 16_384
_DIGITS: Final = 12
_UNDEFINED: Final = ChannelDefinition(name="#")


class Reliable(Template):
    promises: ClassVar[tuple[str, ...]] = (ONCE, ALL, IN_ORDER)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.members = Members(context.watch)
        self.growing = Growing(context.map)
        self.relay = Relay(context)
        self.senders: dict[str, Sender] = {}  # by channel
        self.streams: dict[tuple[str, str], Stream] = {}  # of others, by channel and source
        self.skipped = 0  # events this node was not waited for
        self.dropped = 0  # members that were not waited for
        self._serial = 0
        self._sweep_us = 0
        self._due_us = NEVER

    # ---------------------------------------------------------------------------------- template

    def published(
        self,
        event: Carried,
        destinations: list[str],  # noqa: ARG002
        definition: ChannelDefinition,
        now_us: int,
    ) -> None:
        self.send(event, Note(NOTHING, event.deadline_us), definition, now_us)

    def carried(self, neighbour: str, event: Carried, now_us: int) -> None:
        try:
            note = notes.decode(event.note)
        except msgspec.DecodeError:
            return
        stream = self._hear(neighbour, event.channel, note.state, now_us)
        if stream is None:
            return
        event = msgspec.structs.replace(event, deadline_us=note.deadline_us, note=b"")
        kept = Kept(event, note, now_us)
        is_new = stream.put(event.number, kept)
        self._hand_over(stream, now_us)
        if is_new:
            self.relay.spread(stream, event.number, kept, neighbour, now_us)
        self.relay.came(stream, now_us)
        self._plan(stream)

    def said(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        try:
            message = messages.decode(body)
        except msgspec.DecodeError:
            return
        self.heard(neighbour, channel, message, now_us)

    def advance(self, now_us: int) -> None:
        if self._due_us <= now_us:
            self._due_us = NEVER
            for sender in self.senders.values():
                if sender.stream.next_due_us() <= now_us:
                    self._tend_sender(sender, now_us)
                self._plan(sender.stream)
            for stream in self.streams.values():
                if stream.next_due_us() <= now_us:
                    self._tend_stream(stream, now_us)
                self._plan(stream)
        if 0 < self._sweep_us <= now_us:
            self._sweep(now_us)

    def next_due_us(self) -> int | None:
        due_us = min(self._due_us, self._sweep_us or NEVER)
        return None if due_us == NEVER else due_us

    def has_room(self, channel: str) -> bool:
        sender = self.senders.get(channel)
        return sender is None or sender.has_room()

    def unsettled(self, channel: str) -> list[int]:
        sender = self.senders.get(channel)
        return [] if sender is None else sender.waiting()

    def left(self) -> dict[str, int]:
        return {
            "trees": len(self.relay.trees),
            "grown": len(self.growing),
            "senders": len(self.senders),
            "streams": len(self.streams),
        }

    def check_invariants(self) -> None:
        self.members.check_invariants()
        self.growing.check_invariants()
        self.relay.trees.check_invariants()
        for channel, sender in self.senders.items():
            assert sender.stream.channel == channel
            sender.check_invariants()
        assert len(self.streams) <= _STREAMS
        for (channel, source), stream in self.streams.items():
            assert (channel, source) == (stream.channel, stream.key.source)
            stream.check_invariants()

    # ------------------------------------------------------------------------- what others build on

    def send(self, event: Carried, note: Note, definition: ChannelDefinition, now_us: int) -> bool:
        """To all members, from this node; False where there is no room for it."""
        channel = event.channel
        sender = self.senders.get(channel)
        if sender is None:
            sender = self.senders[channel] = self._new_sender(channel, definition, now_us)
        event = msgspec.structs.replace(
            event, source=self.context.name, incarnation=self.context.incarnation
        )
        if not sender.put(event, note, now_us):
            self.context.lose(event, QUEUE_FULL)
            return False
        self._use(now_us)
        self._tend_sender(sender, now_us)
        self._plan(sender.stream)
        return True

    def heard(self, neighbour: str, channel: str, message: Message, now_us: int) -> None:
        """A neighbour has said something of a stream or a tree."""
        match message:
            case Have(is_missing=True):
                self.relay.trees.lack(neighbour, message.digest)
            case Have():
                self.relay.trees.confirm(neighbour, message.digest, now_us)
            case Sync():
                self._synced(neighbour, channel, message, now_us)
            case Nack():
                stream = self._stream(channel, message.key)
                if stream is not None:
                    self.relay.asked(neighbour, stream, message, now_us)
                    self._plan(stream)
            case Ack():
                self._acknowledged(neighbour, channel, message, now_us)

    def takes(self, channel: str) -> bool:
        """Whether `arrived` is for more of a channel now."""
        return self.context.takes(channel)

    def arrived(self, kept: Kept, now_us: int) -> None:
        """The turn of an event has come, here."""
        self.deliver(kept.event, kept.at_us, now_us)

    def deliver(self, event: Carried, came_us: int, now_us: int) -> None:
        """Hand an event to local clients, if there are any and it is of use to them."""
        age_us = event.age_us + now_us - came_us
        aged = msgspec.structs.replace(event, age_us=age_us)
        if 0 < event.deadline_us <= age_us:
            self.context.lose(aged, EXPIRED)
        elif self.members.has(event.channel, self.context.name):
            self.context.deliver(aged)

    # ------------------------------------------------------------------------------------- streams

    def _new_sender(self, channel: str, definition: ChannelDefinition, now_us: int) -> Sender:
        self._serial += 1
        key = Key(self.context.name, self.context.incarnation, self._serial)
        return Sender(
            channel,
            key,
            patience_us=patience_us(definition),
            waits=definition.options.get(LAGGARDS) == "wait",
            now_us=now_us,
        )

    def _hear(self, neighbour: str, channel: str, state: State, now_us: int) -> Stream | None:
        """What the node before this one says of a stream; None where it is not the latest."""
        key = state.key
        if key.source == self.context.name or state.base < 1:
            return None
        known = self.streams.get((channel, key.source))
        if known is not None and known.key.is_after(key):
            return None
        if known is None or known.key != key:
            self._end_stream((channel, key.source), now_us)
            while len(self.streams) >= _STREAMS:
                self._end_stream(next(iter(self.streams)), now_us)
            known = Stream(channel, key, state.base, now_us)
            self.streams[channel, key.source] = known
        self._use(now_us)
        known.hear(state.base, state.top)
        self.relay.follow(neighbour, known, state, now_us)
        return known

    def _stream(self, channel: str, key: Key) -> Stream | None:
        if key.source == self.context.name:
            sender = self.senders.get(channel)
            stream = None if sender is None else sender.stream
        else:
            stream = self.streams.get((channel, key.source))
        return stream if stream is not None and stream.key == key else None

    def _hand_over(self, stream: Stream, now_us: int) -> None:
        """As much as this node takes: what it does not is not acknowledged."""
        before = stream.skipped
        while found := stream.ready(1 if self.takes(stream.channel) else 0):
            for kept in found:
                self.arrived(kept, now_us)
        stream.hold(now_us)
        self.skipped += stream.skipped - before

    def _end_stream(self, key: tuple[str, str], now_us: int) -> None:
        """Nothing more comes of it."""
        stream = self.streams.pop(key, None)
        if stream is not None:
            for kept in stream.ready():
                self.arrived(kept, now_us)

    def _synced(self, neighbour: str, channel: str, message: Sync, now_us: int) -> None:
        stream = self._hear(neighbour, channel, message.state, now_us)
        if stream is not None:
            self._hand_over(stream, now_us)
            stream.seek(now_us)
            stream.ack_us = now_us
            self.relay.tend(stream, now_us)
            self._plan(stream)

    def _acknowledged(self, neighbour: str, channel: str, message: Ack, now_us: int) -> None:
        stream = self._stream(channel, message.key)
        if stream is None or neighbour == stream.parent:
            return
        self.relay.acknowledged(neighbour, stream, message, now_us)
        sender = self.senders.get(channel)
        if sender is not None and sender.stream is stream:
            self._tend_sender(sender, now_us)
            self.relay.watch_over(stream, now_us, is_other=False)
        self._plan(stream)

    # ---------------------------------------------------------------------------------- what is due

    def _tend_stream(self, stream: Stream, now_us: int) -> None:
        if stream.held_us <= now_us:
            before = stream.through
            self._hand_over(stream, now_us)
            if stream.through > before:
                stream.ack_us = now_us
        self.relay.tend(stream, now_us)

    def _tend_sender(self, sender: Sender, now_us: int) -> None:
        """Keep to the members and the tree, and send what may be sent."""
        stream = sender.stream
        own = self.context.name
        members = tuple(each for each in self.members.of(stream.channel) if each != own)
        sender.set_members(members, now_us)
        for member in sender.laggards(now_us):
            if not sender.waits or not self.context.map.is_reachable(own, member):
                self.dropped += 1
                for event in sender.drop(member, now_us):
                    self.context.lose(event, LAGGARD)
        self._choose_tree(sender, members, now_us)
        for number in sender.take(now_us):
            self.relay.spread(stream, number, stream.events[number], "", now_us)
        if not members:
            sender.advance(now_us)
        self.relay.tend(stream, now_us)

    def _choose_tree(self, sender: Sender, members: tuple[str, ...], now_us: int) -> None:
        stream = sender.stream
        own = self.context.name
        factor = factor_of(self.context.definition(stream.channel) or _UNDEFINED)
        wanted = (*self._worth_a_branch(sender, members), own)
        grown = self.growing.tree(own, wanted, factor, now_us)
        self.relay.trees.learn(grown.tree, grown.digest, now_us)
        if grown.digest != stream.digest:
            stream.digest = grown.digest
            stream.turn += 1
            stream.paces.clear()
            self.relay.watch_over(stream, now_us, is_other=True)

    def _worth_a_branch(self, sender: Sender, members: tuple[str, ...]) -> Iterator[str]:
        """All members but those that are given up and can't be reached."""
        for member in members:
            is_dropped = sender.members[member].is_dropped
            if not is_dropped or self.context.map.is_reachable(self.context.name, member):
                yield member

    def _sweep(self, now_us: int) -> None:
        """Forget what is not used any more."""
        for channel, sender in list(self.senders.items()):
            self._tend_sender(sender, now_us)
            self._plan(sender.stream)
            if sender.is_idle(now_us):
                del self.senders[channel]
        for key, stream in list(self.streams.items()):
            if now_us - stream.heard_us >= FORGET_US:
                self._end_stream(key, now_us)
        self.relay.trees.forget(now_us)
        self.growing.forget(now_us)
        self._sweep_us = now_us + _SWEEP_US if any(self.left().values()) else 0

    def _plan(self, stream: Stream) -> None:
        self._due_us = min(self._due_us, stream.next_due_us())

    def _use(self, now_us: int) -> None:
        self._sweep_us = self._sweep_us or now_us + _SWEEP_US


def patience_us(definition: ChannelDefinition) -> int:
    """How long somebody that does not advance is waited for, unless the channel waits for all."""
    given = definition.options.get(PATIENCE, "")
    is_number = given.isdecimal() and len(given) < _DIGITS
    return int(given) * 1_000 if is_number and int(given) else PATIENCE_US
