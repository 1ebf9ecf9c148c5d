"""Nodes for the simulator whose channels are persistent: each with a journal that outlives it."""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct

from accord.core.channels.channels import Channels
from accord.core.channels.persistent.answers import CutWanted, Order
from accord.core.channels.persistent.exchange import PastExchange
from accord.core.channels.persistent.messages import SERVICE, Page, PageAsked, PastEvent, Wanted
from accord.core.channels.persistent.recall import Recall
from accord.core.channels.persistent.source import Position
from accord.core.model.channels import filter_selects
from accord.core.node.message import Message
from accord.core.node.routes import Receiver, Subscription
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.registry import ChannelDefinition
from accord.core.qos.policies import Entity, Grant
from accord.core.scheduling.outbox import Run
from accord.sim.machine import Publication, Start, Wish, number_of
from accord.sim.node import OverlayNode

S: Final = 1_000_000
SAVE_US: Final = 2 * S  # between two times that durable subscriptions are noted
_ROWS: Final = 40
_BYTES: Final = 8_000


class Client:
    """What one subscription got, across all crashes of its node if it is durable."""

    def __init__(self, wish: Wish, began_us: int) -> None:
        self.wish = wish
        self.began_us = began_us
        self.got: list[int] = []
        self.notices: list[str] = []
        self.has_lost_node = False


class Ground(Struct):
    """What outlives nodes, and who published what."""

    journals: dict[str, list[PastEvent | None]] = {}
    published: dict[int, Publication] = {}
    clients: dict[tuple[str, str], Client] = {}
    saved: dict[tuple[str, str], dict[str, Position] | None] = {}
    places: dict[str, dict[str, tuple[int, list[int]]]] = {}
    handed: int = 0  # events of the past
    missed: int = 0


class Past(Receiver):
    """A client with a past: takes so many events at a time."""

    def __init__(self, node: PersistentNode, client: Client) -> None:
        super().__init__(client.wish.subscriber, Entity(client.wish.subscriber))
        self.is_connected = True
        self.node = node
        self.client = client
        self.recall: Recall | None = None
        self.subscription: Subscription | None = None

    def room(self) -> tuple[int, int] | None:
        return None if self.node.random.random() < 0.2 else (_ROWS, _BYTES)

    def deliver(
        self,
        message: Message,
        qos: int,  # noqa: ARG002
        is_retained: bool,  # noqa: ARG002
        identifiers: tuple[int, ...],  # noqa: ARG002
        grant: Grant,  # noqa: ARG002
    ) -> None:
        assert self.recall is not None
        number = number_of(message.payload)
        is_now = self.recall.is_calm or self.recall.live(
            self.node.source, message.number, number, message.size(), self.node.now_us
        )
        if is_now:
            self.client.got.append(number)

    def forward(self, run: Run) -> None:
        raise NotImplementedError

    def step(self) -> None:
        recall = self.recall
        assert recall is not None
        while (handed := recall.next(self.node.now_us)) is not None:
            assert not handed.is_again  # there are no secondary nodes here
            self.client.got.append(number_of(handed.event.payload))
            self.node.ground.handed += 1
        if recall.waiting() is not None:
            self.client.got += recall.go_live(self.node.now_us)
        self.client.notices += [each.node for each in recall.notices]
        self.node.ground.missed += len(recall.notices)
        recall.notices.clear()


