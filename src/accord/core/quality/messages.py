"""Messages of a negotiation: to neighbours, and to subscribers, publishers and the node.

Between neighbours they are a replicated log of keyed entries. Each node has one log, the same for
all neighbours (`delta_sync`); a neighbour ignores entries that do not concern it. A value of None
deletes the key.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from accord.core.quality.expectations import PropertyRequirement
from accord.core.quality.matching import MatchState, UnmetReason
from accord.core.quality.profiles import Capability
from accord.core.quality.properties import Value

MAX_HOPS: Final = 32
MAX_CHANGES: Final = 256  # per message

EntryKey = tuple[str, ...]
SessionId = tuple[int, int]  # of a receiver: its incarnation, and a count of its sessions

NO_SESSION: Final = (0, 0)
RESET: Final = -1  # base of a delta that resets the receiver


class PropertyInterest(msgspec.Struct, frozen=True, array_like=True, tag="want"):
    """Interest in these properties on these channels, of so many publishers.

    `path` lists the nodes over which it came, sender first.
    """

    channel: str
    properties: tuple[str, ...]
    publishers: int
    path: tuple[str, ...]


class ForwardedProfile(msgspec.Struct, frozen=True, array_like=True, tag="have"):
    """A profile on the sender's skyline; its publisher is known only where it is registered."""

    channel: str  # the filter of the interest
    properties: tuple[str, ...]
    source: str
    path: tuple[str, ...]
    capabilities: tuple[Capability, ...]


class QualityRequest(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Request to the first node of `path`: required values of a forwarded copy, and their utility.

    They may exceed the current values: then the request is to improve them.
    """

    source: str
    path: tuple[str, ...]
    requirements: tuple[PropertyRequirement, ...]
    utility: float


class QualityRejection(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """Reply to `requester`: the request cannot be met; `now` is the property's current value."""

    requester: str
    source: str
    path: tuple[str, ...]  # as in the request
    property: str
    now: Value | None


NegotiationEntry = PropertyInterest | ForwardedProfile | QualityRequest | QualityRejection


class NegotiationChange(msgspec.Struct, frozen=True, array_like=True):
    version: int
    key: EntryKey
    value: NegotiationEntry | None


class NegotiationDelta(msgspec.Struct, frozen=True, array_like=True, tag="quality"):
    """All changes in (base, version]; from base 0: the snapshot at `version`.

    Base `RESET` carries no changes: the receiver goes back to version 0 and acknowledges that.

    `session` is the receiver's, as far as the sender knows it.
    """

    incarnation: int
    base: int
    version: int
    changes: tuple[NegotiationChange, ...]
    session: SessionId = NO_SESSION


class NegotiationAck(msgspec.Struct, frozen=True, array_like=True, tag="heard"):
    """The version of the receiver's log that the sender has, in this session of the sender.

    `incarnation` is the receiver's; 0 if no delta has arrived yet.
    """

    incarnation: int
    version: int
    session: SessionId = NO_SESSION


QualityMessage = NegotiationDelta | NegotiationAck


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
