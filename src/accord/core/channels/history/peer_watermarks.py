"""The journals of all nodes, as far as they are known here.

From time to time each node is asked how far its journal is: a mark. What it had kept before a mark
has been sent to this node, and if neither has failed for a while since then, has come. So behind
the last mark that is old enough is all that may be missing when a node was away or began anew, and
the numbers of what came since then say what of it is here. That is the `safe` place: reading on
from there leaves no gap, and with the numbers, no duplicate.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final

from accord.core.channels.history.messages import CutReply

MARK_US: Final = 10_000_000  # between two marks
SETTLED_US: Final = 65_000_000  # then what was sent before a mark has come, or will not
RETRY_US: Final = 2_000_000
MAX_SEEN: Final = 50_000


class Watermark:
    """A cut that was asked for at `asked_us`, and made later."""

    __slots__ = ("asked_us", "cut", "known_us")

    def __init__(self, cut: CutReply, asked_us: int, known_us: int) -> None:
        self.cut = cut
        self.asked_us = asked_us
        self.known_us = known_us


class PeerWatermarks:
    """One node. `seen` has the numbers of its events that came, since the safe place at least."""

    def __init__(self, name: str, offset: int = 0, seen: dict[int, bool] | None = None) -> None:
        self.name = name
        self.safe_offset = offset
        self.safe_number = 0
        self.seen = seen or {}
        self.forgotten = 0  # numbers for which there was no room: their events may come twice
        self.latest: Watermark | None = None
        self.incarnation = 0  # as facts say, of which 0 is none
        self.has_sent = False  # since this node runs
        self.is_here = False
        self.gone_us: int | None = None  # since when nobody knows anything of it
        self.is_mark_wanted = False
        self.mark_due_us = 0
        self._since = 0
        self._round = 0  # that is under way
        self._asked_us = 0
        self._repeat_us = 0
        self._marks: deque[Watermark] = deque()

    def look(self, is_here: bool, incarnation: int, now_us: int, since: int = 0) -> bool:
        """How it stands with the node; True where something of it may have been lost.

        `since` differs where it was away in between.
        """
        if not is_here or since != self._since:
            self._since = since
            self._leave()
        if not is_here:
            return False
        was_here, known = self.is_here, self.incarnation
        if not incarnation:
            return False  # it has not said anything yet
        self.is_here = True
        if was_here and known >= incarnation:
            return False
        self._begin(max(known, incarnation), now_us)
        return True

    def _leave(self) -> None:
        if self.is_here:
            self.is_here = False
            self._marks.clear()  # what was under way may be lost
            self._round = 0

    def has_begun_anew(self, incarnation: int, now_us: int) -> bool:
        """Whether an event shows that the node was started again, before anything else did."""
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
        """The round of a cut to ask it for now; 0 where there is nothing to ask."""
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
        """One that is asked for at `since_us` or later."""
        if not self._round or self._asked_us < since_us:
            self.is_mark_wanted = True

    def next_due_us(self) -> int | None:
        if not self.is_here:
            return None
        if self._round:
            return self._repeat_us
        return 0 if self.is_mark_wanted else self.mark_due_us

    def answered(self, cut: CutReply, now_us: int, come_us: int | None = None) -> bool:
        """False where it is the answer to nothing.

        What had been on its way for the longest time at `come_us` has come, by default at `now_us`.
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
        """One of its events came as it was published."""
        seen = self.seen
        seen[number] = True
        if len(seen) > MAX_SEEN:
            del seen[next(iter(seen))]
            self.forgotten += 1

    def check_invariants(self) -> None:
        assert len(self.seen) <= MAX_SEEN
        assert all(one.known_us <= other.known_us for one, other in pairwise(self._marks))
        assert not self._marks or self.is_here
