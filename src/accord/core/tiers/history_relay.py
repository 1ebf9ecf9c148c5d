"""Parent's relay of a child's history requests for persistent channels.

Requests are forwarded to the node they name, replies back to the child, without state. Only pages
are queued, behind the child's live events. If there are too many they are dropped; the child
retries.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from accord.core.channels.history.messages import HistoryPage, HistoryRequest, Stamp
from accord.core.channels.history.peer_list import Nodes
from accord.core.tiers.messages import ChildHeartbeat, PeerListUpdate, RelayedHistoryReply

MAX_BYTES: Final = 16 << 20  # bytes of pages queued per child; one page is always queued
AGAIN_US: Final = 1_000_000
_OVERHEAD: Final = 100


class HistoryPort(Protocol):
    """History of all nodes, as the parent's node knows them."""

    def relay(self, child: str, node: str, question: HistoryRequest, now_us: int) -> None:
        """Send a child's request to `node`."""

    def heard(self) -> Stamp:
        """A version of this node's records that includes its children's interests; zeros before."""

    def roster(self, now_us: int) -> tuple[int, Nodes]:
        """The version of the peer list, and the nodes that may have history."""


class HistoryRelay:
    """Relay for one child."""

    def __init__(self) -> None:
        self._pages: deque[RelayedHistoryReply] = deque()
        self._bytes = 0
        self._told: tuple[int, int, int] = (0, 0, 0)  # parent epoch, version, time

    def put(self, page: RelayedHistoryReply) -> None:
        size = _size(page)
        if self._pages and self._bytes + size > MAX_BYTES:
            return
        self._pages.append(page)
        self._bytes += size

    def take(self) -> list[RelayedHistoryReply]:
        """The next page; live events may go before the one after it."""
        if not self._pages:
            return []
        page = self._pages.popleft()
        self._bytes -= _size(page)
        return [page]

    def has_page(self, node: str, number: int) -> bool:
        """Whether that page is queued already."""
        return any(
            each.node == node and isinstance(each.answer, HistoryPage) and each.answer.id == number
            for each in self._pages
        )

    def roster(
        self, past: HistoryPort, attend: ChildHeartbeat, now_us: int
    ) -> PeerListUpdate | None:
        """The peer list update to send, if the child's version is outdated."""
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
