"""The channel directory: the channel definitions of all nodes of the overlay.

It is a last-writer-wins map over the state records of kind "channel". Each node writes only its own
definitions, so two nodes may define the same name concurrently. Then the definition created last
wins, at equal times the one of the greater node name; every node decides alike. The losing node
withdraws its own and reports it through `on_overridden`, unless both are equal. Deleting a
definition of another node writes a tombstone with a later time, which stays until the name is
defined again, so that a node that was unreachable does not bring the old definition back.

Clocks differ, so a creation or deletion always gets a later time than the entries it replaces.

The traits of a channel are what its template requires of a node where clients publish to it.
Request and reply bodies for channels are the same over HTTP and on `$accord/channels`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from accord.core.model.channels import ChannelMap, problem_with_filter
from accord.core.model.errors import PolicyError
from accord.core.overlay.state_messages import MAX_KEY, MAX_STAMP
from accord.core.overlay.state_store import StateStore
from accord.core.overlay.status import ChannelStatus

CHANNEL: Final = "channel"
MAX_PATHS: Final = 8
MAX_OPTIONS: Final = 64
MAX_TEXT: Final = 1_024
MAX_LEVELS: Final = 64
_DELETED_LIMIT: Final = 256
_CACHE_LIMIT: Final = 4_096
_ROOM_BYTES: Final = 64 << 10  # reserved in the state store for definitions


class ChannelDefinition(msgspec.Struct, frozen=True, array_like=True, tag="channel"):
    """Defines how events of a channel, or of a filter's channels, travel between nodes."""

    name: str  # or a filter, as uav/#
    template: str = "routed"
    max_delay_us: int = 0  # 0: any
    paths: int = 1
    resiliency: float = 0.0
    options: dict[str, str] = msgspec.field(default_factory=dict)
    created_us: int = 0


class ChannelTombstone(msgspec.Struct, frozen=True, array_like=True, tag="deleted"):
    """Marks older definitions of this name as deleted."""

    name: str
    created_us: int


DirectoryEntry = ChannelDefinition | ChannelTombstone
# The own definition, the winning one (None: it was deleted), and the winner's node.
Lost = Callable[[ChannelDefinition, ChannelDefinition | None, str], None]

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[DirectoryEntry]] = msgspec.msgpack.Decoder(DirectoryEntry)


def problem_with_definition(definition: ChannelDefinition) -> str | None:
    """The problem with a definition and what was expected, or None."""
    if problem := problem_with_filter(definition.name):
        return f"name: {problem}"
    if len(definition.name) > MAX_KEY:
        return f"name: {len(definition.name)} characters, at most {MAX_KEY} accepted"
    if (levels := definition.name.count("/") + 1) > MAX_LEVELS:
        return f"name: {levels} levels, at most {MAX_LEVELS} accepted"
    if not 0 < len(definition.template) <= MAX_TEXT:
        return f"template: expected 1 to {MAX_TEXT} characters, got {len(definition.template)}"
    if not 0 <= definition.max_delay_us <= MAX_STAMP:
        return f"max_delay_us: expected 0 or more, got {definition.max_delay_us}"
    if not 1 <= definition.paths <= MAX_PATHS:
        return f"paths: expected 1 to {MAX_PATHS}, got {definition.paths}"
    if not (isfinite(definition.resiliency) and 0 <= definition.resiliency <= 1):
        return f"resiliency: expected 0 to 1, got {definition.resiliency}"
    if len(definition.options) > MAX_OPTIONS:
        return f"options: {len(definition.options)}, at most {MAX_OPTIONS} accepted"
    for name, value in definition.options.items():
        if not (0 < len(name) <= MAX_TEXT and len(value) <= MAX_TEXT):
            return f"options: expected at most {MAX_TEXT} characters each, got {name[:32]!r}"
    if not 0 <= definition.created_us <= MAX_STAMP:
        return f"created_us: expected 0 or more, got {definition.created_us}"
    return None


