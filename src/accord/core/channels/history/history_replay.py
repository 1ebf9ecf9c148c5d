"""Replay for one subscription to persistent channels: all nodes' history, then live events.

Each node's history is delivered in its order; those of several nodes are merged by time of
reception, as far as the nodes reply. Live events are buffered until no node has older ones left;
then they follow, and the subscription is live. Unreachable nodes are not waited for: the client is
notified, and their part follows when they return.

The buffer is bounded. On overflow it is discarded, and the events are read from the journals.

Duplicate suppression for events of secondary nodes that two parents may have journalled.

A parent that fails may have journalled an event that no other node has received. Its child does not
know, and sends the event to its other parent, which journals it, too. Both copies have the child's
event ID, so IDs are remembered: per subscription while it replays history, and once per node for
all live subscriptions, as those get everything that arrives.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from accord.core.channels.history.messages import HistoryEvent, HistorySelector, Stamp
from accord.core.channels.history.peer_replay import (
    ASKING,
    LIVE,
    READ,
    READING,
    PeerReplay,
    Position,
)
from accord.core.channels.history.peer_watermarks import PeerWatermarks
from accord.core.model.bounded import LruMap

MAX_ORIGINALS: Final = 20_000
_SPELLS: Final = 64

ChildEventId = tuple[str, int]  # secondary node, number there


class ChildEventLog:
    """Sequence of the child events that arrived live at a node."""

    def __init__(self, most: int = MAX_ORIGINALS) -> None:
        self.count = 0
        self._places: LruMap[ChildEventId, int] = LruMap(most)

    def came(self, original: ChildEventId) -> None:
        self.count += 1
        self._places.put(original, self.count)

    def place(self, original: ChildEventId) -> int:
        """Index of an event in the sequence; 0 if it did not arrive, or long ago."""
        return self._places.get(original) or 0


class ChildEventDedup:
    """The child events that one subscription has received."""

    def __init__(self, originals: ChildEventLog, most: int = MAX_ORIGINALS) -> None:
        self._originals = originals
        self._single: LruMap[ChildEventId, bool] = LruMap(most)
        self._spells: deque[tuple[int, int]] = deque(maxlen=_SPELLS)  # ended live periods
        self._since: int | None = None  # start of the current live period

    def add(self, original: ChildEventId | None) -> bool:
        """Add an event; False if it is a duplicate."""
        if original is None:
            return True
        if original in self:
            return False
        self._single.put(original, True)
        return True

    def __contains__(self, original: ChildEventId) -> bool:
        if self._single.get(original):
            return True
        place = self._originals.place(original)
        spells = [*self._spells, *([] if self._since is None else [(self._since, place)])]
        return any(first < place <= last for first, last in spells)

    def begin_spell(self) -> None:
        """Start a live period: the subscription gets everything that arrives."""
        if self._since is None:
            self._since = self._originals.count

    def end_spell(self) -> None:
        if self._since is not None:
            self._spells.append((self._since, self._originals.count))
            self._since = None


MAX_WAITING: Final = 1_000
MAX_WAITING_BYTES: Final = 4 << 20
ALL_WAITING_BYTES: Final = 64 << 20
GONE_US: Final = 60_000_000  # absence after which a node is not waited for


class ReplayedEvent(msgspec.Struct, frozen=True):
    """A history event, from a page that started at `before`.

    `after`, on the last event of a page, is the position to resume from at its node once the client
    has the event. With `is_duplicate` it is a duplicate from another node, and not for the client.
    """

    node: str
    event: HistoryEvent
    before: Position
    after: Position | None
    is_duplicate: bool = False


class HistoryGap(msgspec.Struct, frozen=True):
    """A node's history is unavailable now, or some of its records are lost."""

    node: str
    why: str


class ReplayBudget:
    """Bytes of buffered live events over all subscriptions."""

    def __init__(self) -> None:
        self.bytes = 0


class _Waiting:
    __slots__ = ("item", "node", "number", "original", "size")

    def __init__(
        self, node: str, number: int, item: Any, size: int, original: ChildEventId | None
    ) -> None:
        self.node = node
        self.number = number
        self.item = item
        self.size = size
        self.original = original


