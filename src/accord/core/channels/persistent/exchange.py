"""Persistent channels among nodes: who asks whom for what was kept, and who answers.

A node with others makes one of these, by `Channels.serve`. As who asks it keeps a `Recall` for each
subscription, and tells them all how the journals of other nodes stand. As who is asked it hands
what is wanted of its own journal to its driver (`orders`), a few pages at a time, and sends what
comes of it. It remembers nothing of those who ask: each question says all that is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.channels.letters import Got, Letter, Letters
from accord.core.channels.persistent.answers import Answers, CutWanted, PageWanted
from accord.core.channels.persistent.messages import (
    MOST_BYTES,
    MOST_ROWS,
    SERVICE,
    Body,
    CutAsked,
    CutMade,
    NoPage,
    Page,
    PageAsked,
    Wanted,
    Working,
    bodies,
    encode,
    is_cut,
    pages,
)
from accord.core.channels.persistent.originals import Original, Originals
from accord.core.channels.persistent.peers import Peer
from accord.core.channels.persistent.recall import Budget, Recall
from accord.core.channels.persistent.source import READING, Position, Source
from accord.core.channels.template import Context, Template
from accord.core.model.decoding import decoded
from accord.core.overlay.facts import FactStore
from accord.core.overlay.needs import Needs
from accord.core.overlay.routes import Requirement
from accord.core.overlay.signals import Carried

HISTORY: Final = "past"  # the fact that a node has kept events of persistent channels
IMPORTANCE: Final = 1  # of the past on its way
MOST_ASKED: Final = 64  # pages that are under way for this node
LOOK_US: Final = 200_000  # between two looks at who is there
FORGET_US: Final = 86_400_000_000  # a node is gone for so long until it is forgotten
MOST_GONE: Final = 1_000  # nodes that are gone and remembered
_LEAST_ROWS: Final = 10
_LEAST_BYTES: Final = 16 << 10
_ANYHOW: Final = Requirement(0, 1, 0.0)

_letters: Final[msgspec.msgpack.Decoder[Letter | Got]] = msgspec.msgpack.Decoder(Letter | Got)

Room = Callable[[], tuple[int, int] | None]  # events and bytes that a client has room for


class PastExchange(Template):
    """`dropped` counts what others said that made no sense."""

    def __init__(self, context: Context, store: FactStore, needs: Needs) -> None:
        super().__init__(context)
        self.letters = Letters(
            context.name, context.incarnation, context.map, self._say, self._letter
        )
        self.peers: dict[str, Peer] = {}
        self.originals = Originals()
        self.recalls: dict[Recall, Room] = {}
        self.active: dict[Recall, Room] = {}  # those with a past
        self.answers = Answers(self._post)
        self.orders = self.answers.orders
        self.dropped = 0
        self.sent = 0  # events of the past, to other nodes
        self._budget = Budget()
        self._store = store
        self._needs = needs
        self._last = context.incarnation * 1_000_000  # of the questions asked
        self._asked: dict[int, tuple[Recall, Source]] = {}  # pages that were asked for
        self._look_us = 0
        self._map_version = -1

    # --------------------------------------------------------------------------- for its node

    def recall(self, wanted: Wanted, room: Room, now_us: int) -> Recall:
        """What a new subscription gets; all nodes that are there are asked."""
        recall = self._add(wanted, room)
        self._look(now_us)
        return recall

    def resume(
        self, wanted: Wanted, room: Room, positions: dict[str, Position] | None, now_us: int
    ) -> Recall:
        """The same for a subscription from before; without positions it was a live one."""
        recall = self._add(wanted, room)
        recall.has_gone_live = positions is None
        self._look(now_us)
        if positions is None:
            for peer in self.peers.values():
                recall.resume(peer, None, now_us)
        else:
            for node, position in positions.items():
                recall.resume(self.peers.setdefault(node, Peer(node)), position, now_us)
        return recall

    def end(self, recall: Recall) -> None:
        recall.end()
        self.recalls.pop(recall, None)
        self.active.pop(recall, None)
        self._asked = {key: each for key, each in self._asked.items() if each[0] is not recall}
        if not self.recalls:
            self.peers.clear()  # who subscribes next asks them for everything

    def arrived(
        self,
        node: str,
        incarnation: int,
        number: int,
        now_us: int,
        *,
        original: Original | None = None,
    ) -> bool:
        """An event of a persistent channel came as it was published, from this node or another.

        `original` is what a secondary node calls it, if it goes to clients now. True where
        subscriptions have a past because of that, which must get it first.
        """
        if not self.recalls:
            return False
        peer = self.peers.get(node)
        if peer is None:
            peer = self.peers[node] = Peer(node)
        active = len(self.active)
        if not peer.has_sent:
            peer.has_sent = True
            for recall, room in self.recalls.items():
                recall.add(peer, now_us)
                self._go_on_with(recall, room)
        if peer.has_begun_anew(incarnation, now_us):
            self._lose(peer, now_us)
        peer.arrived(number)
        if original is not None:
            self.originals.came(original)
        return len(self.active) > active

    def has_kept(self) -> None:
        """This node has a past that others may ask for."""
        self._store.put(HISTORY, "", b"")

    def places(self) -> dict[str, tuple[int, list[int]]]:
        """By node, up to where all is here, and which numbers besides: for a start after this."""
        return {
            name: (peer.safe_offset, list(peer.seen))
            for name, peer in self.peers.items()
            if peer.safe_offset or peer.seen
        }

    def restore(self, places: dict[str, tuple[int, list[int]]]) -> None:
        for name, (offset, seen) in places.items():
            self.peers[name] = Peer(name, offset, dict.fromkeys(seen, True))

    # ------------------------------------------------------------------- what its driver answers

    def cut_made(self, order: CutWanted, offset: int, number: int, now_us: int) -> None:
        heard = self._store.stamp(order.to)
        made = CutMade(order.round, self.context.incarnation, offset, number, heard)
        self._post(order.to, made, now_us)

    def page_made(self, order: PageWanted, page: Page, now_us: int) -> None:
        self.answers.done(order)
        if order.to == self.context.name:
            self._take_page(page, now_us)
            return
        self.sent += len(page.events)
        event = Carried(
            "", 0, 0, (), SERVICE, encode(page), qos=1, importance=IMPORTANCE, event=page.id
        )
        self.context.carry(event, [order.to], _ANYHOW)

    def no_page(self, order: PageWanted, problem: str, now_us: int) -> None:
        self.answers.done(order)
        self._post(order.to, NoPage(order.asked.id, problem[:500]), now_us)

    def page_came(self, event: Carried, now_us: int) -> None:
        """A page from another node."""
        page = decoded(pages, event.payload)
        if page is None:
            self.dropped += 1
            return
        asked = self._asked.get(page.id)
        if asked is not None and asked[1].node == event.source:
            self._take_page(page, now_us)

    # ---------------------------------------------------------------------------------- template

    def said(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        message = decoded(_letters, body)
        if message is None:
            self.dropped += 1
        elif isinstance(message, Letter):
            self.letters.came(neighbour, channel, message, now_us)
        else:
            self.letters.got(neighbour, message)

    def advance(self, now_us: int) -> None:
        if self.recalls and (
            now_us >= self._look_us or self._map_version != self.context.map.version
        ):
            self._look(now_us)
        self.go_on(now_us)
        self.letters.advance(now_us)

    def go_on(self, now_us: int) -> None:
        """Ask for what is wanted now; also to be called when clients may have room again."""
        if not self.recalls:
            return
        needed = None if self._needs.has_changed() else self._store.stamp(self.context.name)
        self._asked = {
            number: each for number, each in self._asked.items() if each[1].page == number
        }
        for recall, room in list(self.active.items()):
            if recall.needed is None:
                recall.needed = needed
            recall.step(self.peers, now_us)
            self._ask_for_pages(recall, room, now_us)
            if recall.is_calm:
                del self.active[recall]
                recall.met.begin_spell()
        for peer in self.peers.values():
            if round_ := peer.question(now_us, self._last):
                self._last = max(self._last, round_)
                self._post(peer.name, CutAsked(round_), now_us)

    def next_due_us(self) -> int | None:
        dues = [self.letters.next_due_us()]
        if self.recalls:
            dues.append(self._look_us)
            dues += [each.next_due_us(self.peers) for each in self.active]
            dues += [each.next_due_us() for each in self.peers.values()]
        return min((due for due in dues if due is not None), default=None)

    def left(self) -> dict[str, int]:
        return {
            "letters": len(self.letters),
            "recalls": len(self.recalls),
            "pages asked for": len(self._asked),
            "pages being read": len(self.answers),
            "bytes waiting": self._budget.bytes,
        }

    def check_invariants(self) -> None:
        self.letters.check_invariants()
        assert len(self._asked) <= MOST_ASKED
        self.answers.check_invariants()
        for peer in self.peers.values():
            peer.check_invariants()
        for recall in self.recalls:
            recall.check_invariants()
            assert recall.is_calm or recall in self.active
        for number, (recall, source) in self._asked.items():
            assert recall in self.recalls
            assert source.page in (number, 0)

    # ------------------------------------------------------------------------------------ inside

    def _add(self, wanted: Wanted, room: Room) -> Recall:
        recall = Recall(wanted, self.context.name, self._budget, self.originals)
        self.recalls[recall] = self.active[recall] = room
        return recall

    def _is_asked(self, peer: Peer) -> bool:
        is_known = peer.is_here or peer.has_sent
        return is_known or self._store.get(peer.name, HISTORY, "") is not None

    def _look(self, now_us: int) -> None:
        """See who is there, and who may have sent what did not arrive."""
        self._look_us = now_us + LOOK_US
        self._map_version = self.context.map.version
        reachable = self.context.map.distances(self.context.name).costs
        names = dict.fromkeys(self.peers, True)
        names.update(dict.fromkeys(reachable, True))
        names.update((origin, True) for origin, _, _ in self._store.all(HISTORY))
        for name in names:
            peer = self.peers.get(name)
            if peer is None:
                peer = self.peers[name] = Peer(name)
            incarnation = self._store.stamp(name)[0]
            if peer.look(name in reachable, incarnation, now_us):
                self._lose(peer, now_us)
            if self._is_asked(peer):
                for recall in self.active:
                    recall.add(peer, now_us)
            if name in reachable or incarnation:
                peer.gone_us = None
            elif peer.gone_us is None:
                peer.gone_us = now_us
        self._forget(now_us)

    def _forget(self, now_us: int) -> None:
        """Nodes that are gone for good and owe nothing, and those that are too many."""
        gone = [
            (peer.gone_us, name) for name, peer in self.peers.items() if peer.gone_us is not None
        ]
        too_many = len(gone) - MOST_GONE
        for place, (since_us, name) in enumerate(sorted(gone)):
            is_over = since_us + FORGET_US <= now_us
            if place < too_many or (
                is_over and not any(each.awaits(name) for each in self.recalls)
            ):
                del self.peers[name]
                for recall in self.recalls:
                    recall.forget(name, now_us)

    def _lose(self, peer: Peer, now_us: int) -> None:
        if peer.name == self.context.name:
            return
        had = dict(peer.seen)
        for recall, room in self.recalls.items():
            recall.lose(peer, had, now_us)
            self._go_on_with(recall, room)

    def _go_on_with(self, recall: Recall, room: Room) -> None:
        """It has a past again, if it is not calm any more."""
        if not recall.is_calm:
            self.active[recall] = room
            recall.met.end_spell()

    def _ask_for_pages(self, recall: Recall, room: Room, now_us: int) -> None:
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
            if free is None or (not number and len(self._asked) >= MOST_ASKED):
                source.no_room(now_us)
                continue
            if not number:
                self._last += 1
                number = self._last
                self._asked[number] = recall, source
            source.page_asked(number, now_us)
            asked = PageAsked(
                number,
                recall.wanted,
                source.start,
                source.before,
                source.cursor,
                min(MOST_ROWS, max(_LEAST_ROWS, free[0] // reading)),
                min(MOST_BYTES, max(_LEAST_BYTES, free[1] // reading)),
            )
            self._post(source.node, asked, now_us)

    def _take_page(self, page: Page, now_us: int) -> None:
        recall, source = self._asked.pop(page.id, (None, None))
        if recall is not None and source is not None and source.page == page.id:
            source.take_page(page, now_us)

    def _post(self, to: str, body: Body, now_us: int) -> None:
        self.letters.post(to, "", encode(body), now_us)

    def _say(self, neighbour: str, channel: str, message: Letter | Got) -> None:
        self.context.say(neighbour, channel, encode(message))

    def _letter(self, origin: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        message = decoded(bodies, body)
        match message:
            case None:
                self.dropped += 1
            case CutAsked():
                self.answers.cut_asked(origin, message.round)
            case CutMade():
                peer = self.peers.get(origin)
                if peer is not None and is_cut(message):
                    peer.answered(message, now_us)
            case PageAsked():
                self.answers.page_asked(origin, message, now_us)
            case NoPage() | Working():
                self._no_page_yet(origin, message, now_us)

    def _no_page_yet(self, origin: str, message: NoPage | Working, now_us: int) -> None:
        _, source = self._asked.get(message.id, (None, None))
        if source is None or source.node != origin:
            return
        if isinstance(message, Working):
            source.heard(now_us)
        else:
            source.put_off(message.problem, now_us)
