"""Client subscriptions to persistent channels: the history kept at all nodes, then live.

`core/channels/history` obtains the events from other nodes without gaps or duplicates. This module
turns them into messages, as fast as the client accepts them. Until the history is delivered, a
`HistorySubscription` stands in for the session in the router and passes through what does not
concern it. Afterwards the session receives directly again; the `HistorySubscription` is kept, as a
node that fails or returns may leave more history to read.

The progress of a durable session is recorded when the client has acknowledged a page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from accord.core.admission.filter_index.patterns import intersects
from accord.core.broker.catch_up import BufferedLiveEvent, ReceiverProxy, is_unconfirmed, page_room
from accord.core.broker.client_notifications import notify_session
from accord.core.broker.delivery import ClientDelivery
from accord.core.broker.kept_messages import history_message
from accord.core.broker.message import MqttMessage
from accord.core.broker.session import MqttSession
from accord.core.channels.history.history_client import HistoryClient
from accord.core.channels.history.history_replay import (
    ChildEventId,
    HistoryGap,
    HistoryReplay,
    ReplayedEvent,
)
from accord.core.channels.history.messages import HistoryEvent, HistorySelector
from accord.core.channels.history.peer_replay import Position
from accord.core.model.channels import filter_selects, problem_with_channel
from accord.core.model.errors import EventError
from accord.core.monitoring.ledger import SHED
from accord.core.mqtt.codes import ProtocolError
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.validation import MAX_NUMBER, MAX_QOS, problem_with_name
from accord.core.policy.policies import Entity, Grant
from accord.core.queries.messages import QueryHit
from accord.core.router.fan_out import FanOut, Receiver, RouterSubscription
from accord.core.router.message import Message
from accord.core.router.rights import HISTORY
from accord.core.scheduling.outbox import EventRun

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker

MISSED: Final = "history unavailable"
_OVERHEAD: Final = 64

Progress = tuple[int, dict[str, Position] | None]  # start time, and the position at each node


class _Page:
    """The events of one node's page until the client has all of them."""

    def __init__(self, before: Position) -> None:
        self.before = before
        self.after: Position | None = None  # set once the whole page is delivered
        self.deliveries: list[ClientDelivery] = []

    def is_done(self, session: MqttSession) -> bool:
        self.deliveries = [each for each in self.deliveries if is_unconfirmed(session, each)]
        return self.after is not None and not self.deliveries


