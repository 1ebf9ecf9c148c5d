"""How a secondary node gets the past of persistent channels: it asks, as others do.

It sees no nodes itself: its active parent tells who there are, relays questions and answers, and
says what nodes must have heard of it to know that they have to send events which the child needs.
For these come to the child only by its parent. So for who asks here:

- a node that the parent does not see is away, and one that was away in between may have sent
  something in vain;
- when another parent becomes the active one all nodes were away. What was on its way to the child
  is kept by that parent, too, and comes, but only if both knew for long enough what is needed: who
  reads on from the last safe place, and leaves out what came, need not know;
- the same goes for when the parent has given up events for want of room;
- what had come to the parent is not here yet: a mark is safe when that has come, too.

This node keeps nothing. What its own clients publish comes back from the parent that keeps it, with
its number there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from accord.core.channels.history.history_client import HistoryClient, PeerState
from accord.core.channels.history.messages import HistoryPage, HistoryRequest, Stamp
from accord.core.tiers.interest_log import InterestLog
from accord.core.tiers.messages import ParentHeartbeat, PeerListUpdate, RelayedHistoryReply

SHED_US: Final = 1_000_000  # between two times that everything is looked for again
_BREAK: Final = 1 << 64  # larger than any moment
_UNHEARD: Final = (0, 0)

Ask = Callable[[str, HistoryRequest], None]


class HistoryViaParent:
    """What is around the `asker` of a secondary node; `ask` sends a question to the active parent.

    `roster` is which state of the nodes is known.
    """

    def __init__(self, name: str, incarnation: int, log: InterestLog, ask: Ask) -> None:
        self.asker = HistoryClient(name, incarnation, self)
        self.roster = 0
        self._log = log
        self._ask = ask
        self._nodes: dict[str, PeerState] = {}
        self._changes = 0
        self._heard: tuple[int, Stamp] = (0, _UNHEARD)  # which needs that includes
        self._come_us = 0
        self._shed: int | None = None
        self._breaks = 0
        self._break_us = 0
        self._is_broken = False

    # ------------------------------------------------------------------------------- for the asker

    def version(self) -> int:
        return self._changes

    def names(self) -> Iterable[str]:
        return self._nodes

    def standing(self, node: str) -> PeerState:
        known = self._nodes.get(node)
        if known is None:
            # Without a parent nobody is here, but nobody is gone for good either.
            return PeerState(incarnation=0 if self.roster else 1)
        return known._replace(since=known.since + self._breaks * _BREAK)

    def noted(self) -> Stamp | None:
        return None if self._log.needs.has_changed() else (0, self._log.version)

    def needed(self, noted: Stamp) -> Stamp | None:
        version, heard = self._heard
        return None if heard == _UNHEARD or version < noted[1] else heard

    def come_us(self, now_us: int) -> int:  # noqa: ARG002
        return self._come_us

    def ask(self, node: str, question: HistoryRequest, now_us: int) -> None:  # noqa: ARG002
        self._ask(node, question)

    # ----------------------------------------------------------------------------- from the parent

    def begin_turn(self, now_us: int) -> None:
        """From now on by another parent, or by one that has failed."""
        self.roster = 0
        self._nodes = {}
        self._changes += 1
        self._heard = (0, _UNHEARD)
        self._come_us = 0
        self._shed = None
        self._is_broken = False
        self.asker.need_anew(now_us)

    def served(self, message: ParentHeartbeat) -> None:
        if message.heard != _UNHEARD:
            self._heard = (message.version, message.heard)
        if message.at_us:
            self._come_us = max(self._come_us, message.at_us - message.behind_us)
        if self._shed is not None and message.shed > self._shed:
            self._is_broken = True
        self._shed = message.shed

    def told(self, roster: PeerListUpdate) -> None:
        self.roster = roster.version
        self._nodes = dict(roster.nodes)
        self._changes += 1

    def recalled(self, message: RelayedHistoryReply, now_us: int) -> None:
        if isinstance(message.answer, HistoryPage):
            self.asker.take_page(message.node, message.answer, now_us)
        else:
            self.asker.answered(message.node, message.answer, now_us)

    # ----------------------------------------------------------------------------------- as it goes

    def wanted(self) -> int:
        """Which roster the parent is told to be known; -1, and none is, where nobody needs one."""
        if self.asker.recalls:
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
        self.asker.look_if_due(now_us)
        self.asker.go_on(now_us)

    def next_due_us(self) -> int | None:
        due_us = self.asker.next_due_us()
        if self._is_broken and self.asker.recalls:
            return self._break_us if due_us is None else min(due_us, self._break_us)
        return due_us

    def check_invariants(self) -> None:
        self.asker.check_invariants()
        assert self.roster or not self._nodes
