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
LATELY_US: Final = SUSPECT_AFTER_US // 2
_MOST: Final = 4_096


class _Asked:
    __slots__ = ("first_us", "is_lost", "last_us")

    def __init__(self, now_us: int) -> None:
        self.first_us = now_us
        self.last_us = now_us
        self.is_lost = False


class FailureDetector:
    """One node's suspicions of all others."""

    def __init__(self, name: str, net: LinkStateMap) -> None:
        self._name = name
        self._map = net
        self._asked: dict[str, _Asked] = {}  # nodes that have not replied since
        self._heard: dict[str, int] = {}  # time of the last message of each node

    def ask(self, node: str, now_us: int) -> None:
        """Record a request that a live node would answer at once."""
        if node == self._name:
            return
        asked = self._asked.get(node)
        if asked is None or (not asked.is_lost and now_us - asked.last_us >= SUSPECT_AFTER_US):
            asked = self._note(node, now_us)
        asked.last_us = now_us

    def hear(self, node: str, now_us: int) -> bool:
        """Record a message from a node; True if the node was suspected."""
        self._heard.pop(node, None)
        while len(self._heard) >= _MOST:
            del self._heard[next(iter(self._heard))]
        self._heard[node] = now_us
        asked = self._asked.pop(node, None)
        return asked is not None and asked.is_lost

    def is_in_touch(self, node: str, now_us: int) -> bool:
        """Whether the node is reachable or has sent a message within `LATELY_US`."""
        heard_us = self._heard.get(node)
        is_heard = heard_us is not None and now_us - heard_us < LATELY_US
        return node == self._name or is_heard or self._is_reachable(node)

    def vouched(self, node: str, now_us: int) -> None:
        """Clear a suspicion, as another node has contact; leave `VOUCHED_US` for a reply."""
        if node != self._name:
            self._note(node, now_us).first_us = now_us - SUSPECT_AFTER_US + VOUCHED_US

    def told_lost(self, node: str, now_us: int) -> None:
        """Adopt another node's suspicion, unless the node is reachable from here."""
        if node != self._name and not self._is_reachable(node):
            self._note(node, now_us).is_lost = True

    def is_lost(self, node: str, now_us: int) -> bool:
        asked = self._asked.get(node)
        if asked is None:
            return False
        if self._is_reachable(node):
            asked.is_lost = False
        elif now_us - asked.first_us >= SUSPECT_AFTER_US > now_us - asked.last_us:
            asked.is_lost = True
        return asked.is_lost

    def forget(self, now_us: int) -> None:
        """Expire old entries, except suspected nodes that are unreachable."""
        for node, asked in list(self._asked.items()):
            is_old = now_us - asked.last_us >= 10 * SUSPECT_AFTER_US
            if is_old and (not asked.is_lost or self._is_reachable(node)):
                del self._asked[node]
        heard = self._heard.items()
        self._heard = {each: at_us for each, at_us in heard if now_us - at_us < LATELY_US}

    def clear(self) -> None:
        self._asked.clear()
        self._heard.clear()

    def __len__(self) -> int:
        return len(self._asked) + len(self._heard)

    def check_invariants(self) -> None:
        assert len(self._asked) <= _MOST
        assert len(self._heard) <= _MOST
        assert self._name not in self._asked

    def _note(self, node: str, now_us: int) -> _Asked:
        self._asked.pop(node, None)
        while len(self._asked) >= _MOST:
            del self._asked[next(iter(self._asked))]
        asked = self._asked[node] = _Asked(now_us)
        return asked

    def _is_reachable(self, node: str) -> bool:
        return self._map.is_reachable(self._name, node)
