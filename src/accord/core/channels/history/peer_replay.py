"""Replay of one node's history for one subscription.

The replay proceeds in ranges. A range ends at a cut in the node's journal: events before the cut
are read page by page, events after it arrive live and are buffered. The last range is the one at
whose cut the node has known this node's interest for a while, and whose live events have all been
buffered here. Then the subscription is live with respect to that node. Until then another range
follows, which is shorter, as it starts where the last one ended.

A live event belongs to history if its number is not larger than that of the cut.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from accord.core.channels.history.messages import CutReply, HistoryEvent, HistoryPage, Stamp
from accord.core.channels.history.peer_watermarks import PeerWatermarks, Watermark

ASKING: Final = "asking"  # waiting for a cut
READING: Final = "reading"  # reading the events before the cut
READ: Final = "read"  # range read; live events wait for the other nodes
LIVE: Final = "live"
KNOWN_US: Final = 1_000_000  # minimum age of the interest at a node at the last cut
PAUSE_US: Final = 250_000  # between two ranges, if little was read
MAX_PASSED: Final = 20_000
AGAIN_US: Final = 3_000_000  # retransmission timeout of a page request
BUSY_US: Final = 500_000
ROOM_US: Final = 500_000  # until the client's room is checked again
PATIENCE_US: Final = 5_000_000  # timeout of a node that does not reply
AWAY_US: Final = 1_000_000  # timeout of an unreachable node

Position = tuple[int, int, str]  # start and end of a range, cursor of the next page


class PeerReplay:
    """State machine of one node's replay: asking, reading, read, live."""

    def __init__(
        self,
        node: str,
        position: Position,
        *,
        now_us: int,
        had: dict[int, bool] | None = None,
        is_own: bool = False,
    ) -> None:
        self.node = node
        self.is_own = is_own
        self.start, self.before, self.cursor = position
        self.phase = READING if self.cursor else ASKING
        self.number = 0  # of the last cut; later events have larger numbers
        self.incarnation = 0
        self.known_us = now_us if is_own else -1  # since when it knows the interest
        self.legs = 0
        # Whether all live events after the cut are buffered or were delivered.
        self.is_whole = is_own and self.phase == ASKING
        self.wanted_us = now_us  # earlier cuts do not count
        self.due_us = now_us  # time of the next request
        self.is_asked = False  # a cut was requested
        self.had = had or {}  # numbers that arrived live before
        self.passed: dict[int, bool] = {}  # numbers delivered live while it was not waited for
        self.inbox: deque[HistoryEvent] = deque()
        self._before_inbox: Position = position
        self.page = 0  # number of the open page request
        self.heard_us = now_us
        self.is_missing = False
        self.lacks_room = False  # the client has no room
        self.problem = ""  # reason for the lack of a page, from the node
        self.missing = 0  # unavailable records
        self._is_read = False
        self._read = 0  # events read in this range

    # ----------------------------------------------------------------------------------- ranges

    def look_for_cut(self, peer: PeerWatermarks, needed: Stamp | None, now_us: int) -> None:
        """Start reading up to the node's latest cut, or request a newer one."""
        if self.phase != ASKING or self.due_us > now_us:
            return
        mark = peer.latest
        if mark is not None and mark.asked_us >= self.wanted_us:
            self._take_cut(mark, needed, now_us)
        else:
            self.is_asked = True
            peer.want_cut(self.wanted_us)

    def _take_cut(self, mark: Watermark, needed: Stamp | None, now_us: int) -> None:
        cut = mark.cut
        self.heard(now_us)
        self._look_at(cut, needed, now_us)
        self.number = cut.number
        if cut.offset < self.start:
            self.start = 0  # the journal was replaced
        self.before, self.cursor = cut.offset, ""
        self._read = 0
        self.phase = READING
        self.due_us = now_us
        self._is_read = self.before == self.start
        self._end_leg(now_us)

    def _look_at(self, cut: CutReply, needed: Stamp | None, now_us: int) -> None:
        """Check whether the node sends this node all events after the cut."""
        if self.is_own:
            return
        if cut.incarnation != self.incarnation:
            self.incarnation = cut.incarnation
            self.known_us = -1
        if needed is None or cut.heard < needed:
            self.known_us = -1
        elif self.known_us < 0:
            self.known_us = now_us
            self.is_whole = False
        if self.known_us < 0:
            self.is_whole = False

    def _end_leg(self, now_us: int) -> None:
        if not self._is_read or self.inbox:
            return
        self.legs += 1
        self.start, self.cursor = self.before, ""
        self._is_read = False
        if self.is_whole:
            self.phase = READ
        else:
            self.ask_again(now_us)

    def ask_again(self, now_us: int) -> None:
        """Start another range; live events are buffered from now on if all of them arrive here."""
        self.phase = ASKING
        self.is_asked = False
        self.page = 0
        self.lacks_room = False
        self.due_us = now_us if self._read else now_us + PAUSE_US
        if self.known_us >= 0 and not self.is_own:
            self.due_us = max(self.due_us, self.known_us + KNOWN_US)
        self.heard_us = max(self.heard_us, self.due_us)
        self.wanted_us = self.due_us
        self.is_whole = self.known_us >= 0

    def lose(self, now_us: int, safe_offset: int, had: dict[int, bool]) -> None:
        """Handle a restart or absence of the node: some live events may be missing."""
        if self.phase in (ASKING, READING):
            self.is_whole = False
            self.known_us = -1
            self.heard(now_us)
            return
        if self.phase == LIVE:
            self.start = max(self.start, safe_offset)
            self.had = had
        self.known_us = -1
        self._read = 0
        self.heard(now_us)
        self.ask_again(now_us)

    def forget_waiting(self, now_us: int) -> None:
        """Note that buffered live events were discarded and have to be read instead."""
        if self.phase == ASKING:
            self.wanted_us = max(self.wanted_us, now_us)
        elif self.phase == READING:
            self.is_whole = False
        elif self.phase == READ:
            self.ask_again(now_us)

    def pass_by(self, number: int) -> bool:
        """Record a live event delivered before its history, which may never arrive; return True."""
        self.passed[number] = True
        if len(self.passed) > MAX_PASSED:
            del self.passed[next(iter(self.passed))]
        return True

    # ------------------------------------------------------------------------------------- pages

    def wants_page(self, now_us: int) -> bool:
        if self.phase != READING or self._is_read or self.inbox:
            return False
        return self.lacks_room or self.due_us <= now_us

    def page_asked(self, number: int, now_us: int) -> None:
        """Record a page request; the same number is a retransmission."""
        if self.page != number:
            self.page = number
            self.heard_us = max(self.heard_us, now_us)
        self.lacks_room = False
        self.due_us = now_us + AGAIN_US

    def no_room(self, now_us: int) -> None:
        self.lacks_room = True
        self.due_us = now_us + ROOM_US

    def take_page(self, page: HistoryPage, now_us: int) -> None:
        self.page = 0
        self.problem = ""
        self.due_us = now_us
        self.heard(now_us)
        self._before_inbox = self.position()
        self.inbox.extend(page.events)
        self._read += len(page.events)
        self.missing += page.missing
        self.cursor = page.cursor
        self._is_read = not page.cursor
        self._skip()
        self._end_leg(now_us)

    def put_off(self, problem: str, now_us: int) -> None:
        """Retry later: the node cannot reply now."""
        self.problem = problem
        self.due_us = now_us + BUSY_US

    def heard(self, now_us: int) -> None:
        self.heard_us = max(self.heard_us, now_us)
        self.is_missing = False

    def miss(self) -> None:
        """Stop waiting: the replay continues without this node."""
        self.is_missing = True
        self.page = 0

    def take(self, now_us: int) -> tuple[HistoryEvent, Position | None]:
        """The next event and, if it is the last of its page, the position after it."""
        event = self.inbox.popleft()
        self._skip()
        if self.inbox:
            return event, None
        position = self.position()
        self._end_leg(now_us)
        return event, position

    def position(self) -> Position:
        """The position to resume from once the client has everything delivered so far."""
        if self.inbox:
            return self._before_inbox
        if self.phase == LIVE:
            return self.start, -1, ""
        if self.phase == READING and not self._is_read:
            return self.start, self.before, self.cursor
        end = self.before if self.phase == READING else self.start
        return end, end, ""

    def _skip(self) -> None:
        inbox = self.inbox
        while inbox and (inbox[0].number in self.had or inbox[0].number in self.passed):
            inbox.popleft()

    # -------------------------------------------------------------------------------------- state

    def is_past(self, number: int) -> bool:
        """Whether a live event belongs to the history read from the journal."""
        return number <= self.number

    def blocks(self) -> bool:
        """Whether older events may still arrive from it, so that those of other nodes wait."""
        if self.is_missing or self.inbox:
            return False
        return self.phase == READING or (self.phase == ASKING and self.legs == 0)

    def is_silent(self, is_here: bool, now_us: int) -> bool:
        """Whether the node has timed out."""
        if self.phase in (READ, LIVE) or self.inbox:
            return False
        if not (is_here or self.is_own):
            return now_us - self.heard_us >= AWAY_US
        is_asked = self.phase == ASKING or self.page
        return bool(is_asked) and now_us - self.heard_us >= PATIENCE_US

    def next_due_us(self, peer: PeerWatermarks) -> int | None:
        if self.phase in (READ, LIVE) or self.inbox:
            return None
        patience_us = None
        if not self.is_missing:
            patience_us = self.heard_us + (PATIENCE_US if peer.is_here else AWAY_US)
        if self.phase == ASKING and self.is_asked:
            mark = peer.latest
            return 0 if mark is not None and mark.asked_us >= self.wanted_us else patience_us
        if self.phase == READING and not peer.is_here:
            return patience_us
        if patience_us is None or self.lacks_room:
            return self.due_us
        return min(self.due_us, patience_us)

    def check_invariants(self) -> None:
        assert self.phase in (ASKING, READING, READ, LIVE)
        assert self.start >= 0
        assert not self.inbox or self.phase == READING
        assert self.phase != READ or self.is_whole
        assert self.phase == READING or not self.cursor
