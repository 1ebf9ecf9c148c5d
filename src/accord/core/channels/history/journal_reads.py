"""Reads of this node's journal for other nodes, queued for the driver, a few pages at a time.

The serving node keeps no state per requester: each request is self-contained and is retried if its
reply is lost. A fair quota limits the pages that one requester has read at a time.
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

MAX_READING: Final = 32  # pages at a time; a single requester gets half
BUSY: Final = "busy"


class MakeCut(msgspec.Struct, frozen=True):
    """Make a cut; call `cut_made` when everything before it is on disk."""

    to: str
    round: int
    child: str = ""


class ReadPage(msgspec.Struct, frozen=True):
    """Read a page; call `page_made` or `no_page`."""

    to: str
    asked: PageRequest


JournalCommand = MakeCut | ReadPage


class JournalReads:
    """Pending reads; the driver takes and executes `orders`.

    `refused` counts page requests refused for lack of room, `senseless` invalid ones.
    """

    def __init__(self, post: Callable[[str, Body, int], None]) -> None:
        self.orders: list[JournalCommand] = []
        self.refused = 0
        self.senseless = 0
        self._post = post
        self._reading: dict[tuple[str, str, int], str] = {}  # requester
        self._shares = FairQuota(MAX_READING)

    def __len__(self) -> int:
        """Number of pages being read."""
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
        """Release the quota of a page that was read or failed."""
        who = self._reading.pop((order.to, order.asked.child, order.asked.id), None)
        if who is not None:
            self._shares.give_back(who)

    def check_invariants(self) -> None:
        assert len(self._reading) == self._shares.count
        self._shares.check_invariants()
