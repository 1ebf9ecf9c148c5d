"""Which nodes are lost: they were asked again and again, and neither answer nor can be reached.

Where links lose much, pings are lost too, and the map takes nodes for cut off that are not. Whoever
went on without them at once would miss what they have. Letters get through all the same, within a
fraction of `SUSPECT_AFTER_US` over any number of such links; so only who is silent for all of it is
lost. It stays so until it can be reached, or is heard of, or another node says that it is in touch
with it.
"""

from __future__ import annotations

from typing import Final

from accord.core.overlay.link_state import LinkStateMap

SUSPECT_AFTER_US: Final = 4_000_000
VOUCHED_US: Final = 1_000_000  # to answer for one that another is in touch with
LATELY_US: Final = SUSPECT_AFTER_US // 2
_MOST: Final = 4_096


class _Asked:
    __slots__ = ("first_us", "is_lost", "last_us")

    def __init__(self, now_us: int) -> None:
        self.first_us = now_us
        self.last_us = now_us
        self.is_lost = False


class FailureDetector:
    """Of one node, with all others."""

    def __init__(self, name: str, net: LinkStateMap) -> None:
        self._name = name
        self._map = net
        self._asked: dict[str, _Asked] = {}  # who has not answered since
        self._heard: dict[str, int] = {}  # when each was heard of

    def ask(self, node: str, now_us: int) -> None:
        """It is being asked something that it would answer at once."""
        if node == self._name:
            return
        asked = self._asked.get(node)
        if asked is None or (not asked.is_lost and now_us - asked.last_us >= SUSPECT_AFTER_US):
            asked = self._note(node, now_us)
        asked.last_us = now_us

    def hear(self, node: str, now_us: int) -> bool:
        """Something came from it; True where it was lost."""
        self._heard.pop(node, None)
        while len(self._heard) >= _MOST:
            del self._heard[next(iter(self._heard))]
        self._heard[node] = now_us
        asked = self._asked.pop(node, None)
        return asked is not None and asked.is_lost

    def is_in_touch(self, node: str, now_us: int) -> bool:
        """Whether it can be reached, or was heard of lately."""
        heard_us = self._heard.get(node)
        is_heard = heard_us is not None and now_us - heard_us < LATELY_US
        return node == self._name or is_heard or self._is_reachable(node)

    def vouched(self, node: str, now_us: int) -> None:
        """Another is in touch with it: so it should answer soon."""
        if node != self._name:
            self._note(node, now_us).first_us = now_us - SUSPECT_AFTER_US + VOUCHED_US

    def told_lost(self, node: str, now_us: int) -> None:
        """Another has found that it is lost: here, too, if it can't be reached from here."""
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
        """Those that can be reached, or were not asked for long."""
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
