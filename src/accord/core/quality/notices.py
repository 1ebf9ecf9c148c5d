"""What comes out of a negotiation, for subscribers, publishers, the node and its neighbours."""

from __future__ import annotations

import enum

import msgspec

from accord.core.quality.matching import MatchState, UnmetReason
from accord.core.quality.messages import QualityMessage
from accord.core.quality.properties import Value


class AdaptationDecision(enum.Enum):
    """What is done about an expectation that is not satisfied."""

    NONE = ""
    ADAPTING = "adapting"
    TOO_COSTLY = "declined: satisfying it would cost too much"
    OUTRANKED = "declined: a better alternative of the subscription is satisfied"
    CONFLICT = "declined: satisfying it would break what matters more"
    FAILED = "what was tried did not help"


class StateChanged(msgspec.Struct, frozen=True):
    """To a subscriber: how its expectation stands now, and while it is not satisfied why."""

    subscription: str
    expectation: str
    state: MatchState
    decision: AdaptationDecision = AdaptationDecision.NONE
    reasons: tuple[UnmetReason, ...] = ()


class UsageChanged(msgspec.Struct, frozen=True):
    """To a publisher: how many expectations rely on its profile, and their utility in all."""

    publisher: str
    channel: str
    expectations: int
    utility: float


class Advice(msgspec.Struct, frozen=True):
    """To a publisher: operate this capability at `target`; `is_release`: less is enough now."""

    publisher: str
    channel: str
    property: str
    target: Value
    is_release: bool = False


class MechanismStep(enum.Enum):
    """What a mechanism does."""

    ADVISE = "advise the publisher"
    FILTER_RATE = "filter its rate at the node"
    RAISE_IMPORTANCE = "raise its importance"
    ADD_PATH = "add a path"
    SHAPE = "shape its events"


class ApplyMechanism(msgspec.Struct, frozen=True):
    """To the node: do this for what a publisher sends on a channel, until it is withdrawn.

    The same number again means another target.
    """

    reaction: int
    step: MechanismStep
    publisher: str
    channel: str
    property: str
    target: Value


class WithdrawMechanism(msgspec.Struct, frozen=True):
    """To the node: undo all steps of a reaction."""

    reaction: int


class SendToNeighbour(msgspec.Struct, frozen=True):
    """To a neighbour."""

    neighbour: str
    message: QualityMessage


Notice = StateChanged | UsageChanged | Advice | ApplyMechanism | WithdrawMechanism | SendToNeighbour
