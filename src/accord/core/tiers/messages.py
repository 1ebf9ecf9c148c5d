"""Protocol between a secondary node and its parents: messages, options and interest log.

Two windows of numbered events run between a child and its active parent: *down* the events its
clients want, *up* those they publish. The sender reports the last number sent (`top`), the receiver
the number up to which it has everything, and what it misses below the top. `parent_epoch` is the
parent epoch, the count of the child's choices of active parent; numbers of the downstream window
are valid in one parent epoch only.

The active parent relays a child's history requests to other nodes, and the replies back. Either may
be lost; the child retries.

The interests of a child are a versioned change log, acknowledged by each parent up to a version.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.channels.history.history_client import PeerState
from accord.core.channels.history.messages import HistoryReply, HistoryRequest, Stamp
from accord.core.overlay.change_log import ChangeLog, DeltaLimits
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.interests import Interest, InterestTable
from accord.core.overlay.signalling import TemplateMessage, TransitEvent

# Limits per message.
MAX_RANGES: Final = 32
MAX_CHANGES: Final = 128
MAX_CHANGES_TEXT: Final = 65_536  # characters in total, if there are several changes
MAX_OFFERED: Final = 512
MAX_ASKED: Final = 64

NUMBERS: Final = 1_000_000  # event numbers per millisecond of incarnation
Ranges = tuple[tuple[int, int], ...]  # inclusive
EventId = tuple[str, int]  # publishing node, number there


class ChildHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag="attend"):
    """Periodic message of a child; the parent replies with `ParentHeartbeat`.

    Down: all up to `through` has arrived. Up: all below `base` is confirmed, `top` is the last
    sent.
    """

    incarnation: int
    parent_epoch: int
    is_active: bool
    at_us: int = 0  # by the child's clock
    through: int = 0
    missing: Ranges = ()
    base: int = 1
    top: int = 0
    is_leaving: bool = False
    has_other: bool = False  # another parent, which may send it events as well
    takes_us: int = 0  # one-way latency; 0 if unknown
    roster: int = -1  # version of the peer list it has; -1 if it needs none


class ParentHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag="serve"):
    """Reply of a parent to the heartbeat that the child sent at `at_us`.

    Down: `top` is the last sent, `waiting` the number of events in custody. Up: all up to `through`
    was accepted, and all up to `confirmed` is confirmed by all members of reliable channels.
    `version` is the last applied version of the child's interests; `directory` changes with the
    channel definitions.

    For history: a node that has the version `record_version` of the parent's state records knows
    that the parent has the child's interests. The child has what arrived at the parent `behind_us`
    ago or earlier, except `shed` events evicted for lack of space.
    """

    incarnation: int
    attached_us: int  # start of the parent's state for this child
    child: int  # the child's incarnation
    parent_epoch: int
    at_us: int = 0
    top: int = 0
    waiting: int = 0
    through: int = 0
    missing: Ranges = ()
    confirmed: int = 0
    version: int = 0
    directory: int = 0
    lost: int = 0  # events lost for this child
    record_version: Stamp = (0, 0)
    behind_us: int = 0
    shed: int = 0


class InterestDelta(msgspec.Struct, frozen=True, array_like=True, tag="wants"):
    """Changes of a child's interests from version `since` to `version`, by key."""

    incarnation: int
    since: int
    version: int
    changes: tuple[tuple[str, Interest | None], ...]


