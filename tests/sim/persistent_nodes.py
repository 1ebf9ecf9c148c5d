"""Nodes for the simulator whose channels are persistent: each with a journal that outlives it."""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from accord.core.channels.history.history_client import HistoryClient
from accord.core.channels.history.history_protocol import HistoryProtocol
from accord.core.channels.history.history_replay import ChildEventId, HistoryReplay
from accord.core.channels.history.messages import (
    SERVICE,
    HistoryEvent,
    HistoryPage,
    HistorySelector,
    JournalCommand,
    MakeCut,
    PageRequest,
)
from accord.core.channels.history.peer_replay import Position
from accord.core.model.channels import filter_selects
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.signalling import TransitEvent
from accord.core.router.fan_out import RouterSubscription
from accord.core.router.message import Message
from accord.sim.machine import Publication, SimSubscription, Start, number_of
from accord.sim.node import OverlayNode, RouterSubscriber

S: Final = 1_000_000
SAVE_US: Final = 2 * S  # between two times that durable subscriptions are noted
_ROWS: Final = 40
_BYTES: Final = 8_000


class Client:
    """What one subscription got, across all crashes of its node if it is durable."""

    def __init__(self, wish: SimSubscription, began_us: int) -> None:
        self.wish = wish
        self.began_us = began_us
        self.got: list[int] = []
        self.notices: list[str] = []
        self.has_lost_node = False


class Ground(Struct):
    """What outlives nodes, and who published what."""

    journals: dict[str, list[HistoryEvent | None]] = {}
    published: dict[int, Publication] = {}
    sent: dict[int, Publication] = {}  # by clients of secondary nodes
    starts: dict[str, int] = {}  # of each node
    channels: tuple[str, ...] = ()  # that secondary nodes remember
    clients: dict[tuple[str, str], Client] = {}
    saved: dict[tuple[str, str], dict[str, Position] | None] = {}
    places: dict[str, dict[str, tuple[int, list[int]]]] = {}
    handed: int = 0  # events of the past
    again: int = 0  # those that came before, from another node
    missed: int = 0


class Past:
    """A client with a past: takes so many events at a time."""

    def __init__(self, node: Host, client: Client) -> None:
        self.name = client.wish.subscriber
        self.node = node
        self.client = client
        self.recall: HistoryReplay | None = None
        receiver = RouterSubscriber(self.name, self.deliver)
        self.subscription = RouterSubscription(receiver, client.wish.filter, qos=1)

    def room(self) -> tuple[int, int] | None:
        return None if self.node.random.random() < 0.2 else (_ROWS, _BYTES)

    def deliver(self, message: Message) -> None:
        assert self.recall is not None
        number = number_of(message.payload)
        is_now = self.recall.is_caught_up or self.recall.on_live_event(
            self.node.source,
            message.number,
            number,
            message.size(),
            self.node.now_us,
            original=self.node.original,
        )
        if is_now:
            self.client.got.append(number)

    def step(self) -> None:
        recall = self.recall
        assert recall is not None
        while (handed := recall.next(self.node.now_us)) is not None:
            if handed.is_duplicate:
                self.node.ground.again += 1
                continue
            self.client.got.append(number_of(handed.event.payload))
            self.node.ground.handed += 1
        if recall.buffered() is not None:
            self.client.got += recall.go_live(self.node.now_us)
        self.client.notices += [each.node for each in recall.notices]
        self.node.ground.missed += len(recall.notices)
        recall.notices.clear()


class Host:
    """What a node of either tier has of its clients' pasts."""

    name: str
    ground: Ground
    random: Random
    asker: HistoryClient

    def begin_pasts(self, start: Start, ground: Ground, asker: HistoryClient) -> None:
        self.name = start.name
        self.ground = ground
        ground.starts[start.name] = ground.starts.get(start.name, 0) + 1
        self.random = Random(start.random.random())  # noqa: S311
        self.asker = asker
        self.source = start.name  # of the event that is handed over, and its number there
        self.original: ChildEventId | None = None
        self.numbered = 0
        self.pasts: dict[SimSubscription, Past] = {}
        self.save_us = start.now_us + SAVE_US
        asker.restore(ground.places.get(start.name, {}))

    @property
    def now_us(self) -> int:
        raise NotImplementedError

    def came(self, event: TransitEvent) -> None:
        """An event of another node is about to be handed over."""
        self.source, self.numbered = event.source, event.event
        self.original = (event.child, event.child_number) if event.child else None
        self.asker.on_live_event(
            event.source, event.incarnation, event.event, self.now_us, original=self.original
        )

    def begin_past(self, wish: SimSubscription) -> RouterSubscription:
        key = (wish.subscriber, wish.filter)
        is_durable = wish.subscriber.startswith("d")
        known = self.ground.clients.get(key)
        if known is None or not (is_durable and key in self.ground.saved):
            known = self.ground.clients[key] = Client(wish, self.now_us)
        past = self.pasts[wish] = Past(self, known)
        wanted = HistorySelector(wish.filter)
        if is_durable and key in self.ground.saved:
            known.has_lost_node = True
            saved = self.ground.saved[key]
            past.recall = self.asker.resume(wanted, past.room, saved, self.now_us)
        else:
            past.recall = self.asker.start_replay(wanted, past.room, self.now_us)
        return past.subscription

    def end_past(self, wish: SimSubscription) -> None:
        past = self.pasts.pop(wish)
        assert past.recall is not None
        self.asker.end(past.recall)
        self.ground.clients.pop((wish.subscriber, wish.filter), None)
        self.ground.saved.pop((wish.subscriber, wish.filter), None)

    def step_pasts(self) -> None:
        for past in self.pasts.values():
            past.step()

    def save_pasts(self) -> None:
        """From time to time, what durable subscriptions need after a crash."""
        if self.now_us < self.save_us:
            return
        self.save_us = self.now_us + SAVE_US
        self.ground.places[self.name] = self.asker.watermarks()
        for wish, past in self.pasts.items():
            if wish.subscriber.startswith("d"):
                recall = past.recall
                assert recall is not None
                key = (wish.subscriber, wish.filter)
                if recall.is_caught_up and not recall.sources:
                    self.ground.saved[key] = None
                else:
                    positions = dict(recall.positions())
                    positions.update(dict.fromkeys(recall.lived, (0, -1, "")))
                    self.ground.saved[key] = positions


