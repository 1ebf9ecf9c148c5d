"""What a secondary node and its parents say to each other.

Two flows of numbered events run between a child and its active parent: *down* what its clients
want, *up* what they publish. Whoever sends says how far it has sent (`top`), whoever receives
through which number it has everything, and what it misses below the top. `turn` counts the child's
choices of an active parent: what is said of the flow down counts for that turn only.

What a child asks of the past of persistent channels its active parent relays to whoever is asked,
and the answers back. They may get lost: who asks asks again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.channels.history.history_client import PeerState
from accord.core.channels.history.messages import HistoryReply, HistoryRequest, Stamp
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.interests import Need
from accord.core.overlay.signalling import Carried, TemplateMessage

# In one message.
MAX_RANGES: Final = 32
MAX_CHANGES: Final = 128
MAX_CHANGES_TEXT: Final = 65_536  # characters of all of them, if there are several
MAX_OFFERED: Final = 512
MAX_ASKED: Final = 64

NUMBERS: Final = 1_000_000  # of a child's events in a millisecond
Ranges = tuple[tuple[int, int], ...]  # first and last number of each
EventId = tuple[str, int]  # the node where an event was published, and what it is called there


class ChildHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag="attend"):
    """From a child, again and again; its parent answers with `ParentHeartbeat`.

    All up to `through` has come down. All below `base` is done with on the way up, and has been
    sent up to `top`.
    """

    incarnation: int
    turn: int
    is_active: bool
    at_us: int = 0  # by the child's clock
    through: int = 0
    missing: Ranges = ()
    base: int = 1
    top: int = 0
    is_leaving: bool = False
    has_other: bool = False  # another parent, from which it may get events as well
    takes_us: int = 0  # a message between the two; 0 where that is not known yet
    roster: int = -1  # which it knows of who has a past; -1 where it does not want to


class ParentHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag="serve"):
    """A parent's answer, to what the child said at `at_us`.

    Down: `top` was sent, and `waiting` are kept in all. Up: all up to `through` was taken, and all
    up to `settled` is with everybody whom a reliable channel promised it. `version` is the last
    change of the child's needs that counts, `directory` changes with the channels' definitions.

    For who asks for the past: whoever has heard `heard` of the parent knows that it needs what the
    child does. What came here `behind_us` ago is with the child, but what was `shed` for want of
    room.
    """

    incarnation: int
    birth: int  # when it began to know the child
    child: int  # its incarnation
    turn: int
    at_us: int = 0
    top: int = 0
    waiting: int = 0
    through: int = 0
    missing: Ranges = ()
    settled: int = 0
    version: int = 0
    directory: int = 0
    lost: int = 0  # events for this child
    heard: Stamp = (0, 0)
    behind_us: int = 0
    shed: int = 0


class InterestDelta(msgspec.Struct, frozen=True, array_like=True, tag="wants"):
    """What changes in a child's needs from version `since` to `version`, by their keys."""

    incarnation: int
    since: int
    version: int
    changes: tuple[tuple[str, Need | None], ...]


class Inventory(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """What a parent keeps for a child and has not sent: place, node and number of each event."""

    turn: int
    events: tuple[tuple[int, str, int], ...]


class InventoryReply(msgspec.Struct, frozen=True, array_like=True, tag="had"):
    """Of what was offered, up to the place `last`, the child has these already."""

    incarnation: int
    turn: int
    last: int
    places: tuple[int, ...]


class DownstreamEvent(msgspec.Struct, frozen=True, array_like=True, tag="down"):
    turn: int
    number: int
    event: Carried


class UpstreamEvent(msgspec.Struct, frozen=True, array_like=True, tag="up"):
    """`is_echoed`: the child's own clients get it when it comes back."""

    incarnation: int
    number: int
    event: Carried
    is_echoed: bool = False


class ChannelLookup(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """How are these channels defined? And which definitions are there after that name?"""

    channels: tuple[str, ...]
    after: str | None = None


class TemplateTraits(msgspec.Struct, frozen=True, array_like=True):
    """What a node must know of a template where clients publish."""

    is_ordered: bool = False
    can_be_full: bool = False
    keeps_order: bool = False


class ChannelLookupReply(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """How channels are defined, by an answer's `directory`; a name without definition has none."""

    directory: int
    templates: dict[str, TemplateTraits]
    channels: tuple[tuple[str, ChannelDefinition | None], ...] = ()
    page: tuple[tuple[ChannelDefinition, str], ...] = ()  # with the node that defined it
    after: str | None = None  # the page that was asked for
    is_last: bool = False


class RelayedHistoryRequest(msgspec.Struct, frozen=True, array_like=True, tag="recalls"):
    """A question about the past, to whoever `node` is."""

    incarnation: int
    node: str
    question: HistoryRequest


class RelayedHistoryReply(msgspec.Struct, frozen=True, array_like=True, tag="recalled"):
    """What `node` has answered."""

    node: str
    answer: HistoryReply


class PeerListUpdate(msgspec.Struct, frozen=True, array_like=True, tag="roster"):
    """Who may have a past."""

    turn: int
    version: int
    nodes: tuple[tuple[str, PeerState], ...]


# `TemplateMessage` is of services, which speak across tiers as they do with neighbours in the
# overlay.
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
    """Whether it has more than a child says at once."""
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


def text_of(need: Need | None) -> int:
    """How many characters of a change are to be read."""
    return 0 if need is None else len(need.filter) + len(need.where) + len(need.xpath)


def event_id_of(event: Carried) -> EventId:
    """What an event is called wherever it goes."""
    return (event.origin, event.original) if event.origin else (event.source, event.event)


def child_incarnation_of(event: Carried) -> int:
    """The incarnation of the child that an event is of: it differs where two have one name.

    After each million events it is one more. That is harmless: it makes another line of events, in
    which nothing has come yet.
    """
    return event.original // NUMBERS
