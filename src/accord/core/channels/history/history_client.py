"""History client: fetches the history that other nodes have journalled, for all subscriptions.

There is a `HistoryReplay` per subscription; all share the knowledge of the nodes' journals. The
environment (`PeerPort`) decides how nodes are seen and asked: a backbone node sees them itself, a
secondary one through its active parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from accord.core.channels.history.history_replay import (
    ChildEventId,
    ChildEventLog,
    HistoryReplay,
    ReplayBudget,
)
from accord.core.channels.history.messages import (
    MAX_BYTES,
    MAX_ROWS,
    CutReply,
    CutRequest,
    HistoryPage,
    HistoryRequest,
    HistorySelector,
    PageInProgress,
    PageRequest,
    PageUnavailable,
    Stamp,
    is_cut,
)
from accord.core.channels.history.peer_replay import READING, PeerReplay, Position
from accord.core.channels.history.peer_watermarks import PeerWatermarks

MAX_ASKED: Final = 64  # page requests under way
LOOK_US: Final = 200_000  # sampling interval of the nodes
FORGET_US: Final = 86_400_000_000  # an absent node is dropped after this time
MAX_GONE: Final = 1_000  # absent nodes that are remembered
_MIN_ROWS: Final = 10
_MIN_BYTES: Final = 16 << 10

Room = Callable[[], tuple[int, int] | None]  # events and bytes that the client has room for


class PeerState(NamedTuple):
    """State of a node; `incarnation` is 0 if nothing is known of it.

    `since` changes if the node was absent in between without that being visible.
    """

    is_here: bool = False
    incarnation: int = 0
    has_kept: bool = False
    since: int = 0


class PeerPort(Protocol):
    """A history client's view of other nodes."""

    def version(self) -> int:
        """Changes when nodes appear or leave."""

    def names(self) -> Iterable[str]:
        """All nodes that may have history."""

    def standing(self, node: str) -> PeerState: ...

    def noted(self) -> Stamp | None:
        """The version of this node's records that includes its current interests; None before."""

    def needed(self, noted: Stamp) -> Stamp | None:
        """The version that nodes must have to know these interests; None if unknown yet."""

    def come_us(self, now_us: int) -> int:
        """Everything that had reached the previous hop by this time has arrived here."""

    def ask(self, node: str, question: HistoryRequest, now_us: int) -> None: ...


