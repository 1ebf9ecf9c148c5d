"""What neighbours tell each other of quality: values under keys, as changes of versions.

All are said in one stream per node, the same for all its neighbours; whom it does not concern
passes it over. A value that is None takes back what was said under its key.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.quality.expectations import PropertyRequirement
from accord.core.quality.profiles import Capability
from accord.core.quality.properties import Value

MAX_HOPS: Final = 32
MAX_CHANGES: Final = 256  # of one message

EntryKey = tuple[str, ...]
SessionId = tuple[int, int]  # of a listener: its incarnation, and which time it listens

NO_SESSION: Final = (0, 0)
RESET: Final = -1  # as the base of news


class PropertyInterest(msgspec.Struct, frozen=True, array_like=True, tag="want"):
    """Somebody expects these properties on these channels of so many publishers.

    `path` tells who: over which nodes this came, the sender first.
    """

    channel: str
    properties: tuple[str, ...]
    publishers: int
    path: tuple[str, ...]


class ForwardedProfile(msgspec.Struct, frozen=True, array_like=True, tag="have"):
    """A profile of the sender's skyline: whose it is, only the node knows where it begins."""

    channel: str  # the filter that somebody wanted
    properties: tuple[str, ...]
    source: str
    path: tuple[str, ...]
    capabilities: tuple[Capability, ...]


class QualityRequest(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """To the first node of `path`: what is relied on of a copy it told of, and how much it matters.

    That may be more than there is: then it is asked for.
    """

    source: str
    path: tuple[str, ...]
    requirements: tuple[PropertyRequirement, ...]
    utility: float


class QualityRejection(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """To `asker`: what it asked for won't be had; what there is now of the property."""

    asker: str
    source: str
    path: tuple[str, ...]  # as asked
    property: str
    now: Value | None


NegotiationEntry = PropertyInterest | ForwardedProfile | QualityRequest | QualityRejection


class NegotiationChange(msgspec.Struct, frozen=True, array_like=True):
    version: int
    key: EntryKey
    value: NegotiationEntry | None


class NegotiationDelta(msgspec.Struct, frozen=True, array_like=True, tag="quality"):
    """All that changed in (base, version]; from base 0 on: all there is up to `version`.

    From base `RESET` on there is nothing: who is told so knows nothing any more, and says that.

    `session` is the receiver's, as far as the sender knows it.
    """

    incarnation: int
    base: int
    version: int
    changes: tuple[NegotiationChange, ...]
    session: SessionId = NO_SESSION


class NegotiationAck(msgspec.Struct, frozen=True, array_like=True, tag="heard"):
    """In this session of its own the sender is at this version of what the receiver says.

    `incarnation` is the receiver's; 0 where nothing was heard of it yet.
    """

    incarnation: int
    version: int
    session: SessionId = NO_SESSION


QualityMessage = NegotiationDelta | NegotiationAck