class Inventory(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """Events in custody that were not sent: place in the buffer, node and number of each."""

    parent_epoch: int
    events: tuple[tuple[int, str, int], ...]


class InventoryReply(msgspec.Struct, frozen=True, array_like=True, tag="had"):
    """Of the inventory up to the place `last`, the child already has `places`."""

    incarnation: int
    parent_epoch: int
    last: int
    places: tuple[int, ...]


class DownstreamEvent(msgspec.Struct, frozen=True, array_like=True, tag="down"):
    """An event for a child, numbered within a parent epoch."""

    parent_epoch: int
    number: int
    event: TransitEvent


class UpstreamEvent(msgspec.Struct, frozen=True, array_like=True, tag="up"):
    """An event of a child; with `is_echoed`, the child's own clients get it when it comes back."""

    incarnation: int
    number: int
    event: TransitEvent
    is_echoed: bool = False


class ChannelLookup(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Requests the definitions of channels, and a page of all definitions after a name."""

    channels: tuple[str, ...]
    after: str | None = None


class TemplateTraits(msgspec.Struct, frozen=True, array_like=True):
    """Properties of a template that a node must know to let clients publish through it."""

    is_ordered: bool = False
    can_be_full: bool = False
    keeps_order: bool = False


class ChannelLookupReply(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """Channel definitions as of version `directory`; None for a channel without one."""

    directory: int
    templates: dict[str, TemplateTraits]
    channels: tuple[tuple[str, ChannelDefinition | None], ...] = ()
    page: tuple[tuple[ChannelDefinition, str], ...] = ()  # with the defining node
    after: str | None = None  # start of the page, as requested
    is_last: bool = False


class RelayedHistoryRequest(msgspec.Struct, frozen=True, array_like=True, tag="recalls"):
    """A history request for `node`."""

    incarnation: int
    node: str
    question: HistoryRequest


class RelayedHistoryReply(msgspec.Struct, frozen=True, array_like=True, tag="recalled"):
    """The reply of `node`."""

    node: str
    answer: HistoryReply


class PeerListUpdate(msgspec.Struct, frozen=True, array_like=True, tag="roster"):
    """The nodes that may have history."""

    parent_epoch: int
    version: int
    nodes: tuple[tuple[str, PeerState], ...]


# `TemplateMessage` carries service protocols, which run across tiers as in the overlay.
FromChild = (
    ChildHeartbeat
    | InterestDelta
    | InventoryReply
    | UpstreamEvent
    | ChannelLookup
    | RelayedHistoryRequest
    | TemplateMessage
)
FromParent = (
    ParentHeartbeat
    | Inventory
    | DownstreamEvent
    | ChannelLookupReply
    | RelayedHistoryReply
    | PeerListUpdate
    | TemplateMessage
)


def exceeds_limits(message: FromChild) -> bool:
    """Whether the message is larger than a child may send."""
    match message:
        case ChildHeartbeat():
            return len(message.missing) > MAX_RANGES
        case InterestDelta():
            return len(message.changes) > MAX_CHANGES or _text_of(message) > MAX_CHANGES_TEXT
        case InventoryReply():
            return len(message.places) > MAX_OFFERED
        case ChannelLookup():
            return len(message.channels) > MAX_ASKED
    return False


def _text_of(message: InterestDelta) -> int:
    return sum(text_of(need) for _, need in message.changes)


def text_of(need: Interest | None) -> int:
    """Characters of a change that have to be parsed."""
    return 0 if need is None else len(need.filter) + len(need.where) + len(need.xpath)


def event_id_of(event: TransitEvent) -> EventId:
    """The identity of an event at all nodes."""
    return (event.child, event.child_number) if event.child else (event.source, event.event)


def child_incarnation_of(event: TransitEvent) -> int:
    """Incarnation of the child that published an event; differs between nodes with the same name.

    It grows by one after each million events. That is harmless: it starts another ordered sequence,
    in which nothing has arrived yet.
    """
    return event.child_number // NUMBERS


class TierOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times in microseconds; limits of the custody buffer and of the child's upstream window."""

    pulse_us: int = 300_000  # maximum interval between a child's heartbeats
    dead_us: int = 3_000_000  # silence after which a parent has failed
    soon_us: int = 20_000  # maximum delay of an acknowledgement
    again_us: int = 3_000_000  # delay of a nack: links are normally lossless
    offer_us: int = 200_000  # interval of a standby's inventories
    behind_us: int = 5_000_000  # how long an active parent may lack what the standby has
    return_us: int = 10_000_000  # how long a preferred parent must be standby to become active
    quiet_us: int = 10_000_000  # silence of a child after which services stop using its link
    lease_us: int = 30_000_000  # silence after which a child has left
    kept_bytes: int = 8 << 20  # custody buffer of one child
    kept_events: int = 8_192
    up_bytes: int = 4 << 20  # events that the parents have not confirmed
    up_events: int = 4_096
    decide_us: int = 2_000_000  # timeout of a channel lookup that delays an event
    refresh_us: int = 30_000_000  # refresh interval of channel definitions


_LIMITS: Final = DeltaLimits(changes=MAX_CHANGES, bytes=MAX_CHANGES_TEXT, max_tombstones=4_096)
BUDGET: Final = 16 << 20  # bytes of interests, no more than a parent accepts


class InterestLog(ChangeLog[str, Interest]):
    """Change log of the child's interest table."""

    def __init__(self, incarnation: int) -> None:
        super().__init__(_LIMITS, lambda _, need: text_of(need))
        self.interests = InterestTable(BUDGET)
        self._incarnation = incarnation

    def update(self, now_us: int) -> bool:
        """Log the changes of the table; return whether there are any."""
        changes = self.interests.changes(now_us)
        for key, need in changes:
            self.put(key, need)
        return bool(changes)

    def since(self, version: int, most: int) -> InterestDelta | None:
        """The next delta for a parent at `version`, up to version `most`."""
        last, changes = self.delta_after(version, most)
        if last <= version:
            return None
        told = tuple((key, need) for _, key, need in changes)
        return InterestDelta(self._incarnation, version, last, told)

    def check_invariants(self, known: int = 0) -> None:
        super().check_invariants(known)
        self.interests.check_invariants()
