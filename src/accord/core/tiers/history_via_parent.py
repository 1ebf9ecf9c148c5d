"""History of persistent channels at a secondary node, relayed by its active parent.

The secondary node is a history client that sees no other nodes. Its active parent sends the peer
list, relays requests and replies, and reports which version of its state records a node must have
in order to send the events that the child is interested in: these reach the child only through its
parent. For the history client:

- a node that the parent does not see is offline, and one that was offline in between may have
  sent events in vain;
- when another parent becomes active, all nodes count as having been offline. Events on their way
  to the child are in that parent's custody, too, and arrive, but only if both parents had the
  interest for long enough. The client need not know that: it reads on from the last watermark and
  drops duplicates;
- the same holds when the parent has evicted events for lack of space;
- an event that has reached the parent is not here yet: a watermark is valid once the child has
  those events, too.

This node has no journal. Events of its own clients come back from the parent that journals them,
with their number there.

The parent's relay is stateless: requests are forwarded to the node they name, replies back to the
child. Only pages are queued, behind the child's live events. If there are too many they are
dropped; the child retries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from accord.core.channels.history.history_client import HistoryClient, PeerState
from accord.core.channels.history.history_protocol import Nodes
from accord.core.channels.history.messages import HistoryPage, HistoryRequest, Stamp
from accord.core.tiers.messages import (
    ChildHeartbeat,
    InterestLog,
    ParentHeartbeat,
    PeerListUpdate,
    RelayedHistoryReply,
)

SHED_US: Final = 1_000_000  # minimum interval between two full repeats
_BREAK: Final = 1 << 64  # larger than any time
_NO_VERSION: Final = (0, 0)

Ask = Callable[[str, HistoryRequest], None]


class HistoryViaParent:
    """Environment of the history client (`client`) of a secondary node.

    `ask` sends a request to the active parent; `peer_list` is the version of the known peer list.
    """

    def __init__(self, name: str, incarnation: int, log: InterestLog, ask: Ask) -> None:
        self.client = HistoryClient(name, incarnation, self)
        self.roster = 0
        self._log = log
        self._ask = ask
        self._nodes: dict[str, PeerState] = {}
        self._changes = 0
        self._versions: tuple[int, Stamp] = (0, _NO_VERSION)  # interest version, parent's version
        self._come_us = 0
        self._shed: int | None = None
        self._breaks = 0
        self._break_us = 0
        self._is_broken = False

    # ---------------------------------------------------------------------- for the history client

    def version(self) -> int:
        return self._changes

    def names(self) -> Iterable[str]:
        return self._nodes

    def standing(self, node: str) -> PeerState:
        known = self._nodes.get(node)
        if known is None:
            # Without a peer list no node is present, but none is gone for good either.
            return PeerState(incarnation=0 if self.roster else 1)
        return known._replace(since=known.since + self._breaks * _BREAK)

    def noted(self) -> Stamp | None:
        return None if self._log.interests.has_changed() else (0, self._log.version)

    def needed(self, noted: Stamp) -> Stamp | None:
        version, heard = self._versions
        return None if heard == _NO_VERSION or version < noted[1] else heard

    def come_us(self, now_us: int) -> int:  # noqa: ARG002
        return self._come_us

    def ask(self, node: str, question: HistoryRequest, now_us: int) -> None:  # noqa: ARG002
        self._ask(node, question)

    # ----------------------------------------------------------------------------- from the parent

    def start_parent_epoch(self, now_us: int) -> None:
        """Start a new parent epoch."""
        self.roster = 0
        self._nodes = {}
        self._changes += 1
        self._versions = (0, _NO_VERSION)
        self._come_us = 0
        self._shed = None
        self._is_broken = False
        self.client.reset_interests(now_us)

    def served(self, message: ParentHeartbeat) -> None:
        if message.record_version != _NO_VERSION:
            self._versions = (message.version, message.record_version)
        if message.at_us:
            self._come_us = max(self._come_us, message.at_us - message.behind_us)
        if self._shed is not None and message.shed > self._shed:
            self._is_broken = True
        self._shed = message.shed

    def on_peer_list(self, roster: PeerListUpdate) -> None:
        self.roster = roster.version
        self._nodes = dict(roster.nodes)
        self._changes += 1

    def on_reply(self, message: RelayedHistoryReply, now_us: int) -> None:
        if isinstance(message.answer, HistoryPage):
            self.client.on_page(message.node, message.answer, now_us)
        else:
            self.client.on_reply(message.node, message.answer, now_us)

    # --------------------------------------------------------------------------------------- timers

    def wanted(self) -> int:
        """The peer list version to report to the parent; -1, dropping the list, if unused."""
        if self.client.replays:
            return self.roster
        self.roster = 0
        self._nodes = {}
        return -1

    def advance(self, now_us: int) -> None:
        if self._is_broken and now_us >= self._break_us:
            self._is_broken = False
            self._break_us = now_us + SHED_US
            self._breaks += 1
            self._changes += 1
        self.client.sample_if_due(now_us)
        self.client.send_due(now_us)

    def next_due_us(self) -> int | None:
        due_us = self.client.next_due_us()
        if self._is_broken and self.client.replays:
            return self._break_us if due_us is None else min(due_us, self._break_us)
        return due_us

    def check_invariants(self) -> None:
        self.client.check_invariants()
        assert self.roster or not self._nodes


MAX_BYTES: Final = 16 << 20  # bytes of pages queued per child; one page is always queued
AGAIN_US: Final = 1_000_000
_OVERHEAD: Final = 100


class HistoryPort(Protocol):
    """History of all nodes, as the parent's node knows them."""

    def relay(self, child: str, node: str, question: HistoryRequest, now_us: int) -> None:
        """Send a child's request to `node`."""

    def interest_version(self) -> Stamp:
        """A version of this node's records that includes its children's interests; zeros before."""

    def peer_list(self, now_us: int) -> tuple[int, Nodes]:
        """The version of the peer list, and the nodes that may have history."""


class HistoryRelay:
    """Relay for one child."""

    def __init__(self) -> None:
        self._pages: deque[RelayedHistoryReply] = deque()
        self._bytes = 0
        self._sent: tuple[int, int, int] = (0, 0, 0)  # parent epoch, version, time

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
        version, nodes = past.peer_list(now_us)
        turn, told, told_us = self._sent
        is_told = (turn, told) == (attend.parent_epoch, version) and now_us < told_us + AGAIN_US
        if attend.roster == version or is_told:
            return None
        self._sent = (attend.parent_epoch, version, now_us)
        return PeerListUpdate(attend.parent_epoch, version, nodes)

    def check_invariants(self) -> None:
        assert self._bytes == sum(_size(each) for each in self._pages)
        assert self._bytes <= MAX_BYTES or len(self._pages) == 1


def _size(page: RelayedHistoryReply) -> int:
    assert isinstance(page.answer, HistoryPage)
    return _OVERHEAD + sum(
        len(each.payload) + len(each.block) + len(each.channel) + _OVERHEAD
        for each in page.answer.events
    )
