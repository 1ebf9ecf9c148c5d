"""Reasons why a link is refused or ends, readable at both ends, with remedies."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from accord.core.model.errors import AccordError

_PROBLEM_CHARACTERS: Final = 300


class CloseReason(StrEnum):
    """Kinds of reasons; sent as text, so that newer nodes may have more of them."""

    GARBAGE = "garbage"
    TOO_LARGE = "too-large"
    SLOW = "slow"
    IDLE = "idle"
    VERSION = "version"
    KEY = "key"
    NO_KEY = "no-key"
    CERTIFICATE = "certificate"
    NAME = "name"
    SAME_NAME = "same-name"
    ITSELF = "itself"
    TIER = "tier"
    OTHER = "other"  # another node than expected
    DUPLICATE = "duplicate"
    REPLACED = "replaced"
    BUSY = "busy"
    BEHIND = "behind"
    STOPPED = "stopped"
    CLOSED = "closed"  # during the handshake
    LOST = "lost"
    UNREACHABLE = "unreachable"


_REMEDIES: Final[dict[str, str]] = {
    CloseReason.GARBAGE: (
        "check that address and port are those of a node's links, and TLS on both or none"
    ),
    CloseReason.TOO_LARGE: "set the same limits on both nodes",
    CloseReason.SLOW: "check that a node's links listen there, and TLS on both or none",
    CloseReason.CLOSED: "check that a node's links listen there, and TLS on both or none",
    CloseReason.VERSION: "update the older of the two nodes",
    CloseReason.KEY: "give both nodes the same shared key",
    CloseReason.NO_KEY: "give both nodes a shared key, or certificates",
    CloseReason.CERTIFICATE: (
        "give it a certificate for its node name, or give both nodes a shared key"
    ),
    CloseReason.NAME: "choose a name of 1 to 64 bytes without spaces and control characters",
    CloseReason.SAME_NAME: "give each node a name of its own",
    CloseReason.TIER: "name backbone nodes as the neighbours of a secondary one",
    CloseReason.BUSY: "raise the limit of links, or connect to another node",
}


class LinkError(AccordError):
    """Why a link could not be established or has ended; `is_from_peer`: reported by the peer."""

    def __init__(self, reason: str, problem: str, *, is_from_peer: bool = False) -> None:
        self.reason = reason
        self.problem = problem[:_PROBLEM_CHARACTERS]
        self.is_from_peer = is_from_peer
        super().__init__(f"reported by the peer: {self.problem}" if is_from_peer else self.problem)

    @property
    def remedy(self) -> str:
        """Advice for the operator; empty if nothing needs to be done."""
        return _REMEDIES.get(self.reason, "")

    @property
    def is_routine(self) -> bool:
        """Whether it is part of normal operation."""
        return self.reason in (
            CloseReason.DUPLICATE,
            CloseReason.REPLACED,
            CloseReason.ITSELF,
            CloseReason.OTHER,
            CloseReason.STOPPED,
        )