class ChannelDirectory:
    """View on the definitions; `version` changes whenever a result of `look_up` may change."""

    def __init__(self, store: StateStore, on_overridden: Lost | None = None) -> None:
        self.version = 0
        self.malformed = 0
        self._store = store
        self._on_overridden = on_overridden
        self._entries: dict[str, dict[str, DirectoryEntry]] = {}  # by name and origin
        self._defined: ChannelMap[ChannelDefinition] = ChannelMap()
        self._cache: dict[str, ChannelDefinition | None] = {}
        store.reserve(CHANNEL, _ROOM_BYTES)
        for origin, name, value in store.all(CHANNEL):
            self._on_change(origin, name, value)
        store.watch(CHANNEL, self._on_change)

    def create(self, definition: ChannelDefinition, *, replace: bool = False) -> str | None:
        """Define a channel; returns why not, or None. Repeating a definition changes nothing."""
        if problem := problem_with_definition(definition):
            return problem
        name = definition.name
        known = self.get(name)
        if known is not None and is_same(known, definition):
            return None
        if known is not None and not replace:
            where = f"{name!r} is defined at node {self.origin_of(name)!r} already"
            return f"{where}: delete it first, or replace it (--replace; replaces in a request)"
        created_us = max(definition.created_us, self._latest_us(name) + 1)
        return self._write_entry(msgspec.structs.replace(definition, created_us=created_us))

    def delete(self, name: str) -> str | None:
        """Delete a definition of any node; returns why not, or None."""
        if self.get(name) is None:
            return f"{name!r} is not defined; `accord channel ls` shows what is"
        if list(self._entries[name]) == [self._store.name]:
            self._store.drop(CHANNEL, name)
            return None
        if not self._has_room_to_delete():
            return f"{_DELETED_LIMIT} deletions have not reached their nodes yet: try again later"
        return self._write_entry(ChannelTombstone(name, self._latest_us(name) + 1))

    def get(self, name: str) -> ChannelDefinition | None:
        """The definition of exactly this name or filter."""
        return self._defined.get(name)

    def origin_of(self, name: str) -> str:
        """The node whose definition of `name` wins; empty if there is none."""
        winner = self._winner(name)
        return "" if self.get(name) is None or winner is None else winner

    def look_up(self, channel: str) -> ChannelDefinition | None:
        """The definition that applies to a channel: the most specific one that selects it."""
        if channel in self._cache:
            return self._cache[channel]
        found = self._defined.select(channel)
        best = max(found, key=specificity, default=None)
        if len(channel) <= MAX_KEY:
            if len(self._cache) >= _CACHE_LIMIT:
                self._cache.clear()
            self._cache[channel] = best
        return best

    def all(self) -> list[ChannelDefinition]:
        """All definitions, sorted by name."""
        found = [self.get(name) for name in sorted(self._entries)]
        return [each for each in found if each is not None]

    def check_invariants(self) -> None:
        for name, claims in self._entries.items():
            assert claims
            winner = self._winner(name)
            claim = None if winner is None else claims[winner]
            assert self.get(name) == (claim if isinstance(claim, ChannelDefinition) else None)
            for origin, each in claims.items():
                assert each.name == name
                assert _decode_entry(self._store.get(origin, CHANNEL, name)) == each
        assert all(
            self._defined.get(found.name) is found for found in self._cache.values() if found
        )

    def _write_entry(self, claim: DirectoryEntry) -> str | None:
        if claim.created_us > MAX_STAMP:
            return f"the clock of node {self.origin_of(claim.name)!r} is out of range"
        if self._store.put(CHANNEL, claim.name, _encode(claim)):
            return None
        return f"no space for another definition at node {self._store.name!r}"

    def _on_change(self, origin: str, name: str, value: bytes | None) -> None:
        claims = self._entries.setdefault(name, {})
        claim = _decode_entry(value)
        if claim is not None and claim.name == name:
            claims[origin] = claim
        else:
            self.malformed += value is not None
            claims.pop(origin, None)
        self._decide(name, claims)

    def _decide(self, name: str, claims: dict[str, DirectoryEntry]) -> None:
        winner = self._winner(name)
        claim = None if winner is None else claims[winner]
        definition = claim if isinstance(claim, ChannelDefinition) else None
        before = self._defined.get(name)
        if definition != before:
            if definition is not None:
                self._defined.set(name, definition)
            else:
                self._defined.remove(name)
            self._cache.clear()
            self.version += 1
        if not claims:
            del self._entries[name]
        elif winner is not None and winner != self._store.name:
            self._withdraw_own(name, claims, definition, winner)

    def _withdraw_own(
        self,
        name: str,
        claims: dict[str, DirectoryEntry],
        definition: ChannelDefinition | None,
        winner: str,
    ) -> None:
        """Withdraw an own entry that lost."""
        mine = claims.get(self._store.name)
        if mine is None or self._store.get(self._store.name, CHANNEL, name) is None:
            return  # none, or already withdrawn
        if isinstance(mine, ChannelTombstone):
            self._store.drop(CHANNEL, name)
        elif definition is None or not is_same(mine, definition):
            self._store.drop(CHANNEL, name)
            if self._on_overridden is not None:
                self._on_overridden(mine, definition, winner)

    def _winner(self, name: str) -> str | None:
        claims = self._entries.get(name, {})
        return max(claims, key=lambda origin: (claims[origin].created_us, origin), default=None)

    def _latest_us(self, name: str) -> int:
        claims = self._entries.get(name, {})
        return max((claim.created_us for claim in claims.values()), default=-1)

    def _has_room_to_delete(self) -> bool:
        """Own tombstones are bounded: evict the oldest that no other node has an entry for."""
        own = self._store.name
        deleted = [
            name
            for name, claims in self._entries.items()
            if isinstance(claims.get(own), ChannelTombstone)
        ]
        if len(deleted) < _DELETED_LIMIT:
            return True
        past = [name for name in deleted if len(self._entries[name]) == 1]
        if not past:
            return False
        oldest = min(past, key=lambda name: (self._entries[name][own].created_us, name))
        self._store.drop(CHANNEL, oldest)
        return True


