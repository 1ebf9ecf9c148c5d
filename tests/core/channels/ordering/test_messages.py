"""What can be said of epochs and places, and what nobody can have said."""

from __future__ import annotations

import msgspec
import pytest

from accord.core.channels.ordering.messages import (
    MAX_EPOCH,
    MAX_EPOCH_JUMP,
    MAX_SUSPECTED,
    NO_EPOCH,
    Body,
    CurrentEpoch,
    Epoch,
    EpochPromise,
    HolderQuery,
    HolderReply,
    PositionGrant,
    PositionPending,
    PositionQuery,
    PositionRange,
    PositionRequest,
    PositionVoid,
    PrepareEpoch,
    is_plausible,
    is_valid_position,
    position_at,
)

KNOWN: Epoch = (7, "b", 1)


def said(epoch: Epoch) -> list[Body]:
    """All that can be said of an epoch."""
    held = PositionRange(epoch, 1, 3, "b", 1)
    sane = PositionRange(KNOWN, 1, 3, "b", 1)
    stamp, other = position_at(epoch, 3), position_at(KNOWN, 3)
    return [
        PositionRequest(1, 1, 1, epoch),
        PrepareEpoch(epoch),
        EpochPromise(epoch, KNOWN, ()),
        EpochPromise(KNOWN, epoch, ()),
        EpochPromise(KNOWN, KNOWN, (sane, held)),
        CurrentEpoch(epoch),
        HolderQuery(stamp, other),
        HolderQuery(None, stamp),
        HolderQuery(None, other, epoch),
        HolderReply(None, stamp, "", (sane,), is_complete=True),
        HolderReply(None, other, "", (held,), is_complete=True),
        *(
            PositionGrant(1, held),
            PositionQuery(held),
            PositionQuery(sane, epoch),
            PositionPending(held),
            PositionVoid(held),
        ),
    ]


@pytest.mark.parametrize("epoch", [NO_EPOCH, KNOWN, (8, "c", 2**62), (7 + MAX_EPOCH_JUMP, "c", 0)])
def test_what_can_be_said_of_epochs(epoch: Epoch) -> None:
    assert all(is_plausible(each, KNOWN) for each in said(epoch))
    assert all(is_plausible(each) for each in said(epoch))


@pytest.mark.parametrize(
    "epoch",
    [
        (8 + MAX_EPOCH_JUMP, "c", 0),
        (2**64 - 1, "evil", 5),
        (-1, "c", 0),
        (1, "c", -1),
        (1, "c", 2**63),
    ],
)
def test_what_can_not_be_said_of_them(epoch: Epoch) -> None:
    assert not any(is_plausible(each, KNOWN) for each in said(epoch))


def test_who_knows_of_none_believes_more_but_not_all() -> None:
    assert is_plausible(CurrentEpoch((MAX_EPOCH, "c", 1)))
    assert not is_plausible(CurrentEpoch((MAX_EPOCH + 1, "c", 1)))
    assert is_plausible(CurrentEpoch((MAX_EPOCH + 1, "c", 1)), (MAX_EPOCH, "c", 1)), (
        "there is one more"
    )


@pytest.mark.parametrize("place", [-1, 2**63])
def test_places_are_bounded_too(place: int) -> None:
    assert is_valid_position(position_at(KNOWN, 3), KNOWN)
    assert not is_valid_position(position_at(KNOWN, place), KNOWN)
    assert not is_plausible(HolderQuery(None, position_at(KNOWN, place)), KNOWN)
    assert not is_plausible(PositionGrant(1, PositionRange(KNOWN, place, place, "b", 1)), KNOWN)
    assert not is_plausible(PositionRequest(1, place, 1, KNOWN), KNOWN)


def test_nobody_is_in_touch_with_more_than_there_can_be() -> None:
    collected = EpochPromise(NO_EPOCH, NO_EPOCH, (), in_contact=("n",) * MAX_SUSPECTED)
    assert is_plausible(collected)
    assert not is_plausible(
        msgspec.structs.replace(collected, in_contact=("n",) * (MAX_SUSPECTED + 1))
    )


def test_nor_were_more_left_out() -> None:
    holders = HolderReply(
        None, position_at(KNOWN, 3), "", (), is_complete=True, excluded=("n",) * MAX_SUSPECTED
    )
    assert is_plausible(holders)
    assert not is_plausible(msgspec.structs.replace(holders, excluded=("n",) * (MAX_SUSPECTED + 1)))
