"""Positions in the total order of a channel, and the messages of the ordering protocol.

An epoch is the tenure of one sequencer; later epochs compare greater. Positions within an epoch
count from 1. An event has one position for ever, requested and attached by its own source. Two
nodes that have the same two events therefore agree on their order whatever happens to sequencers,
provided that each delivers by increasing position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

Epoch = tuple[int, str, int]  # count, sequencer, its incarnation
OrderPosition = tuple[int, str, int, int]  # epoch, index in it

NO_EPOCH: Final[Epoch] = (0, "", 0)
MAX_GRANT: Final = 64  # per grant
MAX_EPOCH: Final = 1 << 61  # largest epoch accepted by a node that knows none
MAX_EPOCH_JUMP: Final = 1 << 32  # largest accepted jump: epochs are counted one by one
MAX_INDEX: Final = (1 << 63) - 1  # also bounds incarnations and request numbers
MAX_HELD: Final = 2_048  # ranges of earlier epochs: a window has no more events
MAX_SHOWN: Final = 64  # sources per message
MAX_SUSPECTED: Final = 4_096  # nodes


def epoch_of(position: OrderPosition) -> Epoch:
    return position[:3]


def position_at(epoch: Epoch, index: int) -> OrderPosition:
    return (*epoch, index)


class PositionRange(msgspec.Struct, frozen=True, array_like=True):
    """Positions granted to, or held by, a source; some in between may belong to other sources."""

    epoch: Epoch
    first: int
    last: int
    source: str
    incarnation: int

    def is_between(self, low: OrderPosition | None, high: OrderPosition) -> bool:
        """Whether the range intersects the open interval; a `low` of None is before all."""
        first, last = self.first, self.last
        if low is not None and epoch_of(low) == self.epoch:
            first = max(first, low[3] + 1)
        if epoch_of(high) == self.epoch:
            last = min(last, high[3] - 1)
        is_after = low is None or position_at(self.epoch, last) > low
        return first <= last and is_after and position_at(self.epoch, first) < high


class PositionRequest(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A source requests positions; a repeated `request` number is a retransmission."""

    incarnation: int
    request: int
    count: int
    latest: Epoch  # known to the sender


class PositionGrant(msgspec.Struct, frozen=True, array_like=True, tag="grant"):
    """Reply of the sequencer to a `PositionRequest`."""

    request: int
    held: PositionRange


class PrepareEpoch(msgspec.Struct, frozen=True, array_like=True, tag="collect"):
    """A new epoch starts; a node that replies accepts no more positions of earlier ones.

    The nodes in `suspected` are excluded unless a replying node has contact with them.
    """

    epoch: Epoch
    suspected: tuple[str, ...] = ()


class EpochPromise(msgspec.Struct, frozen=True, array_like=True, tag="collected"):
    """The positions a node holds from earlier epochs, and the latest epoch it had seen before.

    `suspected` repeats the request's; `in_contact` are those of them that the node has contact
    with.
    """

    epoch: Epoch
    latest: Epoch
    held: tuple[PositionRange, ...]
    suspected: tuple[str, ...] = ()
    in_contact: tuple[str, ...] = ()


class CurrentEpoch(msgspec.Struct, frozen=True, array_like=True, tag="reign"):
    """Announces an epoch: its sequencer is the one to ask, or to wait for."""

    epoch: Epoch


class HolderQuery(msgspec.Struct, frozen=True, array_like=True, tag="between"):
    """A member asks who holds the positions between two; a `low` of None is before all."""

    low: OrderPosition | None
    high: OrderPosition
    latest: Epoch = NO_EPOCH  # known to the sender
    after: str = ""  # last source of the previous reply


class HolderReply(msgspec.Struct, frozen=True, array_like=True, tag="holders"):
    """Holders whose names come after `after`: all of them (`is_complete`), or the first ones.

    The sequencer does not know the positions of earlier epochs held by nodes in `excluded`.
    """

    low: OrderPosition | None
    high: OrderPosition
    after: str
    held: tuple[PositionRange, ...]
    is_complete: bool
    excluded: tuple[str, ...] = ()


