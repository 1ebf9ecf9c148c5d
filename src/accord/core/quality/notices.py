"""Outputs of a negotiation to subscribers, publishers, the node and its neighbours."""

from __future__ import annotations

import enum

import msgspec

from accord.core.quality.matching import MatchState, UnmetReason
from accord.core.quality.messages import QualityMessage
from accord.core.quality.properties import Value


class AdaptationDecision(enum.Enum):
    """The action taken for an expectation that is not satisfied."""

    NONE = ""
    ADAPTING = "adapting"
    TOO_COSTLY = "declined: satisfying it would cost too much"
    OUTRANKED = "declined: a better alternative of the subscription is satisfied"
    CONFLICT = "declined: satisfying it would break what matters more"
    FAILED = "what was tried did not help"


class StateChanged(msgspec.Struct, frozen=True):
    """To a subscriber: the new state of its expectation, with reasons unless it is satisfied."""

    subscription: str
    expectation: str
    state: MatchState
    decision: AdaptationDecision = AdaptationDecision.NONE
    reasons: tuple[UnmetReason, ...] = ()


class UsageChanged(msgspec.Struct, frozen=True):
    """To a publisher: how many expectations depend on its profile, and their total utility."""

    publisher: str
    channel: str
    expectations: int
    utility: float


class Advice(msgspec.Struct, frozen=True):
    """To a publisher: operate this capability at `target`; `is_release`: less is sufficient now."""

    publisher: str
    channel: str
    property: str
    target: Value
    is_release: bool = False


class MechanismStep(enum.Enum):
    """One action of a mechanism."""

    ADVISE = "advise the publisher"
    FILTER_RATE = "filter its rate at the node"
    RAISE_IMPORTANCE = "raise its importance"
    ADD_PATH = "add a path"
    SHAPE = "shape its events"


class ApplyMechanism(msgspec.Struct, frozen=True):
    """To the node: apply this step to a publisher's events on a channel until it is withdrawn.

    A repeated number replaces the target.
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
