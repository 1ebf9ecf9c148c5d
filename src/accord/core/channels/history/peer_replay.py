"""One node's part of the past that a subscription gets.

It comes in legs. A leg ends at a cut in the node's journal: what was kept before it is read page by
page, what is kept behind it comes as it is published, and waits. The last leg is the one at whose
cut the node has known for a while that this node needs its events, and of which everything that
came live is here. Then the subscription is a live one as far as this node goes. As long as that is
not so another leg follows, which is shorter, as it begins where the last one ended.

An event that comes live is part of the past if its number is not larger than that of the cut.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from accord.core.channels.history.messages import CutReply, HistoryEvent, HistoryPage, Stamp
from accord.core.channels.history.peer_watermarks import PeerWatermarks, Watermark

ASKING: Final = "asking"  # for a cut
READING: Final = "reading"  # what is before it
READ: Final = "read"  # all of it, and what comes live waits for the others
LIVE: Final = "live"
KNOWN_US: Final = 1_000_000  # so long a node must have known a need before its cut is the last
PAUSE_US: Final = 250_000  # between two legs, where there was not much to read
MAX_PASSED: Final = 20_000
AGAIN_US: Final = 3_000_000  # until a page is asked for again
BUSY_US: Final = 500_000
ROOM_US: Final = 500_000  # until it is looked again whether there is room
PATIENCE_US: Final = 5_000_000  # with a node that does not answer
AWAY_US: Final = 1_000_000  # with one that can't be reached

Position = tuple[int, int, str]  # where a leg began, where it ends, and which page is next


class PeerReplay:
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
        self.number = 0  # of the last cut: events with larger ones are not in the past
        self.incarnation = 0
        self.known_us = now_us if is_own else -1  # since when it knows what is needed
        self.legs = 0
        # Whether all that is behind the cut and came live waits, or was handed on.
        self.is_whole = is_own and self.phase == ASKING
        self.wanted_us = now_us  # cuts that were asked for before do not count
        self.due_us = now_us  # when to ask next
        self.is_asked = False  # for a cut
        self.had = had or {}  # numbers that came live before
        self.passed: dict[int, bool] = {}  # and those that did while it was not waited for
        self.inbox: deque[HistoryEvent] = deque()
        self._before_inbox: Position = position
        self.page = 0  # that was asked for
        self.heard_us = now_us
        self.is_missing = False
        self.lacks_room = False  # its client has to take something first
        self.problem = ""  # why it did not answer, as it says
        self.missing = 0  # records that could not be had
        self._is_read = False
        self._read = 0  # events of this leg

    # ------------------------------------------------------------------------------------- legs

    def look_for_cut(self, peer: PeerWatermarks, needed: Stamp | None, now_us: int) -> None:
        """Begin to read up to the node's last cut, or have another one asked for."""
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
            self.start = 0  # its journal is another one than before
        self.before, self.cursor = cut.offset, ""
        self._read = 0
        self.phase = READING
        self.due_us = now_us
        self._is_read = self.before == self.start
        self._end_leg(now_us)

    def _look_at(self, cut: CutReply, needed: Stamp | None, now_us: int) -> None:
        """See whether all that is behind the cut comes here."""
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
        """Another leg: from now on what comes live may wait, if all of it comes here."""
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
        """The node began anew, or was away: what came live since may not be all."""
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
        """What came live and waited is to be read instead."""
        if self.phase == ASKING:
            self.wanted_us = max(self.wanted_us, now_us)
        elif self.phase == READING:
            self.is_whole = False
        elif self.phase == READ:
            self.ask_again(now_us)

    def pass_by(self, number: int) -> bool:
        """Hand on a live event, as nobody knows when its past will come; True."""
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
        """Once more, if it is the same number."""
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
        """It can't answer now."""
        self.problem = problem
        self.due_us = now_us + BUSY_US

    def heard(self, now_us: int) -> None:
        self.heard_us = max(self.heard_us, now_us)
        self.is_missing = False

    def miss(self) -> None:
        """Others go on without it."""
        self.is_missing = True
        self.page = 0

    def take(self, now_us: int) -> tuple[HistoryEvent, Position | None]:
        """The next event, and where to go on behind it, if it is the last of its page."""
        event = self.inbox.popleft()
        self._skip()
        if self.inbox:
            return event, None
        position = self.position()
        self._end_leg(now_us)
        return event, position

    def position(self) -> Position:
        """Where to go on, once all that was handed over is with the client."""
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

    # --------------------------------------------------------------------------------- as it goes

    def is_past(self, number: int) -> bool:
        """Whether an event that came live is read from the journal, or was."""
        return number <= self.number

    def blocks(self) -> bool:
        """Whether older events may come of it: then those of others wait."""
        if self.is_missing or self.inbox:
            return False
        return self.phase == READING or (self.phase == ASKING and self.legs == 0)

    def is_silent(self, is_here: bool, now_us: int) -> bool:
        """Whether it is not worth waiting for."""
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
