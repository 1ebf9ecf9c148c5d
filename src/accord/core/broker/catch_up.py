"""Catch-up subscriptions: history first, then live.

A cut is the position in the journal at which a subscription started; each kept event is before or
after it. Events before the cut are read from archive and journal, page by page, as fast as the
client accepts them. Events after the cut arrive live and are buffered here meanwhile.

The buffer is bounded. If it overflows or the client is offline, the buffered events are dropped
without leaving a gap: they are in the journal too. Once everything before the first cut has been
delivered, a second cut is made and the range between the two is read in the same way, and so on
until all events after the last cut fit the buffer. They are delivered next, and the subscription is
live. A client that never gets so far keeps reading history, and misses nothing.

Until then the `CatchUp` stands in for the session in the router. Events of channels that are not
kept have no history, and pass through.

The progress of a durable session is recorded when the client has acknowledged a page, so that it
resumes there after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accord.core.broker.broker_context import JournalCut
from accord.core.broker.delivery import RELEASED, ClientDelivery
from accord.core.broker.kept_messages import history_message, kept_event_id
from accord.core.broker.message import MqttMessage
from accord.core.broker.session import MqttSession
from accord.core.mqtt.codes import ProtocolError
from accord.core.policy.policies import Entity, Grant
from accord.core.queries.messages import EventQuery, QueryHit
from accord.core.router.fan_out import Receiver, RouterSubscription
from accord.core.router.message import Message

ROWS: Final = 500  # of one page, at most
BYTES: Final = 1 << 20
_WAITING: Final = 1_000  # buffered events after the cut
_WAITING_BYTES: Final = 4 << 20
UNKNOWN: Final = -1
_RETRY_MS: Final = 1_000  # after a failure; doubles with each further one
_MAX_RETRY_MS: Final = 60_000

# Start time, first offset, end offset (exclusive), page cursor, whether it is live.
Progress = tuple[int, int, int, str, bool]


class PageDemand:
    """A request for the next page, within the client's free space."""

    def __init__(self, query: EventQuery, cursor: str, rows: int, size: int) -> None:
        self.query = query
        self.cursor = cursor
        self.rows = rows
        self.bytes = size


class BufferedLiveEvent:
    """An event after the cut."""

    def __init__(
        self,
        message: Message,
        qos: int,
        is_retained: bool,
        identifiers: tuple[int, ...],
        grant: Grant,
    ) -> None:
        self.message = message
        self.qos = qos
        self.is_retained = is_retained
        self.identifiers = identifiers
        self.grant = grant


class PageInFlight:
    """A page's events until the client has all of them; `progress` is then the resume point."""

    def __init__(self, deliveries: list[ClientDelivery], progress: Progress) -> None:
        self.deliveries = deliveries
        self.progress = progress

    def is_done(self, session: MqttSession) -> bool:
        left = [each for each in self.deliveries if is_unconfirmed(session, each)]
        self.deliveries = left
        return not left


class ReceiverProxy(Receiver):
    """Receives what concerns it in place of `inner` or a session, and passes on the rest."""

    inner: Receiver


class CatchUpCut(JournalCut):
    def __init__(self, catch_up: CatchUp, kept: int) -> None:
        super().__init__(kept)
        self.catch_up = catch_up

    def set_offset(self, offset: int) -> None:
        self.catch_up.before_offset = offset


