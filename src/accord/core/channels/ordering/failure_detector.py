"""Failure detector: suspects a node that neither replies to repeated requests nor is reachable.

On very lossy links pings are lost too, and the map shows nodes as cut off that are not. Proceeding
without them at once would miss the positions they hold. Control unicasts still get through, within
a fraction of `SUSPECT_AFTER_US` over any number of such links, so only a node that is silent for
that whole time is suspected. It stays suspected until it is reachable, a message of it arrives, or
another node reports contact with it.
"""

from __future__ import annotations

from typing import Final

from accord.core.overlay.link_state import LinkStateMap

SUSPECT_AFTER_US: Final = 4_000_000
VOUCHED_US: Final = 1_000_000  # left to reply for a node that another node is in contact with
RECENT_US: Final = SUSPECT_AFTER_US // 2
_MAX_NODES: Final = 4_096


class _Asked:
    __slots__ = ("first_us", "is_suspected", "last_us")

    def __init__(self, now_us: int) -> None:
        self.first_us = now_us
        self.last_us = now_us
        self.is_suspected = False


class FailureDetector:
    """One node's suspicions of all others."""

    def __init__(self, name: str, net: LinkStateMap) -> None:
        self._name = name
        self._map = net
        self._unanswered: dict[str, _Asked] = {}  # nodes that have not replied since
        self._received_us: dict[str, int] = {}  # time of the last message of each node

    def expect_reply(self, node: str, now_us: int) -> None:
        """Record a request that a live node would answer at once."""
        if node == self._name:
            return
        asked = self._unanswered.get(node)
        if asked is None or (not asked.is_suspected and now_us - asked.last_us >= SUSPECT_AFTER_US):
            asked = self._await_reply(node, now_us)
        asked.last_us = now_us

    def on_message(self, node: str, now_us: int) -> bool:
        """Record a message from a node; True if the node was suspected."""
        self._received_us.pop(node, None)
        while len(self._received_us) >= _MAX_NODES:
            del self._received_us[next(iter(self._received_us))]
        self._received_us[node] = now_us
        asked = self._unanswered.pop(node, None)
        return asked is not None and asked.is_suspected

    def is_in_contact(self, node: str, now_us: int) -> bool:
        """Whether the node is reachable or has sent a message within `RECENT_US`."""
        received_us = self._received_us.get(node)
        is_recent = received_us is not None and now_us - received_us < RECENT_US
        return node == self._name or is_recent or self._is_reachable(node)

    def clear_suspicion(self, node: str, now_us: int) -> None:
        """Clear a suspicion, as another node has contact; leave `VOUCHED_US` for a reply."""
        if node != self._name:
            self._await_reply(node, now_us).first_us = now_us - SUSPECT_AFTER_US + VOUCHED_US

    def adopt_suspicion(self, node: str, now_us: int) -> None:
        """Adopt another node's suspicion, unless the node is reachable from here."""
        if node != self._name and not self._is_reachable(node):
            self._await_reply(node, now_us).is_suspected = True

    def is_suspected(self, node: str, now_us: int) -> bool:
        asked = self._unanswered.get(node)
        if asked is None:
            return False
        if self._is_reachable(node):
            asked.is_suspected = False
        elif now_us - asked.first_us >= SUSPECT_AFTER_US > now_us - asked.last_us:
            asked.is_suspected = True
        return asked.is_suspected

    def expire(self, now_us: int) -> None:
        """Expire old entries, except suspected nodes that are unreachable."""
        for node, asked in list(self._unanswered.items()):
            is_old = now_us - asked.last_us >= 10 * SUSPECT_AFTER_US
            if is_old and (not asked.is_suspected or self._is_reachable(node)):
                del self._unanswered[node]
        received = self._received_us.items()
        self._received_us = {each: at_us for each, at_us in received if now_us - at_us < RECENT_US}

    def clear(self) -> None:
        self._unanswered.clear()
        self._received_us.clear()

    def __len__(self) -> int:
        return len(self._unanswered) + len(self._received_us)

    def check_invariants(self) -> None:
        assert len(self._unanswered) <= _MAX_NODES
        assert len(self._received_us) <= _MAX_NODES
        assert self._name not in self._unanswered

    def _await_reply(self, node: str, now_us: int) -> _Asked:
        self._unanswered.pop(node, None)
        while len(self._unanswered) >= _MAX_NODES:
            del self._unanswered[next(iter(self._unanswered))]
        asked = self._unanswered[node] = _Asked(now_us)
        return asked

    def _is_reachable(self, node: str) -> bool:
        return self._map.is_reachable(self._name, node)
