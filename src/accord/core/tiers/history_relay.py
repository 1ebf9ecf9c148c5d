"""What a parent does for a child that asks for the past of persistent channels.

Questions go on to whoever is asked, and answers back, and nothing is remembered of them; only pages
wait, behind the events for the child. If there are too many they are dropped: the child asks again.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from accord.core.channels.history.messages import HistoryPage, HistoryRequest, Stamp
from accord.core.channels.history.peer_list import Nodes
from accord.core.tiers.messages import ChildHeartbeat, PeerListUpdate, RelayedHistoryReply

MAX_BYTES: Final = 16 << 20  # of pages, for one child; one is always kept
AGAIN_US: Final = 1_000_000
_OVERHEAD: Final = 100


class HistoryPort(Protocol):
    """The past of all nodes, as the parent's node knows them."""

    def relay(self, child: str, node: str, question: HistoryRequest, now_us: int) -> None:
        """Ask `node` for a child."""

    def heard(self) -> Stamp:
        """Who has heard that of this node knows what its children need; zeros before it is told."""

    def roster(self, now_us: int) -> tuple[int, Nodes]:
        """A version, and who may have a past."""


class HistoryRelay:
    """For one child."""

    def __init__(self) -> None:
        self._pages: deque[RelayedHistoryReply] = deque()
        self._bytes = 0
        self._told: tuple[int, int, int] = (0, 0, 0)  # turn, version, and when

    def put(self, page: RelayedHistoryReply) -> None:
        size = _size(page)
        if self._pages and self._bytes + size > MAX_BYTES:
            return
        self._pages.append(page)
        self._bytes += size

    def take(self) -> list[RelayedHistoryReply]:
        """The next page; events may come before the one behind it."""
        if not self._pages:
            return []
        page = self._pages.popleft()
        self._bytes -= _size(page)
        return [page]

    def has_page(self, node: str, number: int) -> bool:
        """Whether the answer waits here already."""
        return any(
            each.node == node and isinstance(each.answer, HistoryPage) and each.answer.id == number
            for each in self._pages
        )

    def roster(
        self, past: HistoryPort, attend: ChildHeartbeat, now_us: int
    ) -> PeerListUpdate | None:
        """What to tell a child that knows some roster, or none."""
        version, nodes = past.roster(now_us)
        turn, told, told_us = self._told
        is_told = (turn, told) == (attend.turn, version) and now_us < told_us + AGAIN_US
        if attend.roster == version or is_told:
            return None
        self._told = (attend.turn, version, now_us)
        return PeerListUpdate(attend.turn, version, nodes)

    def check_invariants(self) -> None:
        assert self._bytes == sum(_size(each) for each in self._pages)
        assert self._bytes <= MAX_BYTES or len(self._pages) == 1


def _size(page: RelayedHistoryReply) -> int:
    assert isinstance(page.answer, HistoryPage)
    return _OVERHEAD + sum(
        len(each.payload) + len(each.block) + len(each.channel) + _OVERHEAD
        for each in page.answer.events
    )
