"""What others ask of this node's journal: handed to who drives the node, a few pages at a time.

Nothing is remembered of those who ask: each question says all that is needed, and is asked again if
its answer gets lost. Nobody has more pages read than are left for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.channels.history.messages import (
    Body,
    CutRequest,
    PageInProgress,
    PageRequest,
    PageUnavailable,
    problem_with_question,
)
from accord.core.model.fair_quota import FairQuota

MAX_READING: Final = 32  # pages at a time, of which one that asks alone has half
BUSY: Final = "busy"


class MakeCut(msgspec.Struct, frozen=True):
    """Make a cut, and say so by `cut_made` when all before it is on disk."""

    to: str
    round: int
    child: str = ""


class ReadPage(msgspec.Struct, frozen=True):
    """Read a page, and say so by `page_made`, or `no_page`."""

    to: str
    asked: PageRequest


JournalCommand = MakeCut | ReadPage


class JournalReads:
    """`orders` are to be obeyed and taken out; `refused` counts pages there was no room for."""

    def __init__(self, post: Callable[[str, Body, int], None]) -> None:
        self.orders: list[JournalCommand] = []
        self.refused = 0
        self.senseless = 0
        self._post = post
        self._reading: dict[tuple[str, str, int], str] = {}  # who asked
        self._shares = FairQuota(MAX_READING)

    def __len__(self) -> int:
        """How many pages are being read."""
        return len(self._reading)

    def cut_asked(self, origin: str, asked: CutRequest) -> None:
        self.orders.append(MakeCut(origin, asked.round, asked.child))

    def page_asked(self, origin: str, asked: PageRequest, now_us: int) -> None:
        key = (origin, asked.child, asked.id)
        if problem := problem_with_question(asked):
            self.senseless += 1
            self._post(origin, PageUnavailable(asked.id, problem, asked.child), now_us)
        elif key in self._reading:
            self._post(origin, PageInProgress(asked.id, asked.child), now_us)
        elif not self._shares.has_room(who := asked.child or origin):
            self.refused += 1
            self._post(origin, PageUnavailable(asked.id, BUSY, asked.child), now_us)
        else:
            self._reading[key] = who
            self._shares.take(who)
            self.orders.append(ReadPage(origin, asked))

    def done(self, order: ReadPage) -> None:
        """The page was read, or can't be."""
        who = self._reading.pop((order.to, order.asked.child, order.asked.id), None)
        if who is not None:
            self._shares.give_back(who)

    def check_invariants(self) -> None:
        assert len(self._reading) == self._shares.count
        self._shares.check_invariants()
