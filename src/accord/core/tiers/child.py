"""A secondary node: it has parents instead of a link-state map.

Its active parent (`parent_selection`) sends it the events its clients want, and receives those they
publish; the standby parent holds the same events in custody, so that it can take over. Both know
the child's interests. Events from above are put in order and delivered once, whichever parent sent
them; duplicates are recognised by event ID. Events for above are kept until the active parent
confirms that all members have them, and go to the next active parent otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.channels.history.messages import HistoryRequest
from accord.core.model.units import NEVER_US
from accord.core.overlay.channel_directory import ChannelTraits
from accord.core.overlay.interests import PredicateText
from accord.core.overlay.signalling import TemplateMessage, TransitEvent
from accord.core.overlay.status import TierStatus
from accord.core.overlay.tier_links import TierLink, TierLinks
from accord.core.predicates.predicate import Predicate
from accord.core.tiers.channel_cache import ChannelCache
from accord.core.tiers.custody import SeenEvents
from accord.core.tiers.history_via_parent import HistoryViaParent
from accord.core.tiers.messages import (
    NUMBERS,
    ChannelLookupReply,
    ChildHeartbeat,
    DownstreamEvent,
    EventId,
    FromChild,
    InterestLog,
    Inventory,
    InventoryReply,
    ParentHeartbeat,
    PeerListUpdate,
    RelayedHistoryReply,
    RelayedHistoryRequest,
    TierOptions,
    UpstreamEvent,
    event_id_of,
)
from accord.core.tiers.parent_selection import ParentSelector, ParentState
from accord.core.tiers.sliding_windows import InboundWindow, OutboundWindow

NO_ROOM: Final = "parent buffer full"
_OVERHEAD: Final = 200
_LOSSES: Final = 1_000  # losses held for the driver
# Assumed until the definition of the channel is known.
_UNSURE: Final = ChannelTraits(is_ordered=True, can_be_full=True, goes_up=True)


class Child:
    """State machine of a secondary node.

    `sends` are control messages for parents, `deliveries` events for local clients. The `on_bound`
    callbacks run when results of `bound` may have changed.
    """

    def __init__(self, name: str, incarnation: int, options: TierOptions) -> None:
        self.name = name
        self.sends: list[tuple[str, FromChild]] = []
        self.ready: list[str] = []
        self.deliveries: list[TransitEvent] = []
        self.drops: list[tuple[TransitEvent, str]] = []
        self.channel_cache = ChannelCache(options)
        self.selector = ParentSelector(options, self._start_parent_epoch)
        self.tiers = TierLinks()  # links to the parents for services
        self.tiers.send = lambda parent, said: self.sends.append((parent, said))
        self.on_bound: list[Callable[[], None]] = []
        self._delivered = 0
        self._again = 0  # duplicates received
        self._lost: dict[str, int] = {}
        self._incarnation = incarnation
        self._names = 0  # event IDs assigned to local events
        # Version of the interests at the start of this parent epoch. Nothing is sent up until the
        # active parent has it: echoes for local clients would be missed.
        self._epoch_version = 0
        self._options = options
        self._log = InterestLog(incarnation)
        self.history = HistoryViaParent(name, incarnation, self._log, self._recall)
        self._inflow: InboundWindow[TransitEvent] = InboundWindow()
        self._up: OutboundWindow[tuple[TransitEvent, bool, int]] = (
            OutboundWindow()
        )  # is_echoed, time of arrival
        self._undecided: deque[tuple[TransitEvent, int]] = deque()  # with time of arrival
        self._undecided_bytes = 0
        self._seen = SeenEvents()
        self._roster = -1  # last peer list version reported to the active parent

    # ------------------------------------------------------------------------------ for its clients

    def add_interest(
        self, pattern: str, condition: PredicateText, predicate: Predicate | None
    ) -> None:
        self._log.interests.add(pattern, condition, predicate)

    def remove_interest(self, pattern: str, condition: PredicateText) -> None:
        self._log.interests.remove(pattern, condition)

    def bound(self, channel: str, now_us: int) -> ChannelTraits:
        """Return what a channel requires of local publishers."""
        found = self.channel_cache.bound(channel)
        if found is not None:
            return found
        self.channel_cache.request(channel, now_us)
        return _UNSURE._replace(is_persistent=self.channel_cache.is_remembered(channel))

    def interests_aggregated(self) -> int:
        """Number of client filters announced in aggregated form, for lack of space."""
        return self._log.interests.count_aggregated()

    def new_event_id(self) -> EventId:
        """Return a new event ID, unique over all incarnations and increasing."""
        self._names += 1
        return self.name, self._incarnation * NUMBERS + self._names

    def publish(self, event: TransitEvent, now_us: int) -> None:
        """Send up an event that local clients have already; it may have an event ID."""
        named = event if event.child else self._named(event)
        self._send_up(named, now_us, is_echoed=False)

    def submit(self, event: TransitEvent, now_us: int) -> EventId | None:
        """Send an event that local clients get at the time its template decides.

        Returns the event ID if it is assigned at once.
        """
        event = msgspec.structs.replace(event, source=self.name)
        bound = self.channel_cache.bound(event.channel)
        if not self._fits(2):
            self._drop(event)
        elif self._undecided or bound is None:
            self._undecided.append((event, now_us))
            self._undecided_bytes += _size(event)
            self.channel_cache.request(event.channel, now_us)
        else:
            return self._decided(event, now_us, is_ordered=bound.is_ordered)
        return None

    def send_feedback(self, event: TransitEvent, now_us: int) -> bool:
        """Send feedback to the source of an event; False if there is no room."""
        if not self._fits(1):
            return False
        self._put_up(self._named(event), now_us)
        return True

    def has_room(self, channel: str) -> bool:
        """Whether local clients may publish more to the channel now."""
        if self._undecided:
            return False
        if not self.channel_cache.keeps_all(channel):
            return True  # its events are shed if there is no room
        return self._fits(1)

    # ------------------------------------------------------------------------------- for its driver

    def link_up(self, parent: str, rank: int, now_us: int) -> None:
        """Add a link to a parent; the lowest rank is preferred."""
        self.selector.link_up(parent, rank, now_us)
        self._take_leave()
        self._look_at_links(now_us)

    def link_down(self, parent: str, now_us: int) -> None:
        self.selector.link_down(parent, now_us)
        self._take_leave()
        self._look_at_links(now_us)

    def receive(self, parent: str, message: object, now_us: int) -> None:
        known = self.selector.parents.get(parent)
        if known is None or not known.is_linked:
            return
        known.received_us = now_us
        match message:
            case ParentHeartbeat():
                self._served(known, message, now_us)
            case DownstreamEvent():
                self._came(known, message, now_us)
            case Inventory():
                self._offered(known, message, now_us)
            case RelayedHistoryReply():
                self.history.on_reply(message, now_us)
            case PeerListUpdate() if (
                parent == self.selector.active
                and message.parent_epoch == self.selector.parent_epoch
            ):
                self.history.on_peer_list(message)
            case ChannelLookupReply() if parent == self.selector.active:
                self.channel_cache.on_reply(message, now_us)
                self._decide(now_us)
            case TemplateMessage():
                self.tiers.on_message(parent, message, now_us)

    def take(self, parent: str, bytes_wanted: int, now_us: int) -> list[UpstreamEvent]:
        """Events to send to a parent next."""
        active = self.selector.met()
        if active is None or parent != active.name or active.version < self._epoch_version:
            return []
        taken = self._up.take(bytes_wanted, active.through)
        return [
            UpstreamEvent(
                self._incarnation,
                number,
                msgspec.structs.replace(event, age_us=event.age_us + now_us - since_us),
                is_echoed,
            )
            for number, (event, is_echoed, since_us) in taken
        ]

    def advance(self, now_us: int) -> None:
        self._log.update(now_us)
        self.selector.choose(now_us, self._seen, self._log.version)
        self._take_leave()
        self._look_at_links(now_us)
        active = self.selector.met()
        if active is not None and self._roster < 0 and self.history.client.replays:
            active.attend_by(now_us)  # request the peer list
        for known in self.selector.used():
            self._send_interests(known, now_us)
            if known.attend_us <= now_us:
                self._attend(known, now_us)
        self._decide(now_us)
        ask = None if active is None else self.channel_cache.ask(now_us)
        if active is not None and ask is not None:
            self.sends.append((active.name, ask))
        self.history.advance(now_us)

    def next_due_us(self) -> int | None:
        if self._log.interests.has_changed():
            return 0
        due_us = min(self.selector.next_due_us(), self._log.interests.next_due_us() or NEVER_US)
        for known in self.selector.used():
            if self._has_delta_for(known):
                due_us = min(due_us, known.delta_sent_us + self._again_us(known))
        if self.selector.met() is not None:
            due_us = min(due_us, self.channel_cache.next_due_us())
        if self._undecided:
            due_us = min(due_us, self._undecided[0][1] + self._options.decide_us)
        recall_us = self.history.next_due_us()
        due_us = due_us if recall_us is None else min(due_us, recall_us)
        return None if due_us == NEVER_US else due_us

    def leave(self) -> None:
        """Notify the parents that this node leaves."""
        self.selector.left += [each.name for each in self.selector.used()]
        self._take_leave()

    def status(self) -> TierStatus:
        return TierStatus(
            parents=tuple(self.selector.status()),
            switches=self.selector.switches,
            waiting=len(self._up) + len(self._undecided),
            waiting_bytes=self._up.bytes + self._undecided_bytes,
            delivered=self._delivered,
            again=self._again,
            lost=dict(self._lost),
        )

    def check_invariants(self) -> None:
        self._log.check_invariants()
        self._up.check_invariants()
        self._inflow.check_invariants()
        self._seen.check_invariants()
        self.channel_cache.check_invariants()
        self.selector.check_invariants()
        self.history.check_invariants()
        assert not self._inflow.first()
        assert len(self._undecided) <= 2 * self._options.up_events
        assert self._undecided_bytes == sum(_size(event) for event, _ in self._undecided)

    # ------------------------------------------------------------------------------------- parents

    def _start_parent_epoch(self, now_us: int) -> None:
        self._inflow = InboundWindow()
        self._epoch_version = self._log.version
        self.history.start_parent_epoch(now_us)

    def _take_leave(self) -> None:
        for name in self.selector.left:
            if self.selector.parents[name].is_linked:
                left = ChildHeartbeat(
                    self._incarnation, self.selector.parent_epoch, is_active=False, is_leaving=True
                )
                self.sends.append((name, left))
        self.selector.left.clear()

    def _attend(self, parent: ParentState, now_us: int) -> None:
        is_active = parent.name == self.selector.active
        again_us = self._again_us(parent)
        parent.attend_us = now_us + self._options.pulse_us
        attend = ChildHeartbeat(
            self._incarnation,
            self.selector.parent_epoch,
            is_active,
            now_us,
            self._inflow.through if is_active else 0,
            self._inflow.missing(again_us, now_us) if is_active else (),
            self._up.base,
            self._up.sent,
            has_other=len(self.selector.used()) > 1,
            takes_us=_way_us(parent),
            roster=self.history.wanted() if is_active else -1,
        )
        if is_active:
            self._roster = attend.roster
        self.sends.append((parent.name, attend))
        ask_us = self._inflow.ask_us(again_us) if is_active else None
        if ask_us is not None:
            parent.attend_by(ask_us)

    def _again_us(self, parent: ParentState) -> int:
        return max(self._options.again_us, int(2 * parent.round_trip.mean_us))

    # --------------------------------------------------------------------------- received messages

    def _served(self, parent: ParentState, message: ParentHeartbeat, now_us: int) -> None:
        life = parent.session
        if message.child != self._incarnation or not self.selector.served(parent, message, now_us):
            return
        if parent.session != life:
            self.tiers.drop(parent.name)  # the parent has lost the state of its services
            parent.floor = self._log.floor
        self._look_at_links(now_us)
        if message.version != parent.version:
            parent.version = message.version
            parent.delta_sent_us = -NEVER_US
            self._log.acknowledge_through(
                min(each.version for each in (parent, *self.selector.used()))
            )
        if (
            parent.name == self.selector.active
            and message.parent_epoch == self.selector.parent_epoch
        ):
            self._flows(parent, message, now_us)

    def _flows(self, parent: ParentState, message: ParentHeartbeat, now_us: int) -> None:
        """Apply what the active parent reports of both windows."""
        self._inflow.on_last_sent(message.top)
        self.history.served(message)
        if self._inflow.lacks():
            parent.attend_by(now_us + self._options.soon_us)
        if parent.parent_epoch != self.selector.parent_epoch:
            parent.parent_epoch = self.selector.parent_epoch
            parent.through = message.through
            self._up.begin_anew(message.through)
        parent.through = max(parent.through, message.through)
        self._up.asked(message.missing)
        self._up.confirm(message.confirmed)
        if self._up.has_more(parent.through):
            self.ready.append(parent.name)
        self.channel_cache.on_directory_version(
            parent.name, message.incarnation, message.directory, now_us
        )

    def _came(self, parent: ParentState, message: DownstreamEvent, now_us: int) -> None:
        if (
            parent.name != self.selector.active
            or message.parent_epoch != self.selector.parent_epoch
        ):
            return
        on_way_us = int(parent.round_trip.mean_us) // 2
        aged = msgspec.structs.replace(message.event, age_us=message.event.age_us + on_way_us)
        self._inflow.put(message.number, aged)
        while self._inflow.first() is not None:
            self._hand_over(self._inflow.take())
        parent.attend_by(now_us + self._options.soon_us)

    def _hand_over(self, event: TransitEvent) -> None:
        if self._seen.is_new(event_id_of(event)):
            self._delivered += 1
            self.deliveries.append(event)
        else:
            self._again += 1

    def _offered(self, parent: ParentState, message: Inventory, now_us: int) -> None:
        if message.parent_epoch != self.selector.parent_epoch or not message.events:
            return
        places, lacking = [], []
        for place, node, number in message.events:
            if (node, number) in self._seen:
                places.append(place)
            else:
                lacking.append((node, number))
        last = message.events[-1][0]
        had = InventoryReply(self._incarnation, self.selector.parent_epoch, last, tuple(places))
        self.sends.append((parent.name, had))
        if lacking and parent.name == self.selector.standby:
            self.selector.offered(lacking, self._seen, now_us)

    def _look_at_links(self, now_us: int) -> None:
        """Offer services the links to the parents in use that are alive."""
        there = {each.name: each for each in self.selector.used() if each.is_usable()}
        for name in list(self.tiers.links):
            if name not in there:
                self.tiers.drop(name)
        for name, parent in there.items():
            way_us = _way_us(parent)
            if not way_us:
                continue
            if name not in self.tiers.links:
                parent.attend_by(now_us)  # so that the parent learns of the link, too
            is_active = name == self.selector.active
            delay_us = way_us if is_active else way_us + self._options.dead_us
            self.tiers.set(name, TierLink(delay_us, is_active))

    # ------------------------------------------------------------------------------------ interests

    def _send_interests(self, parent: ParentState, now_us: int) -> None:
        if not self._has_delta_for(parent) or now_us < parent.delta_sent_us + self._again_us(
            parent
        ):
            return
        parent.delta_sent_us = now_us
        if not self._log.can_resume_from(parent.version, parent.floor):
            self.selector.left.append(parent.name)  # reset: a snapshot follows
            self._take_leave()
            return
        wants = self._log.since(parent.version, self._newest_to_send(parent))
        if wants is not None:
            self.sends.append((parent.name, wants))

    def _has_delta_for(self, parent: ParentState) -> bool:
        return parent.is_known() and parent.version < self._newest_to_send(parent)

    def _newest_to_send(self, parent: ParentState) -> int:
        """The newest version to announce; a standby is not ahead of the active parent."""
        active = self.selector.met()
        is_second = parent.name == self.selector.standby and active is not None
        return active.version if is_second and active is not None else self._log.version

    def _recall(self, node: str, question: HistoryRequest) -> None:
        active = self.selector.met()
        if active is not None:
            self.sends.append(
                (active.name, RelayedHistoryRequest(self._incarnation, node, question))
            )

    # ------------------------------------------------------------------------------ upstream events

    def _decide(self, now_us: int) -> None:
        """Process events that waited for their channel's definition."""
        if self.channel_cache.has_changed:
            self.channel_cache.has_changed = False
            for each in self.on_bound:
                each()
        while self._undecided:
            event, since_us = self._undecided[0]
            bound = self.channel_cache.bound(event.channel)
            if bound is None and now_us - since_us < self._options.decide_us:
                return
            self._undecided.popleft()
            self._undecided_bytes -= _size(event)
            aged = msgspec.structs.replace(event, age_us=event.age_us + now_us - since_us)
            is_kept = bound is None and self.channel_cache.is_remembered(event.channel)
            is_ordered = is_kept or (bound is not None and bound.is_ordered)
            self._decided(aged, now_us, is_ordered=is_ordered)

    def _decided(self, event: TransitEvent, now_us: int, *, is_ordered: bool) -> EventId:
        named = self._named(event)
        if not is_ordered:
            self.deliveries.append(named)
        self._send_up(named, now_us, is_echoed=is_ordered)
        return event_id_of(named)

    def _named(self, event: TransitEvent) -> TransitEvent:
        _, original = self.new_event_id()
        return msgspec.structs.replace(
            event, source=self.name, child=self.name, child_number=original
        )

    def _send_up(self, event: TransitEvent, now_us: int, *, is_echoed: bool) -> None:
        if self.channel_cache.is_local(event.channel):
            return
        # Publishers of channels that must not lose events are paused, perhaps a little late.
        is_promised = self.channel_cache.keeps_all(event.channel)
        while not self._fits(2 if is_promised else 1):
            lesser = self._up.shed() if is_promised else self._up.shed(event.importance)
            if lesser is None:
                self._drop(event)
                return
            self._drop(lesser[0])
        self._put_up(event, now_us, is_echoed=is_echoed, is_droppable=not is_promised)

    def _put_up(
        self,
        event: TransitEvent,
        now_us: int,
        *,
        is_echoed: bool = False,
        is_droppable: bool = False,
    ) -> None:
        if not is_echoed:
            self._seen.is_new(event_id_of(event))
        up = (event, is_echoed, now_us)
        self._up.put(up, _size(event), event.channel, event.importance, is_droppable=is_droppable)
        active = self.selector.met()
        if active is not None and self._up.has_more(active.through):
            self.ready.append(active.name)

    def _drop(self, event: TransitEvent) -> None:
        self._lost[NO_ROOM] = self._lost.get(NO_ROOM, 0) + 1
        if len(self.drops) < _LOSSES:
            self.drops.append((event, NO_ROOM))

    def _fits(self, times: int) -> bool:
        options = self._options
        return (
            len(self._up) + len(self._undecided) < times * options.up_events
            and self._up.bytes + self._undecided_bytes < times * options.up_bytes
        )


def _way_us(parent: ParentState) -> int:
    """One-way latency to a parent; 0 if unknown."""
    trip = parent.round_trip
    return max(1, int(trip.mean_us) // 2) if trip.is_measured else 0


def _size(event: TransitEvent) -> int:
    return len(event.payload) + len(event.block) + _OVERHEAD