class HistorySubscription(ReceiverProxy):
    """Stands in for a session as the receiver of one subscription's persistent channels."""

    def __init__(
        self,
        histories: HistorySubscriptions,
        session: MqttSession,
        name: str,
        subscription: RouterSubscription,
        since_ms: int,
    ) -> None:
        super().__init__(session.name, session.entity)
        self.is_connected = True
        self.session = session
        self.pattern = name  # the session's name for it
        self.subscription = subscription
        self.inner: Receiver = subscription.receiver
        self.since_ms = since_ms
        self.is_recorded = True
        self.replay: HistoryReplay
        self._histories = histories
        self._pages: dict[str, list[_Page]] = {}  # by node, in order of delivery

    # -------------------------------------------------------------------------------- receiver side

    def deliver(
        self,
        message: Message,
        qos: int,
        is_retained: bool,
        identifiers: tuple[int, ...],
        grant: Grant,
    ) -> None:
        pasts = self._histories
        if not pasts.broker.router.fan_out(message.channel).traits.is_persistent:
            self.inner.deliver(message, qos, is_retained, identifiers, grant)
            return
        waiting = BufferedLiveEvent(message, qos, is_retained, identifiers, grant)
        is_now = self.replay.on_live_event(
            pasts.source,
            message.number,
            waiting,
            message.size(),
            pasts.clock_us(),
            original=pasts.child_event_id,
        )
        if is_now:
            self.session.deliver(message, qos, is_retained, identifiers, grant)

    def forward(self, run: EventRun) -> None:
        self.inner.forward(run)

    def room(self) -> tuple[int, int] | None:
        return page_room(self.session, self.subscription.qos)

    def selector(self) -> HistorySelector:
        subscription = self.subscription
        return HistorySelector(
            subscription.pattern, subscription.where, subscription.xpath, self.since_ms
        )

    def is_caught_up(self) -> bool:
        """Whether the client has all of the history that is available."""
        return self.replay.is_caught_up and not any(self._pages.values())

    def attach(self) -> None:
        """Insert this between the router and the present receiver."""
        if self.subscription.receiver is not self:
            self.inner = self.subscription.receiver
            self._set_receiver(self)

    def detach(self) -> None:
        if self.subscription.receiver is self:
            self._set_receiver(self.inner)

    def _set_receiver(self, receiver: Receiver) -> None:
        router = self._histories.broker.router
        router.remove(self.subscription)
        self.subscription.receiver = receiver
        router.add(self.subscription)

    # ------------------------------------------------------------------------------------- history

    def step(self) -> None:
        """Deliver as many events as the client has room for."""
        now_us = self._histories.clock_us()
        self._confirm_pages()
        while (event := self.replay.peek()) is not None and self._has_room(1, _size(event)):
            handed = self.replay.next(now_us)
            assert handed is not None
            self._deliver_replayed(handed)
        for notice in self.replay.notices:
            self._report_gap(notice)
        self.replay.notices.clear()
        waiting = self.replay.buffered()
        if waiting is not None and self._has_room(*waiting):
            for each in self.replay.go_live(now_us):
                assert isinstance(each, BufferedLiveEvent)
                self.session.deliver(
                    each.message, each.qos, each.is_retained, each.identifiers, each.grant
                )
            self.is_recorded = False
            self._notify({"state": "live", "missing": self.replay.missing()})

    def progress(self) -> Progress:
        """The resume point that is recorded."""
        recall = self.replay
        if recall.is_caught_up and not recall.sources:
            return self.since_ms, None
        positions = dict(recall.positions())
        positions.update(dict.fromkeys(recall.lived, (0, -1, "")))
        for node, pages in self._pages.items():
            if pages:
                positions[node] = pages[0].before
        return self.since_ms, positions

    def _deliver_replayed(self, replayed: ReplayedEvent) -> None:
        node = replayed.node
        pages = self._pages.setdefault(node, [])
        if not pages or pages[-1].after is not None:
            pages.append(_Page(replayed.before))
        page = pages[-1]
        delivery = None if replayed.is_duplicate else self._deliver(node, replayed.event)
        if delivery is not None and delivery.qos:
            page.deliveries.append(delivery)
        page.after = replayed.after

    def _deliver(self, node: str, event: HistoryEvent) -> ClientDelivery | None:
        session, subscription = self.session, self.subscription
        if subscription.is_local_excluded and event.publisher == session.name:
            return None
        if subscription.denies(event.channel):
            return None
        context = session.context
        name = (event.origin, event.original) if event.origin else (node, event.number)
        found = QueryHit(
            0,
            event.number,
            event.received_ms,
            event.channel,
            event.publisher,
            event.qos,
            event.block,
            event.payload,
        )
        try:
            self._check(event)
            counts = context.router.channels.get(event.channel)
            message = history_message(found, counts, context.now_ms, name)
        except (ProtocolError, EventError, ValueError):
            context.counters.count_shed("unreadable in the archive", session.name)
            return None
        publisher = Entity(event.publisher, node=name[0])
        grant = context.router.grant(message, publisher, session.entity)
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        return session.deliver_kept(message, min(subscription.qos, event.qos), identifiers, grant)

    def _check(self, event: HistoryEvent) -> None:
        """Raises EventError if no node can have kept the event for this subscription."""
        channel = event.channel
        problem = problem_with_channel(channel) or problem_with_name(event.publisher)
        if problem := problem or problem_with_name(event.origin):
            raise EventError("channel", problem)
        if channel.startswith("$") or not filter_selects(self.subscription.pattern, channel):
            raise EventError("channel", "expected one that was asked for")
        is_numbered = 0 <= event.number <= MAX_NUMBER and 0 <= event.original <= MAX_NUMBER
        if not (0 <= event.qos <= MAX_QOS and is_numbered):
            raise EventError("event", "expected QoS 0, 1 or 2, and a number of its node")

    def _confirm_pages(self) -> None:
        """Move the resume point past acknowledged pages."""
        for pages in self._pages.values():
            while pages and pages[0].is_done(self.session):
                pages.pop(0)
                self.is_recorded = False

    def _has_room(self, count: int, size: int) -> bool:
        """Whether the client is connected and its queue has room for this much."""
        session = self.session
        outbox = session.outbox
        if session.connection is None:
            return False
        size += count * _OVERHEAD
        if not self.subscription.qos:
            return outbox.bytes == 0 or outbox.bytes + size <= outbox.bytes_limit // 2
        used = outbox.tracked_bytes + session.in_flight_bytes
        is_free = session.unfinished() + count < outbox.tracked_limit
        is_empty = not session.unfinished()  # an event of any size is then accepted
        return is_empty or (is_free and used + size <= outbox.tracked_bytes_limit)

    # ------------------------------------------------------------------------------- notifications

    def _report_gap(self, notice: HistoryGap) -> None:
        context = self.session.context
        problem = f"{MISSED}: {notice.node} {notice.why}"
        context.counters.count_shed(MISSED, self.session.name)
        if context.ledger.is_on:
            now_ms = context.now_ms
            pattern = self.subscription.pattern
            context.number += 1
            context.ledger.add(
                context.number, 1, pattern, "", self.session.name, SHED,
                now_ms, now_ms, now_ms, 0, 0, "", problem, 0,
            )  # fmt: skip
        self._notify({"state": "missing", "node": notice.node, "why": notice.why})

    def _notify(self, form: dict[str, object]) -> None:
        notice = {"filter": self.pattern, **form}
        notify_session(self._histories.broker, self.session, HISTORY, notice)


