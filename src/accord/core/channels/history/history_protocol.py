"""History protocol between backbone nodes: both the requesting and the serving side.

A node with neighbours registers one with `Channels.serve`. It fetches history for its own clients,
and relays the requests of its children and the replies to them. As a server it queues reads of its
journal for the driver (`orders`), a few pages at a time, and sends the results. It keeps no state
per requester: each request is self-contained.

List of nodes that a parent sends to secondary nodes which request history.

A secondary node cannot see a node that leaves and returns between two samples. Each node therefore
carries the time since which it has been present without a break: if that differs from before, some
of its events may be lost. Nothing is sampled while no secondary node asks; when one asks again, all
nodes count as new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from accord.core.channels.control_unicast import ControlUnicast, HopAck, UnicastMessage
from accord.core.channels.history.history_client import LOOK_US, HistoryClient, PeerPort, PeerState
from accord.core.channels.history.messages import (
    SERVICE,
    Body,
    CutReply,
    CutRequest,
    HistoryPage,
    HistoryReply,
    HistoryRequest,
    JournalReads,
    MakeCut,
    PageInProgress,
    PageRequest,
    PageUnavailable,
    ReadPage,
    Stamp,
    bodies,
    encode,
    pages,
    problem_with_question,
)
from accord.core.channels.template import Context, Template
from accord.core.model.errors import decode_or_none
from accord.core.overlay.interests import InterestTable
from accord.core.overlay.route_manager import Requirement
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.state_store import StateStore

ASKED_US: Final = 10_000_000  # sampling continues for so long after a request

Nodes = tuple[tuple[str, PeerState], ...]


class PeerList:
    """The list; `version` increases whenever `nodes` change."""

    def __init__(self, around: PeerPort) -> None:
        self.version = 0
        self.nodes: Nodes = ()
        self._around = around
        self._since: dict[str, tuple[int, int]] = {}  # (time, incarnation)
        self._until_us = 0
        self._look_us = 0
        self._seen = -1  # last sampled version of the environment

    def ask(self, now_us: int) -> None:
        """Start or extend sampling."""
        if self._until_us <= now_us:
            self._since.clear()
            self._until_us = now_us + ASKED_US
            self._look(now_us)
        self._until_us = now_us + ASKED_US

    def look_if_due(self, now_us: int) -> None:
        is_due = now_us >= self._look_us or self._seen != self._around.version()
        if now_us < self._until_us and is_due:
            self._look(now_us)

    def next_due_us(self) -> int | None:
        return self._look_us if self._look_us < self._until_us else None

    def _look(self, now_us: int) -> None:
        self._look_us = now_us + LOOK_US
        self._seen = self._around.version()
        nodes = []
        for name in sorted(dict.fromkeys(self._around.names())):
            standing = self._around.standing(name)
            if not (standing.is_here and standing.incarnation):
                self._since.pop(name, None)
            elif self._since.get(name, (0, 0))[1] != standing.incarnation:
                self._since[name] = (now_us, standing.incarnation)
            since, _ = self._since.get(name, (0, 0))
            nodes.append((name, standing._replace(since=since)))
        found = dict(nodes)
        self._since = {name: each for name, each in self._since.items() if name in found}
        if tuple(nodes) != self.nodes:
            self.nodes = tuple(nodes)
            # No version is used twice, in any incarnation of this node.
            self.version = max(self.version + 1, now_us)


HISTORY: Final = "past"  # kind of state record: the node has history
_HISTORY_BYTES: Final = 1 << 10  # share of the node's state records reserved for this kind
IMPORTANCE: Final = 1  # of pages in transit
_ANYHOW: Final = Requirement(0, 1, 0.0)

_letters: Final[msgspec.msgpack.Decoder[UnicastMessage | HopAck]] = msgspec.msgpack.Decoder(
    UnicastMessage | HopAck
)

OnAnswer = Callable[[str, str, HistoryReply, int], None]  # (child, node, reply, now_us)


class HistoryProtocol(HistoryClient, Template):
    """History client and server of a backbone node.

    `dropped` counts invalid messages. `on_child_reply` is called with replies for children of this
    node.
    """

    def __init__(self, context: Context, store: StateStore, needs: InterestTable) -> None:
        Template.__init__(self, context)
        HistoryClient.__init__(self, context.name, context.incarnation, self)
        self.letters = ControlUnicast(
            context.name, context.incarnation, context.map, self._say, self._letter
        )
        self.answers = JournalReads(self._post)
        self.orders = self.answers.orders
        self.on_child_reply: OnAnswer = lambda *_: None
        self._roster = PeerList(self)
        self.dropped = 0
        self.sent = 0  # history events sent to other nodes
        self._store = store
        self._needs = needs
        store.reserve(HISTORY, _HISTORY_BYTES)

    # ------------------------------------------------------------------------ view of other nodes

    def version(self) -> int:
        return self.context.map.version

    def names(self) -> Iterable[str]:
        return [*self._reached(), *(origin for origin, _, _ in self._store.all(HISTORY))]

    def standing(self, node: str) -> PeerState:
        has_kept = self._store.get(node, HISTORY, "") is not None
        return PeerState(node in self._reached(), self._store.version_of(node)[0], has_kept)

    def noted(self) -> Stamp | None:
        return None if self._needs.has_changed() else self._store.version_of(self.name)

    def needed(self, noted: Stamp) -> Stamp | None:
        return noted

    def come_us(self, now_us: int) -> int:
        return now_us

    def ask(self, node: str, question: HistoryRequest, now_us: int) -> None:
        self._post(node, question, now_us)

    def _reached(self) -> Mapping[str, object]:
        return self.context.map.distances(self.name).costs

    # --------------------------------------------------------------------------- for its node

    def announce_history(self) -> None:
        """Announce that this node has history."""
        self._store.put(HISTORY, "", b"")

    def relay(self, child: str, node: str, question: HistoryRequest, now_us: int) -> None:
        """Relay the request of a child to `node`."""
        if isinstance(question, PageRequest) and (problem := problem_with_question(question)):
            self.on_child_reply(child, node, PageUnavailable(question.id, problem), now_us)
        elif node in self._reached():
            self._post(node, msgspec.structs.replace(question, child=child), now_us)

    def interest_version(self) -> Stamp:
        """The version of this node's records that includes all its interests; zeros before."""
        return self.noted() or (0, 0)

    def peer_list(self, now_us: int) -> tuple[int, Nodes]:
        """The peer list for secondary nodes, and its version."""
        self._roster.ask(now_us)
        return self._roster.version, self._roster.nodes

    # --------------------------------------------------------------------- results of the driver

    def on_cut(self, order: MakeCut, offset: int, number: int, now_us: int) -> None:
        heard = self._store.version_of(order.to)
        made = CutReply(order.round, self.context.incarnation, offset, number, heard, order.child)
        self._post(order.to, made, now_us)

    def on_page_read(self, order: ReadPage, page: HistoryPage, now_us: int) -> None:
        self.answers.done(order)
        if order.asked.child:
            page = msgspec.structs.replace(page, child=order.asked.child)
        if order.to == self.name:
            self._take(self.name, page, now_us)
            return
        self.sent += len(page.events)
        event = TransitEvent(
            "", 0, 0, (), SERVICE, encode(page), qos=1, importance=IMPORTANCE, event=page.id
        )
        self.context.send_routed(event, [order.to], _ANYHOW)

    def on_page_failed(self, order: ReadPage, problem: str, now_us: int) -> None:
        self.answers.done(order)
        asked = order.asked
        self._post(order.to, PageUnavailable(asked.id, problem[:500], asked.child), now_us)

    def on_page_event(self, event: TransitEvent, now_us: int) -> None:
        """Handle a page from another node."""
        page = decode_or_none(pages, event.payload)
        if page is None:
            self.dropped += 1
        else:
            self._take(event.source, page, now_us)

    # ---------------------------------------------------------------------------------- template

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_letters, body)
        if message is None:
            self.dropped += 1
        elif isinstance(message, UnicastMessage):
            self.letters.on_message(neighbour, channel, message, now_us)
        else:
            self.letters.on_ack(neighbour, message)

    def advance(self, now_us: int) -> None:
        self.sample_if_due(now_us)
        self._roster.look_if_due(now_us)
        self.send_due(now_us)
        self.letters.advance(now_us)

    def next_due_us(self) -> int | None:
        dues = (
            self.letters.next_due_us(),
            HistoryClient.next_due_us(self),
            self._roster.next_due_us(),
        )
        return min((due for due in dues if due is not None), default=None)

    def retained_state(self) -> dict[str, int]:
        return {
            "letters": len(self.letters),
            "pages being read": len(self.answers),
            **HistoryClient.left(self),
        }

    def check_invariants(self) -> None:
        HistoryClient.check_invariants(self)
        self.letters.check_invariants()
        self.answers.check_invariants()

    # --------------------------------------------------------------------------------- internals

    def _post(self, to: str, body: Body, now_us: int) -> None:
        self.letters.send(to, "", encode(body), now_us)

    def _say(self, neighbour: str, channel: str, message: UnicastMessage | HopAck) -> None:
        self.context.send_message(neighbour, channel, encode(message))

    def _letter(self, origin: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        message = decode_or_none(bodies, body)
        match message:
            case None:
                self.dropped += 1
            case CutRequest():
                self.answers.cut_asked(origin, message)
            case PageRequest():
                self.answers.page_asked(origin, message, now_us)
            case CutReply() | PageUnavailable() | PageInProgress():
                if message.child:
                    self.on_child_reply(message.child, origin, message, now_us)
                else:
                    self.on_reply(origin, message, now_us)

    def _take(self, node: str, page: HistoryPage, now_us: int) -> None:
        if page.child:
            self.on_child_reply(page.child, node, page, now_us)
        else:
            self.on_page(node, page, now_us)
