"""A backbone node as the parent of secondary nodes, its children.

A child's interests are interests of its parent, so the parent is a member of the child's channels
like any other node, and holds events for the child until the child confirms them (`custody`). A
child has two parents: the active one sends, the standby holds the same events, ready to take over.
When much is held for a child, no more is accepted of channels that must not lose events: a slow
child makes its parents slow members, which puts backpressure on the publishers.

Up: events of a child's clients are accepted in the child's order and published here as if by a
local client. The child keeps an event until its parent reports it *settled*: confirmed by every
member of a reliable channel. Whatever fails in between, the child can send it to another parent;
duplicates are recognised by event ID.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from accord.core.channels.history.messages import HistoryPage, PageInProgress, PageRequest
from accord.core.model.channels import ChannelMap
from accord.core.model.units import NEVER_US
from accord.core.overlay.interests import Interest, size_of
from accord.core.overlay.signalling import TemplateMessage, TransitEvent
from accord.core.overlay.status import ChildStatus
from accord.core.overlay.tier_links import TierLink, TierLinks
from accord.core.overlay.validation import problem_with_interest
from accord.core.router.rights import FEEDBACK
from accord.core.tiers.custody import NO_ROOM, CustodyBuffer
from accord.core.tiers.history_via_parent import HistoryPort, HistoryRelay
from accord.core.tiers.messages import (
    BUDGET,
    ChannelLookup,
    ChannelLookupReply,
    ChildHeartbeat,
    DownstreamEvent,
    FromChild,
    FromParent,
    InterestDelta,
    InventoryReply,
    ParentHeartbeat,
    RelayedHistoryReply,
    RelayedHistoryRequest,
    TierOptions,
    UpstreamEvent,
    exceeds_limits,
)
from accord.core.tiers.sliding_windows import WINDOW, InboundWindow

_LOSSES: Final = 1_000  # losses held for the driver
_PAUSES: Final = 8
MAX_CHILDREN: Final = 1_024  # the maximum number of links
_MAX_INTERESTS: Final = 65_536
_NEEDS_BYTES: Final = 2 * BUDGET  # twice the budget, while interests are replaced
_MAX_KEY: Final = 65_536
_FEW: Final = 512  # buffer size up to which a new parent epoch is never rate limited
_TEXT_AT_ONCE: Final = 4_096  # characters of predicates per step: parsing takes time


class ParentHost(Protocol):
    """The services of its node that a parent uses."""

    def on_joined(self, child: str, incarnation: int) -> None:
        """A child of that name has joined."""

    def on_left(self, child: str) -> None:
        """The child has left; its interests were removed before."""

    def on_interest(self, child: str, key: str, interest: Interest | None) -> None:
        """A child's interest was added, changed or, if None, removed."""

    def publish_event(self, event: TransitEvent, *, is_echoed: bool) -> int | None:
        """Publish an event of a child's client; None if there is no room for it now.

        Otherwise returns its number in `unconfirmed`; 0 if it is settled at once.
        """

    def unconfirmed(self, channel: str) -> list[int]:
        """Numbers of the channel's events that some member may still lack."""

    def child_timeout_us(self, channel: str) -> int:
        """How long a child that does not advance is waited for; 0 if events may be lost."""

    def look_up(self, request: ChannelLookup) -> ChannelLookupReply:
        """Return the requested channel definitions."""

    def directory_version(self) -> int:
        """Version of the channel definitions."""