def is_same(one: ChannelDefinition, other: ChannelDefinition) -> bool:
    """Whether they are equal but for their creation times."""
    return msgspec.structs.replace(one, created_us=other.created_us) == other


def _decode_entry(value: bytes | None) -> DirectoryEntry | None:
    """None if it is not a valid entry."""
    if value is None:
        return None
    try:
        claim = _decoder.decode(value)
    except (ValueError, RecursionError, OverflowError):
        return None
    if isinstance(claim, ChannelDefinition):
        return None if problem_with_definition(claim) else claim
    return claim if 0 <= claim.created_us <= MAX_STAMP else None


def specificity(definition: ChannelDefinition | ChannelStatus) -> tuple[int, ...]:
    """Sort key, level by level: a name above `+`, that above `#`; the end above all of them."""
    kinds = {"#": 0, "+": 1}
    return (*(kinds.get(level, 2) for level in definition.name.split("/")), 3)


class ChannelTraits(NamedTuple):
    """Requirements of a channel's template; the defaults require nothing."""

    is_ordered: bool = False  # the template alone decides when local clients get events
    can_be_full: bool = False  # publishers may be paused
    problem: str = ""  # why clients cannot publish here
    is_persistent: bool = False  # all events published here are kept, here or at the parent
    goes_up: bool = False  # events are sent to a parent, regardless of interests
    keeps_order: bool = False  # no event overtakes another on its way to a client


DEFAULT_TRAITS: Final = ChannelTraits()


MAX_DELAY_MS: Final = 3_600_000
OPTION_EXPECTED: Final = "expected text, true, false or a number"


class ChannelRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Definition of a channel: 0 ms means any delay, a resiliency of 0 uses all paths.

    The template defines its `options`: a routed one has `datagrams`, true if its QoS 0 events may
    be sent over UDP. Each value is text, true, false or a number.
    """

    template: str = "routed"
    max_delay_ms: Annotated[float, Meta(ge=0, le=MAX_DELAY_MS)] = 0
    paths: Annotated[int, Meta(ge=1, le=MAX_PATHS)] = 1
    resiliency: Annotated[float, Meta(ge=0, le=1)] = 0.0
    options: dict[str, Any] = {}

    def definition(self, name: str) -> ChannelDefinition:
        """The channel definition; raises `PolicyError` for an option of another type."""
        return ChannelDefinition(
            name=name,
            template=self.template,
            max_delay_us=round(self.max_delay_ms * 1_000),
            paths=self.paths,
            resiliency=self.resiliency,
            options={option: _text(option, value) for option, value in self.options.items()},
        )


class Channel(Struct, frozen=True, kw_only=True):
    """Definition of a channel or a filter, the node that made it, and its traffic.

    `flows` lead from publishing nodes to interested nodes; `flows_met` of them meet the
    requirements. `delivered` and `late` count arrivals at all nodes.
    """

    name: str
    template: str
    max_delay_ms: float
    paths: int
    resiliency: float
    node: str
    options: dict[str, str] = {}
    flows: int = 0
    flows_met: int = 0
    delivered: int = 0
    late: int = 0
    missing_at: tuple[str, ...] = ()  # nodes where its template is not installed


class ChannelList(Struct, frozen=True, kw_only=True):
    """All defined channels, sorted by name."""

    channels: tuple[Channel, ...]


def channel_of(status: ChannelStatus) -> Channel:
    return Channel(
        name=status.name,
        template=status.template,
        max_delay_ms=status.max_delay_us / 1_000,
        paths=status.paths,
        resiliency=status.resiliency,
        node=status.node,
        options=status.options,
        flows=status.flows,
        flows_met=status.flows_met,
        delivered=status.delivered,
        late=status.late,
        missing_at=status.missing_at,
    )


def option_text(value: object) -> str | None:
    """An option's value as text for templates; None if it has another type."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if isfinite(value):
            return f"{value:.15g}"
        case _:
            return None


def _text(option: str, value: object) -> str:
    text = option_text(value)
    if text is None:
        raise PolicyError(f"options.{option[:40]}", OPTION_EXPECTED)
    return text