class HistoryClient:
    """Replays of all subscriptions of a node.

    `has_woken` is set when a live subscription has to replay history again, until the node clears
    it.
    """

    def __init__(self, name: str, incarnation: int, around: PeerPort) -> None:
        self.name = name
        self.peers: dict[str, PeerWatermarks] = {}
        self.originals = ChildEventLog()
        self.replays: dict[HistoryReplay, Room] = {}
        self.active: dict[HistoryReplay, Room] = {}  # replays that are not finished
        self.has_woken = False
        self._around = around
        self._budget = ReplayBudget()
        self._last = incarnation * 1_000_000  # last request number
        self._asked: dict[int, tuple[HistoryReplay, PeerReplay]] = {}  # page requests under way
        self._look_us = 0
        self._version = -1

    # --------------------------------------------------------------------------- for its node

    def start_replay(self, wanted: HistorySelector, room: Room, now_us: int) -> HistoryReplay:
        """Start the replay of a new subscription; all present nodes are asked."""
        recall = self._add(wanted, room)
        self.look(now_us)
        return recall

    def resume(
        self,
        wanted: HistorySelector,
        room: Room,
        positions: dict[str, Position] | None,
        now_us: int,
    ) -> HistoryReplay:
        """Resume a subscription after a restart; without positions it was live."""
        recall = self._add(wanted, room)
        recall.has_gone_live = positions is None
        self.look(now_us)
        if positions is None:
            for peer in self.peers.values():
                recall.resume(peer, None, now_us)
        else:
            for node, position in positions.items():
                recall.resume(self.peers.setdefault(node, PeerWatermarks(node)), position, now_us)
        return recall

    def end(self, recall: HistoryReplay) -> None:
        recall.end()
        self.replays.pop(recall, None)
        self.active.pop(recall, None)
        self._asked = {key: each for key, each in self._asked.items() if each[0] is not recall}
        if not self.replays:
            self.peers.clear()  # the next subscription reads everything

    def on_live_event(
        self,
        node: str,
        incarnation: int,
        number: int,
        now_us: int,
        *,
        original: ChildEventId | None = None,
    ) -> bool:
        """Record an event of a persistent channel that arrived live, from this node or another.

        `original` is its ID at a secondary node, if it goes to clients now. Returns whether live
        subscriptions have to replay history first, which they did not before.
        """
        if not self.replays:
            return False
        peer = self.peers.get(node)
        if peer is None:
            peer = self.peers[node] = PeerWatermarks(node)
        if not peer.has_sent:
            peer.has_sent = True
            for recall, room in self.replays.items():
                recall.add(peer, now_us)
                self._go_on_with(recall, room)
        if peer.has_begun_anew(incarnation, now_us):
            self._lose(peer, now_us)
        peer.arrived(number)
        if original is not None:
            self.originals.came(original)
        return self.has_woken

    def announce_history(self) -> None:
        """Announce that this node has history, if other nodes can read it."""

    def watermarks(self) -> dict[str, tuple[int, list[int]]]:
        """By node, the watermark and the numbers received after it, to be saved for a restart."""
        return {
            name: (peer.safe_offset, list(peer.seen))
            for name, peer in self.peers.items()
            if peer.safe_offset or peer.seen
        }

    def restore(self, places: dict[str, tuple[int, list[int]]]) -> None:
        for name, (offset, seen) in places.items():
            self.peers[name] = PeerWatermarks(name, offset, dict.fromkeys(seen, True))

    def look(self, now_us: int) -> None:
        """Sample which nodes are present, and which may have sent events that did not arrive."""
        around = self._around
        self._look_us = now_us + LOOK_US
        self._version = around.version()
        for name in dict.fromkeys((*self.peers, *around.names())):
            peer = self.peers.get(name)
            if peer is None:
                peer = self.peers[name] = PeerWatermarks(name)
            standing = around.standing(name)
            if peer.look(standing.is_here, standing.incarnation, now_us, standing.since):
                self._lose(peer, now_us)
            if peer.is_here or peer.has_sent or standing.has_kept:
                for recall in self.active:
                    recall.add(peer, now_us)
            if standing.is_here or standing.incarnation:
                peer.gone_us = None
            elif peer.gone_us is None:
                peer.gone_us = now_us
        self._forget(now_us)

    def send_due(self, now_us: int) -> None:
        """Send due requests; to be called as well when clients may have room again."""
        if not self.replays:
            return
        self._asked = {
            number: each for number, each in self._asked.items() if each[1].page == number
        }
        noted = self._around.noted()
        for recall, room in list(self.active.items()):
            if recall.noted is None:
                recall.noted = noted
            if recall.needed is None and recall.noted is not None:
                recall.needed = self._around.needed(recall.noted)
            recall.step(self.peers, now_us)
            self._ask_for_pages(recall, room, now_us)
            if recall.is_caught_up:
                del self.active[recall]
                recall.met.begin_spell()
        for peer in self.peers.values():
            if round_ := peer.question(now_us, self._last):
                self._last = max(self._last, round_)
                self._around.ask(peer.name, CutRequest(round_), now_us)

    def reset_interests(self, now_us: int) -> None:
        """Restart interest tracking: no node knows the interests by the new path yet."""
        for recall in self.replays:
            recall.needed = None
        if self.replays:
            self.look(now_us)

    # ------------------------------------------------------------------------------------ replies

    def on_reply(
        self, node: str, answer: CutReply | PageUnavailable | PageInProgress, now_us: int
    ) -> None:
        if isinstance(answer, CutReply):
            peer = self.peers.get(node)
            if peer is not None and is_cut(answer):
                peer.answered(answer, now_us, self._around.come_us(now_us))
            return
        _, source = self._asked.get(answer.id, (None, None))
        if source is None or source.node != node:
            return
        if isinstance(answer, PageInProgress):
            source.heard(now_us)
        else:
            source.put_off(answer.problem, now_us)

    def on_page(self, node: str, page: HistoryPage, now_us: int) -> None:
        recall, source = self._asked.get(page.id, (None, None))
        if recall is None or source is None or source.node != node:
            return
        del self._asked[page.id]
        if source.page == page.id:
            source.take_page(page, now_us)

    # --------------------------------------------------------------------------------------- timers

    def sample_if_due(self, now_us: int) -> None:
        if self.replays and (now_us >= self._look_us or self._version != self._around.version()):
            self.look(now_us)

    def next_due_us(self) -> int | None:
        if not self.replays:
            return None
        dues = [self._look_us]
        dues += [due for each in self.active if (due := each.next_due_us(self.peers)) is not None]
        dues += [due for each in self.peers.values() if (due := each.next_due_us()) is not None]
        return min(dues)

    def left(self) -> dict[str, int]:
        return {
            "recalls": len(self.replays),
            "pages asked for": len(self._asked),
            "bytes waiting": self._budget.bytes,
        }

    def check_invariants(self) -> None:
        assert len(self._asked) <= MAX_ASKED
        for peer in self.peers.values():
            peer.check_invariants()
        for recall in self.replays:
            recall.check_invariants()
            assert recall.is_caught_up or recall in self.active
        for number, (recall, source) in self._asked.items():
            assert recall in self.replays
            assert source.page in (number, 0)

    # ----------------------------------------------------------------------------------- internals

    def _add(self, wanted: HistorySelector, room: Room) -> HistoryReplay:
        recall = HistoryReplay(wanted, self.name, self._budget, self.originals)
        self.replays[recall] = self.active[recall] = room
        return recall

    def _forget(self, now_us: int) -> None:
        """Drop nodes that are gone for good and owe nothing, and the oldest beyond the limit."""
        gone = [
            (peer.gone_us, name) for name, peer in self.peers.items() if peer.gone_us is not None
        ]
        too_many = len(gone) - MAX_GONE
        for place, (since_us, name) in enumerate(sorted(gone)):
            is_over = since_us + FORGET_US <= now_us
            if place < too_many or (
                is_over and not any(each.awaits(name) for each in self.replays)
            ):
                del self.peers[name]
                for recall in self.replays:
                    recall.forget(name, now_us)

    def _lose(self, peer: PeerWatermarks, now_us: int) -> None:
        if peer.name == self.name:
            return
        had = dict(peer.seen)
        for recall, room in self.replays.items():
            recall.lose(peer, had, now_us)
            self._go_on_with(recall, room)

    def _go_on_with(self, recall: HistoryReplay, room: Room) -> None:
        """Mark a replay as active again unless it is finished."""
        if not recall.is_caught_up:
            self.has_woken = self.has_woken or recall not in self.active
            self.active[recall] = room
            recall.met.end_spell()

    def _ask_for_pages(self, recall: HistoryReplay, room: Room, now_us: int) -> None:
        wanting = [
            each
            for each in recall.sources.values()
            if each.wants_page(now_us) and self.peers[each.node].is_here
        ]
        if not wanting:
            return
        free = room()
        reading = sum(each.phase == READING for each in recall.sources.values())
        for source in wanting:
            number = source.page if source.page in self._asked else 0
            if free is None or (not number and len(self._asked) >= MAX_ASKED):
                source.no_room(now_us)
                continue
            if not number:
                self._last += 1
                number = self._last
                self._asked[number] = recall, source
            source.page_asked(number, now_us)
            asked = PageRequest(
                number,
                recall.wanted,
                source.start,
                source.before,
                source.cursor,
                min(MAX_ROWS, max(_MIN_ROWS, free[0] // reading)),
                min(MAX_BYTES, max(_MIN_BYTES, free[1] // reading)),
            )
            self._around.ask(source.node, asked, now_us)