class _ChildState:
    """State of one incarnation of a child."""

    def __init__(self, incarnation: int, options: TierOptions, now_us: int) -> None:
        self.incarnation = incarnation
        self.attached_us = now_us
        self.keeping = CustodyBuffer(options, now_us)
        self.interests: dict[str, Interest] = {}
        self.interests_bytes = 0
        self.version = 0
        self.changes: deque[tuple[str, Interest | None]] = deque()  # not applied yet
        self.next_version = 0  # version after applying them
        self.has_other = False  # the child has another parent
        self._filters: ChannelMap[int] = ChannelMap()  # number of interests per filter
        # A child holds no more than that, unless some events are very large.
        self.up: InboundWindow[UpstreamEvent] = InboundWindow(most_bytes=4 * options.up_bytes)
        self.unconfirmed: deque[tuple[int, str, int]] = deque()  # number, channel, `event`
        self.confirmed = 0
        self.received_us = now_us
        self.at_us = 0
        self.epoch_start_us = now_us  # start of the parent epoch
        self.asked: ChannelLookup | None = None  # unanswered
        self.serve_us = NEVER_US
        self.relaying = HistoryRelay()

    def wants(self, channel: str) -> bool:
        """Whether the child may want events of that channel; feedback needs no interest."""
        return channel == FEEDBACK or bool(self._filters.select(channel))

    def has_room(self, key: str, need: Interest) -> bool:
        known = self.interests.get(key)
        size = size_of(need) - (0 if known is None else size_of(known))
        is_one_more = known is None
        return (
            len(self.interests) + is_one_more <= _MAX_INTERESTS
            and self.interests_bytes + size <= _NEEDS_BYTES
        )

    def set_interest(self, key: str, need: Interest | None) -> None:
        """Set an interest, or remove it if None."""
        known = self.interests.pop(key, None)
        if known is not None:
            self.interests_bytes -= size_of(known)
            count = (self._filters.get(known.filter) or 0) - 1
            if count:
                self._filters.set(known.filter, count)
            else:
                self._filters.remove(known.filter)
        if need is not None:
            self.interests[key] = need
            self.interests_bytes += size_of(need)
            self._filters.set(need.filter, (self._filters.get(need.filter) or 0) + 1)

    def check_invariants(self) -> None:
        assert len(self.interests) <= _MAX_INTERESTS
        assert self.interests_bytes == sum(map(size_of, self.interests.values())) <= _NEEDS_BYTES
        for need in self.interests.values():
            assert self._filters.get(need.filter)


