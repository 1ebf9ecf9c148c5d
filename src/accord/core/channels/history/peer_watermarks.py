"""Watermarks of all nodes' journals: up to where everything has arrived here.

Each node is periodically asked for a cut of its journal. Events before the cut were sent to this
node and, if neither node fails for a while, have arrived. The last cut that is old enough is
therefore a watermark: everything that may be missing after an absence or restart comes after it,
and the numbers of the events received since then identify duplicates. Reading on from the watermark
leaves no gap and, with these numbers, no duplicate.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final

from accord.core.channels.history.messages import CutReply

MARK_US: Final = 10_000_000  # interval of cuts
SETTLED_US: Final = 65_000_000  # age at which events before a cut have arrived, or never will
RETRY_US: Final = 2_000_000
MAX_SEEN: Final = 50_000


class Watermark:
    """A cut that was requested at `asked_us`, and made later."""

    __slots__ = ("asked_us", "cut", "known_us")

    def __init__(self, cut: CutReply, asked_us: int, known_us: int) -> None:
        self.cut = cut
        self.asked_us = asked_us
        self.known_us = known_us


class PeerWatermarks:
    """Watermark of one node; `seen` has the numbers of events received after it, at least."""

    def __init__(self, name: str, offset: int = 0, seen: dict[int, bool] | None = None) -> None:
        self.name = name
        self.safe_offset = offset
        self.safe_number = 0
        self.seen = seen or {}
        self.forgotten = 0  # evicted numbers: their events may be duplicated
        self.latest: Watermark | None = None
        self.incarnation = 0  # from the state store; 0 if unknown
        self.has_sent = False  # since this node started
        self.is_here = False
        self.gone_us: int | None = None  # since when nothing is known of it
        self.is_mark_wanted = False
        self.mark_due_us = 0
        self._since = 0
        self._round = 0  # the open request, or 0
        self._asked_us = 0
        self._repeat_us = 0
        self._marks: deque[Watermark] = deque()

    def look(self, is_here: bool, incarnation: int, now_us: int, since: int = 0) -> bool:
        """Apply a sample of the node's state; True if events of it may have been lost.

        A changed `since` means that it was absent in between.
        """
        if not is_here or since != self._since:
            self._since = since
            self._leave()
        if not is_here:
            return False
        was_here, known = self.is_here, self.incarnation
        if not incarnation:
            return False  # no state record yet
        self.is_here = True
        if was_here and known >= incarnation:
            return False
        self._begin(max(known, incarnation), now_us)
        return True

    def _leave(self) -> None:
        if self.is_here:
            self.is_here = False
            self._marks.clear()  # events in transit may be lost
            self._round = 0

    def has_begun_anew(self, incarnation: int, now_us: int) -> bool:
        """Whether an event is the first evidence of a restart of the node."""
        if not self.is_here or incarnation <= self.incarnation:
            return False
        self._begin(incarnation, now_us)
        return True

    def _begin(self, incarnation: int, now_us: int) -> None:
        self.incarnation = incarnation
        self._marks.clear()
        self.latest = None
        self._round = 0
        self.mark_due_us = now_us

    def question(self, now_us: int, last_round: int) -> int:
        """The round of the cut request to send now; 0 if none is due."""
        if not self.is_here:
            return 0
        if not self._round and (self.is_mark_wanted or self.mark_due_us <= now_us):
            self._round = last_round + 1
            self._asked_us = self._repeat_us = now_us
            self.is_mark_wanted = False
        if not self._round or now_us < self._repeat_us:
            return 0
        self._repeat_us = now_us + RETRY_US
        return self._round

    def want_cut(self, since_us: int) -> None:
        """Request a cut at `since_us` or later."""
        if not self._round or self._asked_us < since_us:
            self.is_mark_wanted = True

    def next_due_us(self) -> int | None:
        if not self.is_here:
            return None
        if self._round:
            return self._repeat_us
        return 0 if self.is_mark_wanted else self.mark_due_us

    def answered(self, cut: CutReply, now_us: int, come_us: int | None = None) -> bool:
        """Apply a cut; False if it does not match the open request.

        Everything that was in transit at `come_us` (default `now_us`) has arrived by now.
        """
        if not self._round or cut.round != self._round:
            return False
        self._round = 0
        self.mark_due_us = now_us + MARK_US
        self.latest = Watermark(cut, self._asked_us, now_us)
        self._marks.append(self.latest)
        settled_us = (now_us if come_us is None else come_us) - SETTLED_US
        while self._marks and self._marks[0].known_us <= settled_us:
            safe = self._marks.popleft().cut
            self.safe_offset, self.safe_number = safe.offset, safe.number
        if self.seen:
            least = self.safe_number
            self.seen = {number: True for number in self.seen if number > least}
        return True

    def arrived(self, number: int) -> None:
        """Record an event of the node that arrived live."""
        seen = self.seen
        seen[number] = True
        if len(seen) > MAX_SEEN:
            del seen[next(iter(seen))]
            self.forgotten += 1

    def check_invariants(self) -> None:
        assert len(self.seen) <= MAX_SEEN
        assert all(one.known_us <= other.known_us for one, other in pairwise(self._marks))
        assert not self._marks or self.is_here