class PersistentNode(OverlayNode):
    def __init__(
        self,
        start: Start,
        ground: Ground,
        definitions: list[ChannelDefinition],
        options: OverlayOptions,
    ) -> None:
        super().__init__(start, options)
        self.channels = Channels(self.overlay)
        self.name = start.name
        self.ground = ground
        self.random = Random(start.random.random())  # noqa: S311
        self.number = start.incarnation * 1_000
        self.source = start.name  # of the event that is handed over, and its number there
        self._numbered = 0
        self.exchange = self.channels.serve(
            SERVICE,
            lambda context: PastExchange(context, self.overlay.store, self.overlay.needs),
        )
        self.journal = ground.journals.setdefault(start.name, [])
        self.pasts: dict[Wish, Past] = {}
        self._due: list[tuple[int, int, Order, int, int]] = []  # what is read, and when it is
        self._order = 0
        self._save_us = start.now_us + SAVE_US
        for definition in definitions:
            self.overlay.registry.create(definition)
        self.exchange.restore(ground.places.get(start.name, {}))
        if self.journal:
            self.exchange.has_kept()

    @property
    def now_us(self) -> int:
        return self._now_us

    # ----------------------------------------------------------------------------------- clients

    def publish(self, publication: Publication, now_us: int) -> None:
        self.number += 1
        self.source, self._numbered = self.name, self.number
        self.ground.published[publication.number] = publication
        self.exchange.has_kept()
        if self.random.random() < 0.1:
            self.journal.append(None)  # something else
        self.journal.append(
            PastEvent(
                self.number,
                now_us // 1_000,
                publication.channel,
                publication.publisher,
                publication.qos,
                b"",
                publication.payload,
            )
        )
        numbered = Publication(
            number=self.number,
            publisher=publication.publisher,
            node=publication.node,
            channel=publication.channel,
            sequence=publication.sequence,
            published_us=publication.published_us,
            payload=publication.payload,
            qos=publication.qos,
        )
        if not self.channels.bound(publication.channel).is_ordered:
            self.exchange.arrived(self.name, 0, self.number, now_us)
        super().publish(numbered, now_us)
        self._drive()

    def subscribe(self, wish: Wish, now_us: int) -> None:
        self._now_us = now_us
        key = (wish.subscriber, wish.filter)
        is_durable = wish.subscriber.startswith("d")
        known = self.ground.clients.get(key)
        if known is None or not (is_durable and key in self.ground.saved):
            known = self.ground.clients[key] = Client(wish, now_us)
        past = self.pasts[wish] = Past(self, known)
        subscription = past.subscription = Subscription(past, wish.filter, qos=1)
        self._subscriptions[wish] = subscription
        self.router.add(subscription)
        self.overlay.need(wish.filter, ("", ""), None)
        wanted = Wanted(wish.filter)
        if is_durable and key in self.ground.saved:
            known.has_lost_node = True
            past.recall = self.exchange.resume(wanted, past.room, self.ground.saved[key], now_us)
        else:
            past.recall = self.exchange.recall(wanted, past.room, now_us)

    def unsubscribe(self, wish: Wish, now_us: int) -> None:
        past = self.pasts.pop(wish)
        assert past.recall is not None
        self.exchange.end(past.recall)
        self.ground.clients.pop((wish.subscriber, wish.filter), None)
        self.ground.saved.pop((wish.subscriber, wish.filter), None)
        super().unsubscribe(wish, now_us)

    # ------------------------------------------------------------------------------- for its host

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self._read(now_us)
        if now_us >= self._save_us:
            self._save()
            self._save_us = now_us + SAVE_US
        self.exchange.go_on(now_us)
        self._drive()

    def next_due_us(self) -> int:
        dues = [each[0] for each in self._due]
        return min([super().next_due_us(), self._save_us, *dues])

    def _hand_over(self) -> None:
        events, self.overlay.deliveries[:] = list(self.overlay.deliveries), []
        for event in events:
            if event.channel == SERVICE:
                self.exchange.page_came(event, self._now_us)
                continue
            self.source, self._numbered = event.source, event.event
            self.exchange.arrived(event.source, event.incarnation, event.event, self._now_us)
            self.overlay.deliveries.append(event)
            super()._hand_over()
        self._drive()

    def _route(self, message: Message) -> None:
        message.number = self._numbered
        super()._route(message)

    # ------------------------------------------------------------------------------- its journal

    def _drive(self) -> None:
        orders, self.exchange.orders[:] = list(self.exchange.orders), []
        for order in orders:
            self._order += 1
            at_us = self._now_us + self.random.choice((0, 1_000, 20_000, 200_000))
            entry = (at_us, self._order, order, len(self.journal), self.number)
            self._due.append(entry)
        for past in self.pasts.values():
            past.step()

    def _read(self, now_us: int) -> None:
        due = [each for each in self._due if each[0] <= now_us]
        self._due = [each for each in self._due if each[0] > now_us]
        for _, _, order, offset, number in due:
            if isinstance(order, CutWanted):
                self.exchange.cut_made(order, offset, number, now_us)
            elif self.random.random() < 0.05:
                self.exchange.no_page(order, "busy", now_us)
            else:
                self.exchange.page_made(order, self._page(order.asked), now_us)

    def _page(self, asked: PageAsked) -> Page:
        events: list[PastEvent] = []
        size = 0
        for offset in range(int(asked.cursor or asked.start), asked.before):
            event = self.journal[offset]
            if event is None or not filter_selects(asked.wanted.filter, event.channel):
                continue
            size += len(event.payload)
            if events and (len(events) == asked.rows or size > asked.bytes):
                return Page(asked.id, tuple(events), str(offset))
            events.append(event)
        return Page(asked.id, tuple(events))

    def _save(self) -> None:
        """What durable subscriptions need after a crash."""
        self.ground.places[self.name] = self.exchange.places()
        for wish, past in self.pasts.items():
            if wish.subscriber.startswith("d"):
                recall = past.recall
                assert recall is not None
                positions = None if recall.is_calm and not recall.sources else recall.positions()
                key = (wish.subscriber, wish.filter)
                self.ground.saved[key] = None if positions is None else dict(positions)
