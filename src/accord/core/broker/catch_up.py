"""History first, then live: subscriptions that begin in the past.

A kept event is before or behind a cut: the place in the journal where a subscription began. Those
before it are read from the archive and the journal, page by page, as fast as the client takes them.
Those behind it come as they are published, and wait here for the others.

Only so many wait. If there are more, or the client is away, they are forgotten, and there is no
gap: they are in the journal too. Once everything before the first cut has been handed over, a
second cut is made and the same is done for what lies between, and so on until the client is so near
the present that all events behind the last cut are here. Then those follow, and the subscription is
a live one. A client that never gets so near lives in the past, and misses nothing.

Until then the router knows the `CatchUp` in place of the session. Events of channels that are not
kept have no past, and pass through.

A durable session's progress is recorded when the client has acknowledged a page, so that after a
crash it goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accord.core.broker.broker_context import JournalCut
from accord.core.broker.delivery import RELEASED, ClientDelivery
from accord.core.broker.kept_messages import history_message, name_of
from accord.core.broker.message import MqttMessage
from accord.core.broker.session import MqttSession
from accord.core.mqtt.codes import ProtocolError
from accord.core.policy.policies import Entity, Grant
from accord.core.queries.messages import EventQuery, QueryHit
from accord.core.router.fan_out import Receiver, RouterSubscription
from accord.core.router.message import Message

ROWS: Final = 500  # of a page, at most
BYTES: Final = 1 << 20
_WAITING: Final = 1_000  # events behind the cut
_WAITING_BYTES: Final = 4 << 20
UNKNOWN: Final = -1
_RETRY_MS: Final = 1_000  # after a failure; twice as long after each further one
_MAX_RETRY_MS: Final = 60_000

# Since when, from which offset, before which, after which page, and whether live already.
Progress = tuple[int, int, int, str, bool]


class PageDemand:
    """A page that somebody has room for."""

    def __init__(self, ask: EventQuery, cursor: str, rows: int, size: int) -> None:
        self.ask = ask
        self.cursor = cursor
        self.rows = rows
        self.bytes = size


class BufferedLiveEvent:
    """An event behind the cut."""

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
    """A page's events, until the client has them all; then the past goes on at `progress`."""

    def __init__(self, deliveries: list[ClientDelivery], progress: Progress) -> None:
        self.deliveries = deliveries
        self.progress = progress

    def is_done(self, session: MqttSession) -> bool:
        left = [each for each in self.deliveries if is_under_way(session, each)]
        self.deliveries = left
        return not left


class ReceiverProxy(Receiver):
    """Receives in place of `inner`, or of a session, what concerns it, and hands on the rest."""

    inner: Receiver


class CatchUpCut(JournalCut):
    def __init__(self, catch_up: CatchUp, kept: int) -> None:
        super().__init__(kept)
        self.catch_up = catch_up

    def made(self, offset: int) -> None:
        self.catch_up.before_offset = offset