class CatchUp(Receiver):
    """Receives for a session while one of its subscriptions reads history."""

    def __init__(
        self, session: MqttSession, pattern: str, subscription: RouterSubscription
    ) -> None:
        super().__init__(session.name, session.entity)
        self.is_connected = True
        self.session = session
        self.pattern = pattern  # the session's name for it
        self.subscription = subscription
        self.since_ms = 0
        self.from_offset = 0
        self.before_offset = UNKNOWN
        self.cursor = ""
        self.is_fetching = False
        self.is_read = False  # everything before the cut
        self.is_live = False
        self.is_recorded = True
        self.problem = ""  # why history is unavailable for good
        self._retry_ms = 0
        self._failures = 0  # consecutive
        self._is_complete = True  # whether `_buffer` has all events after the cut
        self._buffer: list[BufferedLiveEvent] = []
        self._buffer_bytes = 0
        self._pages: list[PageInFlight] = []
        # Of the page being delivered: its deliveries, the number of its events delivered, and the
        # number seen since the page was last requested.
        self._deliveries: list[ClientDelivery] = []
        self._delivered = 0
        self._seen = 0
        self._confirmed: Progress = self._progress()

    def start(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self._confirmed = self._progress()
        self._request_cut()

    def resume(self, progress: Progress) -> None:
        """Resume after a crash; what was after the cut has to be read from the journal."""
        since_ms, from_offset, before_offset, cursor, is_live = progress
        self.since_ms = since_ms
        self.from_offset = from_offset
        self.before_offset = before_offset
        self.cursor = cursor
        self.is_live = is_live
        self._confirmed = progress
        self._is_complete = False
        if before_offset == UNKNOWN:
            self._request_cut()

    def is_removed(self) -> bool:
        """Whether the subscription was removed or replaced."""
        return self.session.subscriptions.get(self.pattern) is not self.subscription

    def progress(self) -> Progress:
        """The resume point that is recorded."""
        return self._confirmed

    def deliver(
        self,
        message: Message,
        qos: int,
        is_retained: bool,
        identifiers: tuple[int, ...],
        grant: Grant,
    ) -> None:
        session = self.session
        if not session.context.router.fan_out(message.channel).is_kept:
            session.deliver(message, qos, is_retained, identifiers, grant)
            return
        if not self._is_complete:
            return
        size = len(message.payload)
        is_much = len(self._buffer) >= _WAITING or self._buffer_bytes + size > _WAITING_BYTES
        if is_much or session.connection is None:
            self._is_complete = False
            self._buffer = []
            self._buffer_bytes = 0
            return
        self._buffer.append(BufferedLiveEvent(message, qos, is_retained, identifiers, grant))
        self._buffer_bytes += size

    def next_demand(self, committed: int, now_ms: int) -> PageDemand | None:
        """A request for the next page, if there is one and the client has room.

        The caller passes the events to `deliver_page` and calls `finish_page`, or else calls
        `on_failure`.
        """
        if self.is_fetching or self.is_read or not 0 <= self.before_offset <= committed:
            return None
        if now_ms < self._retry_ms:
            return None
        wanted = page_room(self.session, self.subscription.qos)
        if wanted is None:
            return None
        self.is_fetching = True
        subscription = self.subscription
        ask = EventQuery(
            channel=subscription.pattern,
            where=subscription.where,
            xpath=subscription.xpath,
            since_ms=self.since_ms if self.from_offset == 0 else None,
            from_offset=self.from_offset,
            before_offset=self.before_offset,
        )
        return PageDemand(ask, self.cursor, wanted[0], wanted[1])

    def deliver_page(self, events: Sequence[QueryHit]) -> bool:
        """Deliver a part of a page; False if the rest has to wait.

        Events already delivered are skipped when the page is requested again.
        """
        session = self.session
        for found in events[max(0, self._delivered - self._seen) :]:
            if self.is_removed() or not self._deliver_event(found, session):
                self.is_fetching = False
                self._seen = 0
                return False
            self._delivered += 1
        self._seen += len(events)
        return True

    def finish_page(self, cursor: str) -> None:
        """Advance to the next page."""
        self.is_fetching = False
        self._failures = 0
        self.cursor = cursor
        self.is_read = not cursor
        self._delivered = self._seen = 0
        self._pages.append(PageInFlight(self._deliveries, self._progress()))
        self._deliveries = []

    def _deliver_event(self, found: QueryHit, session: MqttSession) -> bool:
        """Deliver one event; False if the client has no room for it."""
        context = session.context
        if context.router.fan_out(found.channel).traits.is_persistent:
            return True  # `persistent_history` delivers it
        if self.subscription.denies(found.channel):
            return True
        if self.subscription.is_local_excluded and found.publisher == session.name:
            return True
        try:
            counts = context.router.channels.get(found.channel)
            here = context.node if context.assigns_event_ids else ""
            name = kept_event_id(found, here) if session.wants_event_ids else None
            message = history_message(found, counts, context.now_ms, name)
        except ProtocolError:
            context.counters.count_shed("unreadable in the archive", session.name)
            return True
        qos = min(self.subscription.qos, found.qos)
        if qos and not has_room(session, message):
            return False
        publisher = Entity(found.publisher, node=context.node)
        grant = context.router.grant(message, publisher, session.entity)
        identifier = self.subscription.identifier
        identifiers = (identifier,) if identifier else ()
        delivery = session.deliver_kept(message, qos, identifiers, grant)
        if delivery is not None and qos:
            self._deliveries.append(delivery)
        return True

    def on_failure(self, problem: str, *, is_final: bool, now_ms: int) -> None:
        """Back off after a failed page request, or stop if the failure is final."""
        self.is_fetching = False
        self._seen = 0
        self._retry_ms = now_ms + min(_RETRY_MS << min(self._failures, 10), _MAX_RETRY_MS)
        self._failures += 1
        if is_final:
            self.problem = problem

    def step(self) -> bool:
        """Advance as far as possible; True once live with all pages acknowledged."""
        self._confirm_pages()
        if not self.is_read:
            return False
        if not self.is_live:
            if not self._is_complete:
                self._start_next_range()
                return False
            if not self._has_room():
                return False
            self._go_live()
        return not self._pages

    def check_invariants(self) -> None:
        assert len(self._buffer) <= _WAITING
        assert self._is_complete or not self._buffer
        assert not self.is_live or not self._buffer

    def _progress(self) -> Progress:
        return self.since_ms, self.from_offset, self.before_offset, self.cursor, self.is_live

    def _confirm_pages(self) -> None:
        """Move the resume point past acknowledged pages."""
        handed = self._pages
        if not handed or not handed[0].is_done(self.session):
            return
        while handed and handed[0].is_done(self.session):
            self._confirmed = handed.pop(0).progress
        self.is_recorded = False

    def _request_cut(self) -> None:
        context = self.session.context
        self.before_offset = UNKNOWN
        context.cuts.append(CatchUpCut(self, context.kept_events()))

    def _start_next_range(self) -> None:
        self.from_offset = self.before_offset
        self.cursor = ""
        self.is_read = False
        self._is_complete = True
        self._request_cut()

    def _has_room(self) -> bool:
        """Whether the client is connected and its queue has room for the whole buffer."""
        session = self.session
        outbox = session.outbox
        if session.connection is None:
            return False
        free = outbox.tracked_limit - session.unfinished()
        free_bytes = outbox.tracked_bytes_limit - outbox.tracked_bytes - session.in_flight_bytes
        free_bytes = min(free_bytes, outbox.bytes_limit - outbox.bytes)
        return free > len(self._buffer) and free_bytes > 2 * self._buffer_bytes

    def _go_live(self) -> None:
        session = self.session
        router = session.context.router
        waiting, self._buffer, self._buffer_bytes = self._buffer, [], 0
        self.is_live = True
        receiver = self.subscription.receiver
        if isinstance(receiver, ReceiverProxy):
            receiver.inner = session
        else:
            router.remove(self.subscription)
            self.subscription.receiver = session
            router.add(self.subscription)
        if self._pages:
            last = self._pages[-1]
            last.progress = self._progress()
        else:
            self._confirmed = self._progress()
            self.is_recorded = False
        for each in waiting:
            session.deliver(each.message, each.qos, each.is_retained, each.identifiers, each.grant)


def page_room(session: MqttSession, qos: int) -> tuple[int, int] | None:
    """The events and bytes a page may have for this client now; None if it has to wait.

    Half of the free space is left to live events, and little is queued at a time.
    """
    if session.connection is None:
        return None
    outbox = session.outbox
    rows = ROWS
    limit = outbox.bytes_limit
    used = outbox.bytes
    if qos:
        rows = min(rows, (outbox.tracked_limit - session.unfinished()) // 2)
        limit = outbox.tracked_bytes_limit
        used = outbox.tracked_bytes + session.in_flight_bytes
    if rows <= 0 or outbox.tracked > ROWS or used > min(BYTES, limit // 2):
        return None
    return rows, min(BYTES, (limit - used) // 2)


def has_room(session: MqttSession, message: MqttMessage) -> bool:
    """Whether a tracked message would be queued rather than refused."""
    outbox = session.outbox
    size = message.size() + 64
    return (
        session.unfinished() < outbox.tracked_limit
        and outbox.tracked_bytes + size <= outbox.tracked_bytes_limit
    ) or outbox.tracked == 0


def is_unconfirmed(session: MqttSession, delivery: ClientDelivery) -> bool:
    """Whether the client may still lack a tracked message."""
    is_known = session.unacknowledged.get(delivery.packet_id) is delivery
    return is_known and delivery.stage != RELEASED