class PositionQuery(msgspec.Struct, frozen=True, array_like=True, tag="yours"):
    """A member asks a source whether events will arrive at these positions.

    The source, on replying, accepts no more positions of epochs before `latest`.
    """

    held: PositionRange
    latest: Epoch = NO_EPOCH


class PositionPending(msgspec.Struct, frozen=True, array_like=True, tag="coming"):
    """The first of the positions may still arrive."""

    held: PositionRange


class PositionVoid(msgspec.Struct, frozen=True, array_like=True, tag="void"):
    """No event will arrive at these positions, which may be a prefix of those asked about."""

    held: PositionRange


def merged(ranges: Iterable[PositionRange]) -> list[PositionRange]:
    """One range per source, incarnation and epoch, sorted."""
    found: dict[tuple[Epoch, str, int], PositionRange] = {}
    for each in ranges:
        key = (each.epoch, each.source, each.incarnation)
        known = found.get(key, each)
        found[key] = msgspec.structs.replace(
            each, first=min(each.first, known.first), last=max(each.last, known.last)
        )
    return sorted(found.values(), key=lambda held: (held.source, held.incarnation, held.epoch))


Body = (
    PositionRequest
    | PositionGrant
    | PrepareEpoch
    | EpochPromise
    | CurrentEpoch
    | HolderQuery
    | HolderReply
    | PositionQuery
    | PositionPending
    | PositionVoid
)

encode: Final = msgspec.msgpack.Encoder().encode
bodies: Final[msgspec.msgpack.Decoder[Body]] = msgspec.msgpack.Decoder(Body)


def is_plausible(body: Body, latest: Epoch = NO_EPOCH) -> bool:
    """Whether the message is plausible to a node that knows `latest`."""
    return all(is_epoch(each, latest) for each in _epochs(body)) and _is_valid(body)


def is_epoch(epoch: Epoch, latest: Epoch = NO_EPOCH) -> bool:
    """Whether the epoch is plausible: not far beyond the latest known one.

    An invented epoch could otherwise leave no numbers for later ones.
    """
    most = latest[0] + MAX_EPOCH_JUMP if latest[0] else MAX_EPOCH
    return 0 <= epoch[0] <= most and 0 <= epoch[2] <= MAX_INDEX


def is_valid_position(position: OrderPosition, latest: Epoch = NO_EPOCH) -> bool:
    return is_epoch(epoch_of(position), latest) and 0 <= position[3] <= MAX_INDEX


def _epochs(body: Body) -> list[Epoch]:
    """All epochs in the message."""
    match body:
        case PositionRequest():
            return [body.latest]
        case PrepareEpoch() | CurrentEpoch():
            return [body.epoch]
        case EpochPromise():
            return [body.epoch, body.latest, *[held.epoch for held in body.held]]
        case HolderQuery():
            return [body.latest, *_ends(body)]
        case HolderReply():
            return [*_ends(body), *[held.epoch for held in body.held]]
        case PositionQuery():
            return [body.held.epoch, body.latest]
        case PositionGrant() | PositionPending() | PositionVoid():
            return [body.held.epoch]


def _ends(body: HolderQuery | HolderReply) -> list[Epoch]:
    return [epoch_of(each) for each in (body.low, body.high) if each is not None]


def _is_valid(body: Body) -> bool:
    match body:
        case PositionRequest():
            return all(0 <= each <= MAX_INDEX for each in (body.incarnation, body.request))
        case PositionGrant() | PositionQuery() | PositionPending() | PositionVoid():
            return _is_valid_range(body.held)
        case PrepareEpoch():
            return len(body.suspected) <= MAX_SUSPECTED
        case EpochPromise():
            most = max(len(body.suspected), len(body.in_contact))
            return most <= MAX_SUSPECTED and _are_valid_ranges(body.held)
        case HolderReply():
            return len(body.excluded) <= MAX_SUSPECTED and _are_valid_ranges(body.held)
        case HolderQuery():
            return all(each is None or 0 <= each[3] <= MAX_INDEX for each in (body.low, body.high))
    return True


def _are_valid_ranges(ranges: tuple[PositionRange, ...]) -> bool:
    return len(ranges) <= MAX_HELD and all(map(_is_valid_range, ranges))


def _is_valid_range(held: PositionRange) -> bool:
    return 1 <= held.first <= held.last <= MAX_INDEX