class Parent:
    """State machine of a parent, for all its children.

    `sends` are control messages for children; `ready` lists children with events to take. `tiers`
    are the links to them for services.
    """

    def __init__(
        self,
        incarnation: int,
        options: TierOptions,
        port: ParentHost,
        tiers: TierLinks | None = None,
    ) -> None:
        self.tiers = TierLinks() if tiers is None else tiers
        self.tiers.send = self._send
        self.sends: list[tuple[str, FromParent]] = []
        self.ready: list[str] = []
        self.drops: list[tuple[TransitEvent, str, str]] = []  # event, child, cause
        self.history: HistoryPort | None = None  # None if channels cannot be persistent
        self._incarnation = incarnation
        self._options = options
        self._port = port
        self._children: dict[str, _ChildState] = {}
        self._links: dict[str, bool] = {}
        self._offer_us = NEVER_US
        self._confirm_us = NEVER_US
        self._pause_us = options.soon_us
        self._max_unconfirmed = 2 * options.up_events + WINDOW  # of one child, at most

    # ----------------------------------------------------------------------------- for its driver

    def link_up(self, child: str, now_us: int) -> None:
        self._links[child] = True
        state = self._children.get(child)
        if state is not None:
            state.received_us = now_us

    def link_down(self, child: str, now_us: int) -> None:  # noqa: ARG002
        """Remove a link; the child's state stays until its lease ends."""
        self._links.pop(child, None)
        self.tiers.drop(child)

    def has_link(self, child: str) -> bool:
        return child in self._links

    def receive(self, child: str, message: object, now_us: int) -> None:
        if not isinstance(message, FromChild) or exceeds_limits(message):
            return  # not a valid message of a child
        if isinstance(message, ChannelLookup):
            if child in self._children:
                self._children[child].asked = message  # one at a time: the child retries
            return
        if isinstance(message, TemplateMessage):
            self.tiers.on_message(child, message, now_us)
            return
        state = self._state(
            child, message.incarnation, now_us, is_new=isinstance(message, ChildHeartbeat)
        )
        if state is None:
            return
        state.received_us = now_us
        match message:
            case ChildHeartbeat():
                self._attended(child, state, message, now_us)
            case InterestDelta():
                self._wanted(child, state, message)
                self._serve(child, state, now_us)
            case InventoryReply():
                state.keeping.on_inventory_reply(message, now_us)
                self._is_ready(child, state.keeping)
            case RelayedHistoryRequest():
                self._recalls(child, state, message, now_us)
            case UpstreamEvent():
                event = message.event
                state.up.put(message.number, message, len(event.payload) + len(event.block))
                self._publish_events(child, state, now_us)

    def put(self, child: str, event: TransitEvent, now_us: int, *, is_in_order: bool) -> bool:
        """Take custody of an event for a child; False if there is no such child."""
        state = self._children.get(child)
        if state is None:
            return False
        keeping = state.keeping
        keeping.put(
            event,
            now_us,
            is_in_order=is_in_order,
            child_timeout_us=self._port.child_timeout_us(event.channel),
            is_elsewhere=self._is_elsewhere(child, state, now_us),
        )
        self._collect_drops(child, keeping)
        self._is_ready(child, keeping)
        self._offer_us = min(self._offer_us, now_us + self._options.offer_us)
        return True

    def on_history_reply(self, child: str, message: RelayedHistoryReply) -> None:
        """Forward a node's history reply to a child; live events go before pages."""
        state = self._children.get(child)
        if state is None or child not in self._links:
            return  # the child retries, via its parent at that time
        if isinstance(message.answer, HistoryPage):
            state.relaying.put(message)
            self.ready.append(child)
        else:
            self._send(child, message)

    def can_accept(self, channel: str, events: int, events_bytes: int, now_us: int) -> bool:
        """Whether all children have room for more of a channel, after so many pending events.

        A child that does not advance is waited for no longer than the channel's timeout.
        """
        for child, state in self._children.items():
            keeping = state.keeping
            if (
                keeping.is_full(events, events_bytes)
                and state.wants(channel)
                and not self._is_elsewhere(child, state, now_us)
                and now_us - keeping.moved_us < self._port.child_timeout_us(channel)
            ):
                return False
        return True

    def take(
        self, child: str, bytes_wanted: int, now_us: int
    ) -> Sequence[DownstreamEvent | RelayedHistoryReply]:
        """Events to send to a child next; without any, a page of history."""
        state = self._children.get(child)
        if state is None or child not in self._links:
            return []
        return state.keeping.take(bytes_wanted, now_us) or state.relaying.take()

    def advance(self, now_us: int) -> None:
        for child, state in list(self._children.items()):
            if state.received_us + self._options.lease_us <= now_us:
                self._remove_child(child)
                continue
            if state.received_us + self._options.quiet_us <= now_us:
                self.tiers.drop(child)
            if state.changes:
                self._apply_interests(child, state)
                state.serve_us = now_us
            if state.serve_us <= now_us:
                self._serve(child, state, now_us)
            if state.asked is not None:
                self._send(child, self._port.look_up(state.asked))
                state.asked = None
        if self._confirm_us <= now_us:
            self._check_confirmed(now_us)
        if self._offer_us <= now_us:
            self._offer(now_us)

    def next_due_us(self) -> int | None:
        options = self._options
        due_us = min(self._offer_us, self._confirm_us)
        for child, state in self._children.items():
            silent_us = options.quiet_us if child in self.tiers.links else options.lease_us
            due_us = min(due_us, state.serve_us, state.received_us + silent_us)
            if state.asked is not None or state.changes:
                return 0
        return None if due_us == NEVER_US else due_us

    def incarnation_of(self, child: str) -> int:
        """The child's incarnation; 0 if the child is unknown."""
        state = self._children.get(child)
        return 0 if state is None else state.incarnation

    def children(self) -> list[str]:
        return list(self._children)

    def retry_upstream(self, now_us: int) -> None:
        """Retry the publication of events that waited for room."""
        for child, state in self._children.items():
            if len(state.up):
                self._publish_events(child, state, now_us)

    def status(self) -> list[ChildStatus]:
        return [
            ChildStatus(
                name=child,
                is_linked=child in self._links,
                is_active=state.keeping.is_active,
                interests=len(state.interests),
                waiting=len(state.keeping),
                waiting_bytes=state.keeping.bytes,
                unsettled=len(state.unconfirmed),
                lost=dict(state.keeping.lost),
            )
            for child, state in self._children.items()
        ]

    def check_invariants(self) -> None:
        assert len(self._children) <= MAX_CHILDREN
        for state in self._children.values():
            state.keeping.check_invariants()
            state.up.check_invariants()
            state.relaying.check_invariants()
            state.check_invariants()
            assert len(state.unconfirmed) <= self._max_unconfirmed
            numbers = [number for number, _, _ in state.unconfirmed]
            assert numbers == sorted(numbers)
            assert state.confirmed <= state.up.through
            assert all(state.confirmed < number <= state.up.through for number in numbers)

    # --------------------------------------------------------------------------- received messages

    def _state(
        self, child: str, incarnation: int, now_us: int, *, is_new: bool
    ) -> _ChildState | None:
        """State of the child; None for an old incarnation, or an unknown one unless `is_new`."""
        known = self._children.get(child)
        if known is not None and known.incarnation == incarnation:
            return known
        if not is_new or (known is not None and known.incarnation > incarnation):
            return None
        if known is not None:
            self._remove_child(child)
        elif len(self._children) >= MAX_CHILDREN and not self._make_room():
            return None
        state = self._children[child] = _ChildState(incarnation, self._options, now_us)
        self._port.on_joined(child, incarnation)
        return state

    def _make_room(self) -> bool:
        """Evict the child that has been silent longest, among those without a link."""
        away = [each for each in self._children if each not in self._links]
        if away:
            self._remove_child(min(away, key=lambda each: self._children[each].received_us))
        return bool(away)

    def _attended(
        self, child: str, state: _ChildState, message: ChildHeartbeat, now_us: int
    ) -> None:
        keeping = state.keeping
        if message.is_leaving:
            self._remove_child(child)
            return
        if message.parent_epoch < keeping.parent_epoch:
            return
        if message.parent_epoch > keeping.parent_epoch:
            # A new parent epoch visits the whole buffer, so its rate is limited.
            if len(keeping) > _FEW and now_us - state.epoch_start_us < self._options.soon_us:
                return
            state.epoch_start_us = now_us
            keeping.begin(message.parent_epoch, now_us, is_active=message.is_active)
            self._offer_us = now_us
        state.has_other = message.has_other
        if message.takes_us > 0 and child in self._links:
            wait_us = 0 if message.is_active else self._options.dead_us
            delay_us = message.takes_us + wait_us
            link = TierLink(delay_us, message.is_active, message.incarnation, message.parent_epoch)
            self.tiers.set(child, link)
        if message.is_active:
            keeping.on_ack(message.through, message.missing, now_us)
            self._is_ready(child, keeping)
            state.up.on_last_sent(message.top)
        through = message.base - 1
        if through > state.up.through:
            state.up.skip_to(through)
        if through > state.confirmed:
            self._confirm_through(state, through)
        state.at_us = message.at_us
        self._serve(child, state, now_us)
        if self.history is not None and message.is_active and message.roster >= 0:
            roster = state.relaying.roster(self.history, message, now_us)
            if roster is not None:
                self._send(child, roster)

    def _wanted(self, child: str, state: _ChildState, message: InterestDelta) -> None:
        if message.since == state.version < message.version and not state.changes:
            state.changes.extend(message.changes)
            state.next_version = message.version
            self._apply_interests(child, state)

    def _apply_interests(self, child: str, state: _ChildState) -> None:
        """Apply the next pending changes, and the version with the last of them."""
        left = _TEXT_AT_ONCE
        is_less = False
        while state.changes and left > 0:
            key, need = state.changes.popleft()
            is_less = is_less or need is None
            if _is_bad(key, need) or (need is not None and not state.has_room(key, need)):
                continue
            if need is not None:
                left -= len(need.where) + len(need.xpath)
                state.set_interest(key, need)
                self._port.on_interest(child, key, need)
            elif key in state.interests:
                state.set_interest(key, None)
                self._port.on_interest(child, key, None)
        if is_less:
            state.keeping.keep_only(state.wants)
        if not state.changes:
            state.version = state.next_version

    def _publish_events(self, child: str, state: _ChildState, now_us: int) -> None:
        before = state.up.through
        while (up := state.up.first()) is not None:
            event = msgspec.structs.replace(up.event, source=child, child=child)
            number: int | None = 0
            if len(state.unconfirmed) >= self._max_unconfirmed:
                self._confirm_us = min(self._confirm_us, now_us + self._options.soon_us)
                break
            try:
                number = self._port.publish_event(event, is_echoed=up.is_echoed)
            finally:  # also on an exception: the event must not be retried for ever
                if number is not None:
                    state.up.take()
                    state.unconfirmed.append((up.number, event.channel, number))
            if number is None:
                self._confirm_us = min(self._confirm_us, now_us + self._options.soon_us)
                break
        if state.up.through > before:
            self._confirm_us = min(self._confirm_us, now_us + self._options.soon_us)

    def _recalls(
        self, child: str, state: _ChildState, message: RelayedHistoryRequest, now_us: int
    ) -> None:
        if self.history is None:
            return
        question = message.question
        if isinstance(question, PageRequest) and state.relaying.has_page(message.node, question.id):
            self._send(child, RelayedHistoryReply(message.node, PageInProgress(question.id)))
        else:
            self.history.relay(child, message.node, question, now_us)

    # -------------------------------------------------------------------------------------- timers

    def _check_confirmed(self, now_us: int) -> None:
        """Find out which events are confirmed, and report them to the children."""
        self._confirm_us = NEVER_US
        found: dict[str, dict[int, bool]] = {}
        has_moved = False
        for child, state in self._children.items():
            before = state.confirmed
            while state.unconfirmed:
                number, channel, event = state.unconfirmed[0]
                if channel not in found:
                    found[channel] = dict.fromkeys(self._port.unconfirmed(channel), True)
                if event in found[channel]:
                    self._confirm_us = now_us
                    break
                state.unconfirmed.popleft()
                state.confirmed = number
            if state.confirmed > before:
                has_moved = True
                self._serve(child, state, now_us)
        # Looking is expensive when much is in flight: back off while nothing moves.
        soon_us = self._options.soon_us
        pause_us = soon_us if has_moved else min(2 * self._pause_us, _PAUSES * soon_us)
        self._pause_us = pause_us
        if self._confirm_us == now_us:
            self._confirm_us = now_us + pause_us

    def _confirm_through(self, state: _ChildState, through: int) -> None:
        state.confirmed = through
        while state.unconfirmed and state.unconfirmed[0][0] <= through:
            state.unconfirmed.popleft()

    def _offer(self, now_us: int) -> None:
        self._offer_us = NEVER_US
        for child, state in self._children.items():
            keeping = state.keeping
            keeping.advance(now_us)
            self._collect_drops(child, keeping)
            if not len(keeping):
                continue
            self._offer_us = now_us + self._options.offer_us
            if child in self._links:
                for offer in keeping.offers():
                    self._send(child, offer)

    def _serve(self, child: str, state: _ChildState, now_us: int) -> None:
        keeping = state.keeping
        again_us = self._options.again_us
        serve = ParentHeartbeat(
            self._incarnation,
            state.attached_us,
            state.incarnation,
            keeping.parent_epoch,
            state.at_us,
            keeping.top,
            len(keeping),
            state.up.through,
            state.up.missing(again_us, now_us),
            state.confirmed,
            state.version,
            self._port.directory_version(),
            sum(keeping.lost.values()),
            (0, 0) if self.history is None else self.history.interest_version(),
            keeping.behind_us(now_us),
            keeping.lost.get(NO_ROOM, 0),
        )
        state.at_us = 0  # later replies are not round-trip samples
        state.serve_us = state.up.ask_us(again_us) or NEVER_US
        self._collect_drops(child, keeping)
        self._send(child, serve)

    def _collect_drops(self, child: str, keeping: CustodyBuffer) -> None:
        room = max(0, _LOSSES - len(self.drops))
        self.drops += [(event, child, cause) for event, cause in keeping.drops[:room]]
        keeping.drops.clear()

    def _is_elsewhere(self, child: str, state: _ChildState, now_us: int) -> bool:
        """Whether the child is silent here, and may well be served by its other parent."""
        is_here = child in self._links and now_us - state.received_us < self._options.dead_us
        return state.has_other and not is_here

    def _is_ready(self, child: str, keeping: CustodyBuffer) -> None:
        if keeping.has_more():
            self.ready.append(child)

    def _send(self, child: str, message: FromParent) -> None:
        if child in self._links:
            self.sends.append((child, message))

    def _remove_child(self, child: str) -> None:
        """Remove a child with its interests and its custody buffer."""
        state = self._children.pop(child)
        self.tiers.on_left(child)
        for key in state.interests:
            self._port.on_interest(child, key, None)
        self._port.on_left(child)


def _is_bad(key: str, need: Interest | None) -> bool:
    """Whether the change is invalid."""
    if not 0 < len(key) <= _MAX_KEY or need is None:
        return need is not None
    return problem_with_interest(need) is not None