class CatchUp(Receiver):
    """Receives for a session while one of its subscriptions is in the past."""

    def __init__(
        self, session: MqttSession, pattern: str, subscription: RouterSubscription
    ) -> None:
        super().__init__(session.name, session.entity)
        self.is_connected = True
        self.session = session
        self.pattern = pattern  # by which the session knows it
        self.subscription = subscription
        self.since_ms = 0
        self.from_offset = 0
        self.before_offset = UNKNOWN
        self.cursor = ""
        self.is_asking = False
        self.is_read = False  # everything before the cut
        self.is_live = False
        self.is_recorded = True
        self.problem = ""  # why the past can't be had at all
        self._retry_ms = 0
        self._failures = 0  # in a row
        self._is_whole = True  # all events behind the cut are in `_waiting`
        self._waiting: list[BufferedLiveEvent] = []
        self._waiting_bytes = 0
        self._handed_over: list[PageInFlight] = []
        # Of the page that is being handed over: what went of it, and how many events were looked
        # at since it came, the last time it was asked for.
        self._deliveries: list[ClientDelivery] = []
        self._had = 0
        self._seen = 0
        self._done: Progress = self._progress()

    def begin(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self._done = self._progress()
        self._cut()

    def go_on(self, progress: Progress) -> None:
        """After a crash: all that was behind the cut then is to be read."""
        since_ms, from_offset, before_offset, cursor, is_live = progress
        self.since_ms = since_ms
        self.from_offset = from_offset
        self.before_offset = before_offset
        self.cursor = cursor
        self.is_live = is_live
        self._done = progress
        self._is_whole = False
        if before_offset == UNKNOWN:
            self._cut()

    def is_over(self) -> bool:
        """Whether nobody wants it any more."""
        return self.session.subscriptions.get(self.pattern) is not self.subscription

    def progress(self) -> Progress:
        """What a crash must not lose."""
        return self._done

    def deliver(
        self,
        message: Message,
        qos: int,
        is_retained: bool,
        identifiers: tuple[int, ...],
        grant: Grant,
    ) -> None:
        session = self.session
        if not session.hub.router.route(message.channel).is_kept:
            session.deliver(message, qos, is_retained, identifiers, grant)
            return
        if not self._is_whole:
            return
        size = len(message.payload)
        is_much = len(self._waiting) >= _WAITING or self._waiting_bytes + size > _WAITING_BYTES
        if is_much or session.line is None:
            self._is_whole = False
            self._waiting = []
            self._waiting_bytes = 0
            return
        self._waiting.append(BufferedLiveEvent(message, qos, is_retained, identifiers, grant))
        self._waiting_bytes += size

    def wanted(self, committed: int, now_ms: int) -> PageDemand | None:
        """The next page, if there is one and the client has room for it.

        Whoever takes it hands its events over and finishes it, or says that it failed.
        """
        if self.is_asking or self.is_read or not 0 <= self.before_offset <= committed:
            return None
        if now_ms < self._retry_ms:
            return None
        wanted = page_room(self.session, self.subscription.qos)
        if wanted is None:
            return None
        self.is_asking = True
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

    def hand_over(self, events: Sequence[QueryHit]) -> bool:
        """Hand over a part of the page that came; False where the rest has to wait.

        What was handed over of a page is not again when the page is asked for once more.
        """
        session = self.session
        for found in events[max(0, self._had - self._seen) :]:
            if self.is_over() or not self._hand_over(found, session):
                self.is_asking = False
                self._seen = 0
                return False
            self._had += 1
        self._seen += len(events)
        return True

    def finish_page(self, cursor: str) -> None:
        """All of the page is handed over."""
        self.is_asking = False
        self._failures = 0
        self.cursor = cursor
        self.is_read = not cursor
        self._had = self._seen = 0
        self._handed_over.append(PageInFlight(self._deliveries, self._progress()))
        self._deliveries = []

    def _hand_over(self, found: QueryHit, session: MqttSession) -> bool:
        """False where the client has no room for it."""
        hub = session.hub
        if hub.router.route(found.channel).bound.is_persistent:
            return True  # that is another's affair
        if self.subscription.denies(found.channel):
            return True
        if self.subscription.is_local_excluded and found.publisher == session.name:
            return True
        try:
            counts = hub.router.channels.get(found.channel)
            here = hub.node if hub.is_naming else ""
            name = name_of(found, here) if session.wants_names else None
            message = history_message(found, counts, hub.now_ms, name)
        except ProtocolError:
            hub.counters.shed("unreadable in the archive", session.name)
            return True
        qos = min(self.subscription.qos, found.qos)
        if qos and not has_room(session, message):
            return False
        publisher = Entity(found.publisher, node=hub.node)
        grant = hub.router.grant(message, publisher, session.entity)
        identifier = self.subscription.identifier
        identifiers = (identifier,) if identifier else ()
        delivery = session.deliver_kept(message, qos, identifiers, grant)
        if delivery is not None and qos:
            self._deliveries.append(delivery)
        return True

    def failed(self, problem: str, *, is_final: bool, now_ms: int) -> None:
        """No page came: ask again after a while, unless that is in vain."""
        self.is_asking = False
        self._seen = 0
        self._retry_ms = now_ms + min(_RETRY_MS << min(self._failures, 10), _MAX_RETRY_MS)
        self._failures += 1
        if is_final:
            self.problem = problem

    def step(self) -> bool:
        """Go on as far as can be now; True where the past is over and done with."""
        self._settle()
        if not self.is_read:
            return False
        if not self.is_live:
            if not self._is_whole:
                self._cut_again()
                return False
            if not self._has_room():
                return False
            self._go_live()
        return not self._handed_over

    def check_invariants(self) -> None:
        assert len(self._waiting) <= _WAITING
        assert self._is_whole or not self._waiting
        assert not self.is_live or not self._waiting

    def _progress(self) -> Progress:
        return self.since_ms, self.from_offset, self.before_offset, self.cursor, self.is_live

    def _settle(self) -> None:
        """Note what the client has."""
        handed = self._handed_over
        if not handed or not handed[0].is_done(self.session):
            return
        while handed and handed[0].is_done(self.session):
            self._done = handed.pop(0).progress
        self.is_recorded = False

    def _cut(self) -> None:
        hub = self.session.hub
        self.before_offset = UNKNOWN
        hub.cuts.append(CatchUpCut(self, hub.kept_events()))

    def _cut_again(self) -> None:
        self.from_offset = self.before_offset
        self.cursor = ""
        self.is_read = False
        self._is_whole = True
        self._cut()

    def _has_room(self) -> bool:
        """Whether all that waits fits into the queue of the client, which is there."""
        session = self.session
        outbox = session.outbox
        if session.line is None:
            return False
        free = outbox.tracked_limit - session.unfinished()
        free_bytes = outbox.tracked_bytes_limit - outbox.tracked_bytes - session.in_flight_bytes
        free_bytes = min(free_bytes, outbox.bytes_limit - outbox.bytes)
        return free > len(self._waiting) and free_bytes > 2 * self._waiting_bytes

    def _go_live(self) -> None:
        session = self.session
        router = session.hub.router
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self.is_live = True
        receiver = self.subscription.receiver
        if isinstance(receiver, ReceiverProxy):
            receiver.inner = session
        else:
            router.remove(self.subscription)
            self.subscription.receiver = session
            router.add(self.subscription)
        if self._handed_over:
            last = self._handed_over[-1]
            last.progress = self._progress()
        else:
            self._done = self._progress()
            self.is_recorded = False
        for each in waiting:
            session.deliver(each.message, each.qos, each.is_retained, each.identifiers, each.grant)


def page_room(session: MqttSession, qos: int) -> tuple[int, int] | None:
    """How many events and bytes a page may have for this client now; None where it has to wait.

    Half of the room is left to what is published meanwhile, and not much waits at a time.
    """
    if session.line is None:
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
    """Whether a tracked message would be queued, and not refused."""
    outbox = session.outbox
    size = message.size() + 64
    return (
        session.unfinished() < outbox.tracked_limit
        and outbox.tracked_bytes + size <= outbox.tracked_bytes_limit
    ) or outbox.tracked == 0


def is_under_way(session: MqttSession, delivery: ClientDelivery) -> bool:
    """Whether the client may not have a tracked message yet."""
    is_known = session.unacknowledged.get(delivery.packet_id) is delivery
    return is_known and delivery.stage != RELEASED
