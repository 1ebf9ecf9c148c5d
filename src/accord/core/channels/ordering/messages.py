"""Places in the order of a channel.

An epoch is the time of one sequencer, from when it took over; later ones count higher. Within it
places are counted from 1. An event has one stamp for ever: its own source asked for it and wrote it
on the event. So whatever becomes of sequencers, two nodes that have both of two events agree which
comes first, if only each hands them over by growing stamps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

Epoch = tuple[int, str, int]  # a count, the sequencer, and its incarnation
OrderPosition = tuple[int, str, int, int]  # an epoch, and the place in it

NO_EPOCH: Final[Epoch] = (0, "", 0)
MAX_PLACES: Final = 64  # given at once
MAX_EPOCH: Final = 1 << 61  # the latest that a node believes which knows of none
FAR: Final = 1 << 32  # later than the latest that is known: epochs are counted one by one
MAX_PLACE: Final = (1 << 63) - 1  # also of incarnations and requests
MAX_HELD: Final = 2_048  # of earlier epochs: a stream's window has no more events
MAX_SHOWN: Final = 64  # sources at once
MAX_LOST: Final = 4_096  # nodes


def epoch_of(stamp: OrderPosition) -> Epoch:
    return stamp[:3]


def stamp_of(epoch: Epoch, place: int) -> OrderPosition:
    return (*epoch, place)


class PositionRange(msgspec.Struct, frozen=True, array_like=True):
    """Places that a source was given, or says that it has; some in between may be of others."""

    epoch: Epoch
    first: int
    last: int
    source: str
    incarnation: int

    def is_between(self, low: OrderPosition | None, high: OrderPosition) -> bool:
        """Whether some of them are; None is before all."""
        first, last = self.first, self.last
        if low is not None and epoch_of(low) == self.epoch:
            first = max(first, low[3] + 1)
        if epoch_of(high) == self.epoch:
            last = min(last, high[3] - 1)
        is_after = low is None or stamp_of(self.epoch, last) > low
        return first <= last and is_after and stamp_of(self.epoch, first) < high


class PositionRequest(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A source wants places; the same `request` again is the same wish."""

    incarnation: int
    request: int
    count: int
    latest: Epoch  # that it knows of


class PositionGrant(msgspec.Struct, frozen=True, array_like=True, tag="grant"):
    request: int
    held: PositionRange


class PrepareEpoch(msgspec.Struct, frozen=True, array_like=True, tag="collect"):
    """A new epoch begins: who answers takes no more places of earlier ones.

    It is to begin without those that are lost, if nobody else is in touch with them.
    """

    epoch: Epoch
    lost: tuple[str, ...] = ()


class EpochPromise(msgspec.Struct, frozen=True, array_like=True, tag="collected"):
    """What a node has of earlier epochs, and the latest it has seen.

    Of those that were said to be `lost` it is in touch with the ones `in_touch`.
    """

    epoch: Epoch
    latest: Epoch
    held: tuple[PositionRange, ...]
    lost: tuple[str, ...] = ()
    in_touch: tuple[str, ...] = ()


class CurrentEpoch(msgspec.Struct, frozen=True, array_like=True, tag="reign"):
    """There is this epoch: whom to ask, or to wait for."""

    epoch: Epoch


class HolderQuery(msgspec.Struct, frozen=True, array_like=True, tag="between"):
    """A member asks who has the places between two stamps, or where `low` is None before one."""

    low: OrderPosition | None
    high: OrderPosition
    latest: Epoch = NO_EPOCH  # that it knows of
    after: str = ""  # the last source it was told of


class HolderReply(msgspec.Struct, frozen=True, array_like=True, tag="holders"):
    """Those whose names come after `after`: all, or the first of them.

    What nodes have of earlier epochs that were `left_out` the sequencer does not know.
    """

    low: OrderPosition | None
    high: OrderPosition
    after: str
    held: tuple[PositionRange, ...]
    is_all: bool
    left_out: tuple[str, ...] = ()


class PositionQuery(msgspec.Struct, frozen=True, array_like=True, tag="yours"):
    """A member asks a source whether what it has at these places will come.

    Who answers takes no more places of epochs before the latest that the member knows of.
    """

    held: PositionRange
    latest: Epoch = NO_EPOCH


class PositionPending(msgspec.Struct, frozen=True, array_like=True, tag="coming"):
    """The first of them may."""

    held: PositionRange


class PositionVoid(msgspec.Struct, frozen=True, array_like=True, tag="void"):
    """These will not; perhaps not all that were asked for."""

    held: PositionRange


def merged(places: Iterable[PositionRange]) -> list[PositionRange]:
    """One range for each source and epoch, by their names."""
    found: dict[tuple[Epoch, str, int], PositionRange] = {}
    for each in places:
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


def is_sane(body: Body, latest: Epoch = NO_EPOCH) -> bool:
    """Whether a node could have said that to one that knows of `latest`."""
    return all(is_epoch(each, latest) for each in _epochs(body)) and _is_sound(body)


def is_epoch(epoch: Epoch, latest: Epoch = NO_EPOCH) -> bool:
    """Whether there can be such an epoch: it is not much later than the latest that is known.

    Else one that a node made up would leave no room for those after it.
    """
    most = latest[0] + FAR if latest[0] else MAX_EPOCH
    return 0 <= epoch[0] <= most and 0 <= epoch[2] <= MAX_PLACE


def is_stamp(stamp: OrderPosition, latest: Epoch = NO_EPOCH) -> bool:
    return is_epoch(epoch_of(stamp), latest) and 0 <= stamp[3] <= MAX_PLACE


def _epochs(body: Body) -> list[Epoch]:
    """All that it speaks of."""
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


def _is_sound(body: Body) -> bool:
    match body:
        case PositionRequest():
            return all(0 <= each <= MAX_PLACE for each in (body.incarnation, body.request))
        case PositionGrant() | PositionQuery() | PositionPending() | PositionVoid():
            return _is_held(body.held)
        case PrepareEpoch():
            return len(body.lost) <= MAX_LOST
        case EpochPromise():
            most = max(len(body.lost), len(body.in_touch))
            return most <= MAX_LOST and _are_held(body.held)
        case HolderReply():
            return len(body.left_out) <= MAX_LOST and _are_held(body.held)
        case HolderQuery():
            return all(each is None or 0 <= each[3] <= MAX_PLACE for each in (body.low, body.high))
    return True


def _are_held(places: tuple[PositionRange, ...]) -> bool:
    return len(places) <= MAX_HELD and all(map(_is_held, places))


def _is_held(held: PositionRange) -> bool:
    return 1 <= held.first <= held.last <= MAX_PLACE