class PersistentChannels(Protocol):
    """The channel definitions a node knows."""

    def persistent_filters(self) -> list[str]: ...


class HistorySubscriptions:
    """All history subscriptions of a node.

    `source` is the source of the event being delivered; `child_event_id` its ID at the secondary
    node where it was published, if any.
    """

    def __init__(
        self,
        broker: Broker,
        client: HistoryClient,
        directory: PersistentChannels,
        clock_us: Callable[[], int],
    ) -> None:
        self.broker = broker
        self.client = client
        self.clock_us = clock_us
        self.source = broker.context.node
        self.child_event_id: ChildEventId | None = None
        self._directory = directory
        self._has_kept = False
        self._all: dict[RouterSubscription, HistorySubscription] = {}
        self._by_replay: dict[HistoryReplay, HistorySubscription] = {}
        self._attached: dict[HistorySubscription, bool] = {}

    def __len__(self) -> int:
        """Number of subscriptions that still read history."""
        return len(self._attached)

    def selects(self, pattern: str) -> bool:
        """Whether a filter may select persistent channels."""
        if pattern.startswith("$"):
            return False
        return any(intersects(pattern, each) for each in self._directory.persistent_filters())

    def has(self, subscription: RouterSubscription) -> bool:
        """Whether this delivers the subscription's persistent channels."""
        return subscription in self._all

    def start(
        self, session: MqttSession, name: str, subscription: RouterSubscription, since_ms: int
    ) -> None:
        """Start a subscription that is about to be added with its history."""
        past = HistorySubscription(self, session, name, subscription, since_ms)
        subscription.receiver = past
        self._attached[past] = True
        self._add(past, self.client.start_replay(past.selector(), past.room, self.clock_us()))

    def detach(
        self, subscription: RouterSubscription, selector: HistorySelector
    ) -> HistorySubscription | None:
        """Detach the history of a replaced subscription, if the new one selects the same."""
        past = self._all.get(subscription)
        if past is None or msgspec.structs.replace(past.selector(), since_ms=0) != selector:
            return None
        past.detach()
        self._attached.pop(past, None)
        return self._all.pop(subscription)

    def take_over(self, history: HistorySubscription, subscription: RouterSubscription) -> None:
        """Continue the history of a replaced subscription in one that is about to be added."""
        history.subscription = subscription
        self._all[subscription] = history
        if not history.is_caught_up():
            history.inner = subscription.receiver
            subscription.receiver = history
            self._attached[history] = True

    def resume(
        self, session: MqttSession, name: str, subscription: RouterSubscription, progress: Progress
    ) -> None:
        """Resume a recovered subscription that the router already has."""
        past = HistorySubscription(self, session, name, subscription, progress[0])
        now_us = self.clock_us()
        self._add(past, self.client.resume(past.selector(), past.room, progress[1], now_us))

    def end(self, subscription: RouterSubscription) -> None:
        past = self._all.pop(subscription, None)
        if past is not None:
            self._by_replay.pop(past.replay)
            self._attached.pop(past, None)
            self.client.end(past.replay)

    def progress(self, subscription: RouterSubscription) -> Progress | None:
        """The resume point of a subscription; None if it has no history."""
        past = self._all.get(subscription)
        return None if past is None else past.progress()

    def before_publish(
        self, message: MqttMessage, fan_out: FanOut, *, is_kept_already: bool
    ) -> bool:
        """Prepare delivery of a persistent event; True if its receivers have changed."""
        context, bridge = self.broker.context, self.broker.bridge
        now_us = self.clock_us()
        self.child_event_id = None if bridge is None else bridge.child_event_id()
        if bridge is not None and bridge.is_delivering:
            self.source = bridge.source
            if self.client.on_live_event(
                bridge.source,
                bridge.incarnation,
                message.number,
                now_us,
                original=self.child_event_id,
            ):
                self._attach()
                return True
            return False
        self.source = context.node
        if fan_out.traits.goes_up:
            return False  # it returns from the parent that keeps it
        if not is_kept_already and message.number <= context.cut_number:
            # A journal cut was announced while it waited, so it is renumbered to come after the
            # cut.
            context.number += 1
            message.number = context.number
        if not self._has_kept and context.is_durable:
            self._has_kept = True
            self.client.announce_history()
        if not fan_out.traits.is_ordered:
            self.client.on_live_event(
                context.node, 0, message.number, now_us, original=self.child_event_id
            )
        return False

    def on_duplicate(self, event: TransitEvent) -> None:
        """Note a duplicate of a secondary node's event, received through another parent."""
        if self.broker.router.fan_out(event.channel).traits.is_persistent:
            self.client.on_live_event(event.source, event.incarnation, event.event, self.clock_us())
            self._attach()

    def step(self) -> None:
        """Advance history subscriptions; detach those that have caught up."""
        self._attach()
        for past in list(self._attached):
            past.step()
            if past.is_caught_up():
                past.detach()
                del self._attached[past]
                past.is_recorded = False
            if not past.is_recorded:
                past.is_recorded = True
                self._record(past)

    def _attach(self) -> None:
        self.client.has_woken = False
        for recall in self.client.active:
            past = self._by_replay[recall]
            if past not in self._attached:
                self._attached[past] = True
                past.attach()

    def _record(self, history: HistorySubscription) -> None:
        context = self.broker.context
        if history.session.is_durable and context.is_durable:
            context.record(self.broker.subscribed_record(history.session, history.pattern))

    def _add(self, history: HistorySubscription, replay: HistoryReplay) -> None:
        history.replay = replay
        self._all[history.subscription] = history
        self._by_replay[replay] = history

    def check_invariants(self) -> None:
        self.client.check_invariants()
        assert len(self._all) == len(self._by_replay)
        for past in self._attached:
            assert past.subscription.receiver is past
        for subscription, past in self._all.items():
            assert past.subscription is subscription
            assert past in self._attached or subscription.receiver is not past


def _size(event: HistoryEvent) -> int:
    return len(event.payload) + len(event.block) + len(event.channel)