class HistoryReplay:
    """Merges the replays of all nodes; `item`s are opaque live events of the caller.

    The caller takes `notices` and sends them to the client.
    """

    def __init__(
        self,
        wanted: HistorySelector,
        own: str,
        budget: ReplayBudget,
        originals: ChildEventLog | None = None,
    ) -> None:
        self.wanted = wanted
        self.noted: Stamp | None = None  # version of this node's records that includes the interest
        self.needed: Stamp | None = None  # version that nodes must have to know the interest
        self.sources: dict[str, PeerReplay] = {}
        self.lived: dict[str, bool] = {}  # nodes it has been live at for long
        self.is_caught_up = False  # it is live at all reachable nodes
        self.has_gone_live = False
        self.notices: list[HistoryGap] = []
        self.handed = 0  # history events delivered
        self.dropped = 0  # live events that were or will be read from a journal
        self.met = ChildEventDedup(originals or ChildEventLog())  # of child events
        self._own = own
        self._budget = budget
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0

    # ----------------------------------------------------------------------------------- events

    def on_live_event(  # noqa: PLR0913 (an event has these)
        self,
        node: str,
        number: int,
        item: Any,
        size: int,
        now_us: int,
        *,
        original: ChildEventId | None = None,
    ) -> bool:
        """Handle a live event of `node`; True if it is to be delivered now."""
        if self.is_caught_up:
            original = None  # live periods record it for all subscriptions
        if original is not None and original in self.met:
            self.dropped += 1
            return False
        is_now = self._is_for_now(_Waiting(node, number, item, size, original), now_us)
        if is_now:
            self.met.add(original)
        return is_now

    def _is_for_now(self, event: _Waiting, now_us: int) -> bool:
        node, number = event.node, event.number
        source = self.sources.get(node)
        if source is None:
            if node in self.lived:
                return True
            source = self.sources[node] = self._begin(node, now_us)
        if source.phase == LIVE:
            is_new = not source.is_past(number)
            self.dropped += not is_new
            return is_new
        is_past = source.is_past(number)
        if source.is_missing and self.has_gone_live and not is_past:
            return source.pass_by(number)
        is_early = source.phase == ASKING and now_us < source.wanted_us
        if is_early or is_past or not source.is_whole:
            self.dropped += 1
            return False
        self._wait(event, now_us)
        return False

    def peek(self) -> HistoryEvent | None:
        """The event that `next` would return."""
        best = self._best()
        return None if best is None else best.inbox[0]

    def next(self, now_us: int) -> ReplayedEvent | None:
        """The next history event, if no older one can still arrive."""
        best = self._best()
        if best is None:
            return None
        before = best.position()
        event, after = best.take(now_us)
        is_again = not self.met.add((event.origin, event.original) if event.origin else None)
        self.handed += not is_again
        return ReplayedEvent(best.node, event, before, after, is_again)

    def _best(self) -> PeerReplay | None:
        best: PeerReplay | None = None
        for source in self.sources.values():
            if source.blocks():
                return None
            if source.inbox and (
                best is None or source.inbox[0].received_ms < best.inbox[0].received_ms
            ):
                best = source
        return best

    def buffered(self) -> tuple[int, int] | None:
        """Number and bytes of buffered live events if history is complete, otherwise None."""
        phases = [each.phase for each in self.sources.values() if not each.is_missing]
        if READ not in phases or any(each in (ASKING, READING) for each in phases):
            return None
        return len(self._waiting), self._waiting_bytes

    def go_live(self, now_us: int) -> list[Any]:
        """Make the subscription live; return the buffered live events."""
        waiting = self._take_waiting()
        for source in self.sources.values():
            if source.phase == READ:
                source.phase = LIVE
        found, left = [], []
        for each in waiting:
            source = self.sources[each.node]
            if source.phase != LIVE:
                left.append(each)
            elif source.is_past(each.number) or not self.met.add(each.original):
                self.dropped += 1
            else:
                found.append(each.item)
        for each in left:
            self._wait(each, now_us)
        self.has_gone_live = True
        return found

    # ------------------------------------------------------------------------------------ nodes

    def step(self, peers: dict[str, PeerWatermarks], now_us: int) -> None:
        """Advance the replays of all nodes."""
        for name, source in self.sources.items():
            peer = peers[name]
            source.look_for_cut(peer, self.needed, now_us)
            self._look_whether_missing(source, peer, now_us)
        is_begun = self.sources or self.lived  # otherwise no node is known yet
        if is_begun and all(
            _is_done(each, peers[each.node], now_us) for each in self.sources.values()
        ):
            self.is_caught_up = True
            for name, source in list(self.sources.items()):
                if source.phase == LIVE:
                    self.lived[name] = True
                    del self.sources[name]

    def add(self, peer: PeerWatermarks, now_us: int) -> None:
        """Add a node that may have history."""
        if peer.name not in self.lived and peer.name not in self.sources:
            self.sources[peer.name] = self._begin(peer.name, now_us)
            self.is_caught_up = False

    def resume(self, peer: PeerWatermarks, position: Position | None, now_us: int) -> None:
        """Resume at a saved position or, if it was live, at the watermark."""
        is_own = peer.name == self._own
        if position is not None and position[1] >= 0:
            self.sources[peer.name] = PeerReplay(peer.name, position, now_us=now_us, is_own=is_own)
            return
        start = peer.safe_offset if position is None else max(peer.safe_offset, position[0])
        self.sources[peer.name] = PeerReplay(
            peer.name, (start, start, ""), now_us=now_us, had=dict(peer.seen), is_own=is_own
        )

    def lose(self, peer: PeerWatermarks, had: dict[int, bool], now_us: int) -> None:
        """Read on from the watermark, as events of the node may have been lost."""
        source = self.sources.get(peer.name)
        if source is not None:
            source.lose(now_us, peer.safe_offset, had)
            self.is_caught_up = False
        elif self.lived.pop(peer.name, False):
            self.is_caught_up = False
            position = (peer.safe_offset, peer.safe_offset, "")
            self.sources[peer.name] = PeerReplay(peer.name, position, now_us=now_us, had=had)
        else:
            self.add(peer, now_us)

    def awaits(self, node: str) -> bool:
        """Whether the node may have more history."""
        source = self.sources.get(node)
        return source is not None and source.phase != LIVE

    def forget(self, node: str, now_us: int) -> None:
        """Drop a node; it counts as new if it returns."""
        self.lived.pop(node, None)
        source = self.sources.pop(node, None)
        if source is not None:
            source.miss()
            for each in self._take_waiting():
                if each.node != node:
                    self._wait(each, now_us)

    def positions(self) -> tuple[tuple[str, Position], ...]:
        """The position at each node; its end is -1 where the subscription is live."""
        return tuple((each.node, each.position()) for each in self.sources.values())

    def missing(self) -> list[str]:
        return [each.node for each in self.sources.values() if each.is_missing]

    def next_due_us(self, peers: dict[str, PeerWatermarks]) -> int | None:
        dues = [each.next_due_us(peers[each.node]) for each in self.sources.values()]
        return min((due for due in dues if due is not None), default=None)

    def end(self) -> None:
        """Release the buffer."""
        self._take_waiting()

    def check_invariants(self) -> None:
        assert len(self._waiting) <= MAX_WAITING
        assert self._waiting_bytes == sum(each.size for each in self._waiting)
        assert self._waiting_bytes <= self._budget.bytes
        assert not self.is_caught_up or all(each.is_missing for each in self.sources.values())
        assert not self.lived.keys() & self.sources.keys()
        for name, source in self.sources.items():
            assert source.node == name
            source.check_invariants()
        assert all(each.node in self.sources for each in self._waiting)

    def _look_whether_missing(self, source: PeerReplay, peer: PeerWatermarks, now_us: int) -> None:
        is_here = peer.is_here or source.is_own
        if not source.is_missing and source.is_silent(is_here, now_us):
            source.miss()
            why = source.problem or "does not answer" if is_here else "can't be reached"
            self.notices.append(HistoryGap(source.node, why))
        if source.missing:
            self.notices.append(HistoryGap(source.node, f"{source.missing} records are gone"))
            source.missing = 0

    def _begin(self, node: str, now_us: int) -> PeerReplay:
        return PeerReplay(node, (0, 0, ""), now_us=now_us, is_own=node == self._own)

    def _wait(self, waiting: _Waiting, now_us: int) -> None:
        size = waiting.size
        if (
            len(self._waiting) < MAX_WAITING
            and self._waiting_bytes + size <= MAX_WAITING_BYTES
            and self._budget.bytes + size <= ALL_WAITING_BYTES
        ):
            self._waiting.append(waiting)
            self._waiting_bytes += size
            self._budget.bytes += size
            return
        self._take_waiting()
        for source in self.sources.values():
            source.forget_waiting(now_us)

    def _take_waiting(self) -> list[_Waiting]:
        waiting, self._waiting = self._waiting, []
        self._budget.bytes -= self._waiting_bytes
        self._waiting_bytes = 0
        return waiting


def _is_done(source: PeerReplay, peer: PeerWatermarks, now_us: int) -> bool:
    """Whether the node has no more history to deliver, or will not for long."""
    if source.phase == LIVE:
        return peer.safe_offset >= source.start
    return source.is_missing and not peer.is_here and now_us - source.heard_us >= GONE_US
