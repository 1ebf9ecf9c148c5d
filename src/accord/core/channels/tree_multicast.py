"""Best-effort multicast along trees: each event is sent once per link, and losses are not repaired.

The publishing node chooses the tree, and every node on it forwards the event to all its tree
neighbours except the one it came from. An event therefore crosses each link of its tree once, and
cannot loop, whatever other events and trees are in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import msgspec

from accord.core.channels.members import Members, Rendezvous
from accord.core.channels.template import (
    BEST_EFFORT,
    NO_DUPLICATES,
    Check,
    Context,
    Template,
    number,
)
from accord.core.channels.trees.tree import FACTOR, Digest, Tree, problem_with_tree
from accord.core.channels.trees.tree_cache import KnownTrees, TreeCache
from accord.core.model.errors import decode_or_none
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.duplicate_filter import DuplicateFilter
from accord.core.overlay.signalling import TransitEvent

SPANNER: Final = "spanner"  # option: allowed stretch of paths
MAX_FACTOR: Final = 1_000.0
NO_PATH: Final = "no path to all members"
_SWEEP_US: Final = 10_000_000


class TreeHeader(msgspec.Struct, frozen=True, array_like=True):
    """The tree an event follows: its digest, and the tree if the next hop may not know it."""

    digest: Digest
    tree: Tree | None = None


class TreeAck(msgspec.Struct, frozen=True, array_like=True, tag="have"):
    """Acknowledges a tree; with `is_missing`, requests it."""

    digest: Digest
    is_missing: bool = False


_encode: Final = msgspec.msgpack.Encoder().encode
_headers: Final = msgspec.msgpack.Decoder(TreeHeader)
_acks: Final = msgspec.msgpack.Decoder(TreeAck)


class TreeMulticast(Template):
    """Common base of `single_source` and `unreliable`; they differ in the root of the tree."""

    promises: ClassVar[tuple[str, ...]] = (NO_DUPLICATES, BEST_EFFORT)
    options: ClassVar[Mapping[str, Check]] = {SPANNER: number(1, MAX_FACTOR)}

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.members = Members(context.watch)
        self.rendezvous = Rendezvous(context.name, context.map)
        self.tree_cache = TreeCache(context.map)
        self.trees = KnownTrees(context.name)
        self._duplicates = DuplicateFilter()
        self._number = 0
        self._sweep_us = 0  # 0: nothing to expire

    def root(self, channel: str) -> str:
        raise NotImplementedError

    def on_published(
        self,
        event: TransitEvent,
        destinations: list[str],
        definition: ChannelDefinition,
        now_us: int,
    ) -> None:
        own = self.context.name
        wanted = self._tree_members(event.channel, destinations)
        grown = self.tree_cache.tree(
            self.root(event.channel), wanted, factor_of(definition), now_us
        )
        reachable = self.context.map.distances(own).costs
        if not all(each in reachable for each in destinations):
            self.context.report_dropped(event, NO_PATH)
        self._number += 1
        event = msgspec.structs.replace(
            event,
            source=own,
            incarnation=self.context.incarnation,
            number=self._number,
            is_droppable=True,
        )
        self._schedule_sweep(now_us)
        self.trees.learn(grown.tree, grown.digest, now_us)
        self._forward(event, grown.digest, "", now_us)

    def tree(self, channel: str) -> Tree | None:
        """The tree of the last local event; None if the members have changed since."""
        definition = self.context.definition(channel)
        if definition is None:
            return None
        return self.tree_cache.cached(
            self.root(channel), self._tree_members(channel), factor_of(definition)
        )

    def on_event(self, neighbour: str, event: TransitEvent, now_us: int) -> None:
        note = decode_or_none(_headers, event.header)
        if note is None:
            return
        self._schedule_sweep(now_us)
        if note.tree is not None and not self._learn(neighbour, event.channel, note, now_us):
            return
        if self.trees.neighbours(note.digest, now_us) is None:
            self._send(neighbour, event.channel, TreeAck(note.digest, is_missing=True))
            return
        if not self._duplicates.is_new(event.source, event.incarnation, event.number):
            return
        if self.members.has(event.channel, self.context.name):
            self.context.deliver(event)
        self._forward(event, note.digest, neighbour, now_us)

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        have = decode_or_none(_acks, body)
        if have is None:
            return
        if have.is_missing:
            self.trees.unconfirm(neighbour, have.digest)
        else:
            self.trees.confirm(neighbour, have.digest, now_us)

    def advance(self, now_us: int) -> None:
        if 0 < self._sweep_us <= now_us:
            self.trees.expire(now_us)
            self.tree_cache.expire(now_us)
            is_empty = not self.trees and not self.tree_cache
            self._sweep_us = 0 if is_empty else now_us + _SWEEP_US

    def next_due_us(self) -> int | None:
        return self._sweep_us or None

    def retained_state(self) -> dict[str, int]:
        return {"trees": len(self.trees), "grown": len(self.tree_cache)}

    def check_invariants(self) -> None:
        self.members.check_invariants()
        self.rendezvous.check_invariants()
        self.tree_cache.check_invariants()
        self.trees.check_invariants()
        self._duplicates.check_invariants()

    def _tree_members(self, channel: str, destinations: Iterable[str] = ()) -> tuple[str, ...]:
        """All nodes that the tree must reach, sorted by name."""
        return tuple(sorted({*self.members.of(channel), *destinations, self.context.name}))

    def _learn(self, neighbour: str, channel: str, header: TreeHeader, now_us: int) -> bool:
        """Store a tree that came with an event; False if it is invalid."""
        tree = header.tree
        assert tree is not None
        if problem_with_tree(tree) or tree.digest() != header.digest:
            return False
        self.trees.learn(tree, header.digest, now_us)
        self.trees.confirm(neighbour, header.digest, now_us)
        self._send(neighbour, channel, TreeAck(header.digest))
        return True

    def _forward(self, event: TransitEvent, digest: Digest, origin: str, now_us: int) -> None:
        for neighbour in self.trees.neighbours(digest, now_us) or ():
            if neighbour != origin:
                note = TreeHeader(digest, self.trees.to_attach(neighbour, digest, now_us))
                self.context.forward(
                    neighbour, msgspec.structs.replace(event, header=_encode(note))
                )

    def _send(self, neighbour: str, channel: str, message: TreeAck) -> None:
        self.context.send_message(neighbour, channel, _encode(message))

    def _schedule_sweep(self, now_us: int) -> None:
        self._sweep_us = self._sweep_us or now_us + _SWEEP_US


class SingleSource(TreeMulticast):
    """Roots the tree at the source: shortest paths, for events that may be lost."""

    def root(self, channel: str) -> str:  # noqa: ARG002
        return self.context.name


class Unreliable(TreeMulticast):
    """Roots the tree at the rendezvous: one tree for all sources that are members too."""

    def root(self, channel: str) -> str:
        return self.rendezvous.of(channel)


def factor_of(definition: ChannelDefinition) -> float:
    """Allowed ratio of path length to shortest path length of a channel."""
    try:
        factor = float(definition.options.get(SPANNER, FACTOR))
    except ValueError:
        return FACTOR
    return factor if 1 <= factor <= MAX_FACTOR else FACTOR
