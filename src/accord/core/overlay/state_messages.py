"""Messages that replicate state records, and the bounds within which they are accepted.

An origin's version is the pair of its incarnation and change count: the higher pair is newer.
"""

from __future__ import annotations

from typing import Final

import msgspec

# Exact as a double in every language, with room above it in every encoding.
MAX_STAMP: Final = 2**53
# Of an origin not known before: leaves it room to go beyond what others claimed in its name.
MAX_FIRST_INCARNATION: Final = MAX_STAMP // 2
MAX_NAME: Final = 256
MAX_KIND: Final = 64
MAX_KEY: Final = 1_024

OriginVersion = tuple[int, int]  # incarnation, version
NOTHING: Final[OriginVersion] = (0, 0)


class StateRecord(msgspec.Struct, frozen=True, array_like=True, tag="fact"):
    """Value of `key` as of its origin's `version`; None is a tombstone."""

    kind: str
    key: str
    value: bytes | None
    version: int


class StateDelta(msgspec.Struct, frozen=True, array_like=True, tag="facts"):
    """Changes of `origin` in (base, version], by version; from base 0 a snapshot."""

    origin: str
    incarnation: int
    base: int
    version: int
    records: tuple[StateRecord, ...]


class StateDigest(msgspec.Struct, frozen=True, array_like=True, tag="digest"):
    """Hash over the versions of all origins."""

    hash: int


class VersionVector(msgspec.Struct, frozen=True, array_like=True, tag="stamps"):
    """Versions of these origins that the sender holds and offers; `is_complete`: it has no others.

    In that case `expired` lists expired origins that it does not want, up to which version.
    """

    versions: dict[str, OriginVersion]
    is_complete: bool = False
    expired: dict[str, OriginVersion] = msgspec.field(default_factory=dict)


class DeltaRequest(msgspec.Struct, frozen=True, array_like=True, tag="wanted"):
    """Request for the changes of `origin` after the version that the sender has."""

    origin: str
    incarnation: int
    version: int


FactMessage = StateDelta | StateDigest | VersionVector | DeltaRequest


class StateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Timers and bounds of a store. All nodes should have the same bounds."""

    flush_us: int = 5_000  # changes within this time are sent together
    own_us: int = 20_000  # long-term interval between floods of own changes,
    own_burst: int = 20  # after a burst of so many
    digest_us: int = 1_000_000
    request_us: int = 500_000  # until a request is retransmitted; the timeout then doubles
    requests_limit: int = 32  # origins requested from one neighbour at a time
    push_bytes: int = 262_144  # pushed to a neighbour between two digests: the rest is offered
    push_limit: int = 4_096  # larger messages are offered
    reply_bytes: int = 65_536  # sent to a neighbour in replies within `flush_us`
    tombstone_us: int = 600_000_000
    tombstones_limit: int = 1_024  # of one origin
    records_limit: int = 10_000  # of one origin
    value_limit: int = 65_536  # bytes
    origin_bytes_limit: int = 1 << 20
    bytes_limit: int = 256 << 20  # of all other origins together
    origins_limit: int = 4_096

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value: int = getattr(self, field)
            if value < 1:
                raise ValueError(f"{field}: expected at least 1, got {value}")


def is_valid_version(stamp: OriginVersion) -> bool:
    """Whether it is a valid version of an origin; the first is 1."""
    return 0 <= stamp[0] <= MAX_STAMP and 0 < stamp[1] <= MAX_STAMP


def is_valid_name(origin: str) -> bool:
    return 0 < len(origin) <= MAX_NAME


def is_valid_record(fact: StateRecord, options: StateOptions) -> bool:
    """Whether it is within the bounds of a single record."""
    return (
        0 < len(fact.kind) <= MAX_KIND
        and len(fact.key) <= MAX_KEY
        and (fact.value is None or len(fact.value) <= options.value_limit)
    )


def is_valid_delta(message: StateDelta, options: StateOptions) -> bool:
    """Whether `message` is well-formed: bounds kept, versions ascending, keys distinct."""
    if not (
        is_valid_name(message.origin)
        and is_valid_version((message.incarnation, message.version))
        and 0 <= message.base < message.version
        and len(message.records) <= options.records_limit + options.tombstones_limit
    ):
        return False
    before = message.base
    keys: dict[tuple[str, str], bool] = {}
    for fact in message.records:
        if not before < fact.version <= message.version:
            return False
        if not is_valid_record(fact, options):
            return False
        before = fact.version
        keys[fact.kind, fact.key] = True
    return len(keys) == len(message.records)
