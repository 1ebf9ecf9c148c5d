"""Routes feedback to secondary nodes, which are not on the link-state map.

Every backbone node announces its children, with one state record per child. Feedback for a
secondary node is sent to all its parents, which hold it in custody as they do events. The standby
therefore has it when the active parent fails, and the child accepts it once.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.channels.channels import Channels
from accord.core.overlay.signalling import TransitEvent
from accord.core.router.rights import FEEDBACK

CHILD: Final = "child"  # kind of state record: incarnation of a child
_ROOM_BYTES: Final = 32 << 10  # share of the node's state records reserved for this kind
_MOST: Final = 8  # parents that get feedback; a child has two, and some it has just left


class FeedbackRouter:
    """Feedback routing at one backbone node."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._overlay = channels.overlay
        self._parents: dict[str, dict[str, bool]] = {}  # by child
        self._copies: dict[int, int] = {}  # copies sent of children's feedback, by `event`
        store = self._overlay.store
        store.reserve(CHILD, _ROOM_BYTES)
        for origin, child, value in store.all(CHILD):
            self._on_record(origin, child, value)
        store.watch(CHILD, self._on_record)

    def on_joined(self, child: str, incarnation: int) -> None:
        """Announce that this node is a parent of `child`."""
        self._overlay.store.put(CHILD, child, msgspec.msgpack.encode(incarnation))

    def on_left(self, child: str) -> None:
        self._overlay.store.drop(CHILD, child)

    def destinations(self, node: str) -> list[str]:
        """Nodes that get feedback for `node`: itself, or its parents; none if it is unknown.

        Reachable parents are preferred: the others would not acknowledge soon.
        """
        if self._is_reachable(node):
            return [node]
        parents = list(self._parents.get(node, ()))
        if parents:
            return ([each for each in parents if self._is_reachable(each)] or parents)[:_MOST]
        return [node] if self._channels.knows(node) else []

    def send(self, event: TransitEvent, nodes: list[str], channel: str, now_us: int) -> None:
        """Send feedback to the nodes other than this one, as `channel` requires."""
        if event.child and len(nodes) > 1:
            self._copies[event.event] = len(nodes)
        for node in nodes:
            if node != self._overlay.name:
                self._channels.feedback(event, node, channel, now_us)

    def unconfirmed(self) -> list[int]:
        """The `event` numbers of feedback that is not known to have arrived."""
        waiting = self._overlay.sender.unacknowledged(FEEDBACK)
        self._copies = {each: count for each, count in self._copies.items() if each in waiting}
        return [each for each, nodes in waiting.items() if not self._is_with_others(each, nodes)]

    def check_invariants(self) -> None:
        assert all(self._parents.values())
        assert all(1 < count <= _MOST for count in self._copies.values())

    def _is_with_others(self, event: int, nodes: list[str]) -> bool:
        """Whether the parents that lack it have failed, and another parent has it."""
        is_elsewhere = len(nodes) < self._copies.get(event, 1)
        return is_elsewhere and not any(self._is_reachable(each) for each in nodes)

    def _is_reachable(self, node: str) -> bool:
        own = self._overlay.name
        return node == own or self._overlay.map.is_reachable(own, node)

    def _on_record(self, parent: str, child: str, value: bytes | None) -> None:
        parents = self._parents.setdefault(child, {})
        if value is not None:
            parents[parent] = True
        else:
            parents.pop(parent, None)
        if not parents:
            del self._parents[child]