class PersistentNode(Host, OverlayNode):
    def __init__(
        self,
        start: Start,
        ground: Ground,
        definitions: list[ChannelDefinition],
        options: OverlayOptions,
    ) -> None:
        super().__init__(start, options)
        self.begin_node(start, ground, definitions)

    def begin_node(
        self, start: Start, ground: Ground, definitions: list[ChannelDefinition]
    ) -> None:
        self.number = start.incarnation * 1_000
        self.exchange = self.channels.serve(
            SERVICE,
            lambda context: HistoryProtocol(context, self.overlay.store, self.overlay.interests),
        )
        self.begin_pasts(start, ground, self.exchange)
        self.journal = ground.journals.setdefault(start.name, [])
        self._due: list[
            tuple[int, int, JournalCommand, int, int]
        ] = []  # what is read, and when it is
        self._order = 0
        for definition in definitions:
            self.overlay.directory.create(definition)
        if self.journal:
            self.exchange.announce_history()

    @property
    def now_us(self) -> int:
        return self._now_us

    # ----------------------------------------------------------------------------------- clients

    def publish(self, publication: Publication, now_us: int) -> None:
        self._now_us = now_us
        self.keep(publication)
        numbered = replace(publication, number=self.number)
        if not self.channels.channel_traits(publication.channel).is_ordered:
            self.exchange.on_live_event(self.name, 0, self.number, now_us)
        super().publish(numbered, now_us)
        self.drive()

    def keep(self, publication: Publication, original: ChildEventId | None = None) -> None:
        """Give it a number, and write it down."""
        self.number += 1
        self.source, self.numbered, self.original = self.name, self.number, original
        self.ground.published[publication.number] = publication
        self.exchange.announce_history()
        if self.random.random() < 0.1:
            self.journal.append(None)  # something else
        self.journal.append(
            HistoryEvent(
                self.number,
                self._now_us // 1_000,
                publication.channel,
                publication.publisher,
                publication.qos,
                b"",
                publication.payload,
                *(original or ("", 0)),
            )
        )

    def subscribe(self, wish: SimSubscription, now_us: int) -> None:
        self._now_us = now_us
        subscription = self._subscriptions[wish] = self.begin_past(wish)
        self.router.add(subscription)
        self.overlay.add_interest(wish.filter, ("", ""), None)

    def unsubscribe(self, wish: SimSubscription, now_us: int) -> None:
        self.end_past(wish)
        super().unsubscribe(wish, now_us)

    # ------------------------------------------------------------------------------- for its host

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self._read(now_us)
        self.save_pasts()
        self.exchange.send_due(now_us)
        self.drive()

    def next_due_us(self) -> int:
        dues = [each[0] for each in self._due]
        return min([super().next_due_us(), self.save_us, *dues])

    def _deliver(self) -> None:
        events, self.overlay.deliveries[:] = list(self.overlay.deliveries), []
        for event in events:
            if event.channel == SERVICE:
                self.exchange.on_page_event(event, self._now_us)
                continue
            self.came(event)
            self.overlay.deliveries.append(event)
            super()._deliver()
        self.drive()

    def _route(self, message: Message) -> None:
        message.number = self.numbered
        super()._route(message)

    # ------------------------------------------------------------------------------- its journal

    def drive(self) -> None:
        orders, self.exchange.orders[:] = list(self.exchange.orders), []
        for order in orders:
            self._order += 1
            at_us = self._now_us + self.random.choice((0, 1_000, 20_000, 200_000))
            entry = (at_us, self._order, order, len(self.journal), self.number)
            self._due.append(entry)
        self.step_pasts()

    def _read(self, now_us: int) -> None:
        due = [each for each in self._due if each[0] <= now_us]
        self._due = [each for each in self._due if each[0] > now_us]
        for _, _, order, offset, number in due:
            if isinstance(order, MakeCut):
                self.exchange.on_cut(order, offset, number, now_us)
            elif self.random.random() < 0.05:
                self.exchange.on_page_failed(order, "busy", now_us)
            else:
                self.exchange.on_page_read(order, self._page(order.asked), now_us)

    def _page(self, asked: PageRequest) -> HistoryPage:
        events: list[HistoryEvent] = []
        size = 0
        for offset in range(int(asked.cursor or asked.start), asked.before):
            event = self.journal[offset]
            if event is None or not filter_selects(asked.wanted.filter, event.channel):
                continue
            size += len(event.payload)
            if events and (len(events) == asked.rows or size > asked.bytes):
                return HistoryPage(asked.id, tuple(events), str(offset))
            events.append(event)
        return HistoryPage(asked.id, tuple(events))
