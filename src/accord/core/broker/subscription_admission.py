"""Admission of client subscriptions: admitted, refused with the facts, or pending at other nodes.

Each filter of a SUBSCRIBE is a request of its own. If all are decided at once, the SUBSCRIBE
proceeds; if other nodes are asked, its SUBACK waits for their replies. An admitted subscription
holds its reservation until UNSUBSCRIBE, a subscription that replaces it, or the end of its session.
A shared subscription is reserved once for the whole group; system channels (`$…`) need no
reservation.

Other nodes may withdraw a reservation later. The client is then notified, its events are delivered
as best effort, and the request is repeated periodically.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from accord.core.admission.admission import Admission
from accord.core.admission.demand import Measured
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.networked_admission import NetworkedAdmission
from accord.core.admission.options import Guarantee, GuaranteeKind, Mode
from accord.core.admission.reservation import ReservationState
from accord.core.admission.resources import Resource, client
from accord.core.admission.subscription_requests import AdmissionOutcome, AdmissionRefusal
from accord.core.broker.client_advertisements import ClientAdvertisements
from accord.core.broker.client_notifications import notify_client
from accord.core.broker.session import MqttSession
from accord.core.broker.suback_results import (
    ACCEPTED,
    SubackResult,
    facts_of,
    refusal_text,
    refused,
    taken_by,
)
from accord.core.monitoring.ledger import REFUSED
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.packets import Subscribe
from accord.core.policy.guarantees import guarantee_of
from accord.core.policy.policies import Entity
from accord.core.predicates.predicate import Predicate, parse
from accord.core.router.fan_out import RouterSubscription
from accord.core.router.rights import ADVICE

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker, SubscriptionPredicate
    from accord.core.broker.connection import Connection

LATELY: Final = 100  # refusals remembered for monitoring
AGAIN_US: Final = 5_000_000  # retry interval for withdrawn reservations
SHARED: Final = "$share/"
_WAITING: Final = 1_000  # pending subscriptions of one client
_GROUP: Final = "\0"  # not a valid client ID
_ANYTHING: Final = parse("TRUE")
_ANYHOW: Final = Guarantee(kind=GuaranteeKind.PERCENTAGE, percent=0)

Which = tuple[str, Hashable]  # client and key: identity within admission
SubscriptionKey = tuple[str, str]  # client and pattern: identity within the broker


class RecentRefusal(Struct, frozen=True, kw_only=True):
    """A subscription refused or withdrawn, or that would be if admission were enforced."""

    at_ms: int
    client: str
    filter: str
    where: str
    refusals: tuple[AdmissionRefusal, ...]
    is_binding: bool


class ReservedSubscription(Struct, frozen=True):
    """A subscription's identity and filter within admission."""

    which: Which
    filter: Filter
    where: str  # its predicate, in one of two languages
    xpath: str


class PendingSubscribe:
    """A SUBSCRIBE whose SUBACK waits for other nodes."""

    def __init__(self, connection: Connection, session: MqttSession, packet: Subscribe) -> None:
        self.connection = connection
        self.session = session
        self.packet = packet
        self.answers: dict[str, SubackResult] = {}
        self.open: dict[str, ReservedSubscription] = {}  # by pattern


class SubscriptionAdmission:
    """Connects SUBSCRIBE packets to admission.

    `door` performs admission, at this node alone or together with others. `estimate` returns the
    measurements for a channel and a predicate. `asked` holds callbacks for the outcomes of requests
    that belong to no client.
    """

    def __init__(
        self,
        broker: Broker,
        admission: Admission,
        clock_us: Callable[[], int],
        estimate: Callable[[str, str, str], Measured],
    ) -> None:
        self.broker = broker
        self.admission = admission
        self.door: Admission | NetworkedAdmission = admission
        self.advertising = ClientAdvertisements(broker, admission, clock_us)
        self.lately: deque[RecentRefusal] = deque(maxlen=LATELY)
        self.refused: dict[str, int] = {}  # subscriptions, by resource
        self.is_binding = admission.options.mode is Mode.ENFORCE
        self._clock_us = clock_us
        self._estimate = estimate
        self.asked: dict[Which, Callable[[AdmissionOutcome], None]] = {}
        self._waiting: dict[Which, dict[SubscriptionKey, PendingSubscribe]] = {}
        self._places: dict[str, dict[str, Which]] = {}  # pending ones, by client and pattern
        self._booked: dict[str, dict[str, ReservedSubscription]] = {}  # by client and pattern
        self._members: dict[Which, dict[SubscriptionKey, bool]] = {}  # members of shared groups
        self._withdrawn: dict[Which, int] = {}  # with the time of the next attempt

    # ------------------------------------------------------------------------------ client requests

    def ask(
        self,
        connection: Connection,
        session: MqttSession,
        packet: Subscribe,
        condition: SubscriptionPredicate,
        patterns: Iterable[str],
    ) -> dict[str, SubackResult] | None:
        """The results for these patterns; None if pending: `connection.decided` is called later."""
        waiting = PendingSubscribe(connection, session, packet)
        for pattern in dict.fromkeys(patterns):
            if not is_exempt(pattern):
                self._cancel((session.name, pattern), "subscribed again before this was decided")
                booked = booked_as(
                    session.name, pattern, condition.predicate, condition.where, condition.xpath
                )
                self._ask(waiting, pattern, booked)
        return None if waiting.open else waiting.answers

    def unsubscribed(self, session: MqttSession, pattern: str) -> None:
        """Cancel or release the reservation of a removed subscription."""
        self._cancel((session.name, pattern), "unsubscribed before this was decided")
        self._release((session.name, pattern))

    def not_taken(self, session: MqttSession, pattern: str) -> None:
        """Release a subscription that was admitted and then refused for another reason."""
        if pattern not in session.subscriptions:
            self._release((session.name, pattern))

    def session_ended(self, session: MqttSession) -> None:
        name = session.name
        for pattern, which in self._places.pop(name, {}).items():
            self._forget(which, (name, pattern))
        for pattern in list(self._booked.get(name, ())):
            self._release((name, pattern))
        self.advertising.session_ended(session)
        self.door.client_gone(name)
        self._forget_link(name)

    def restore(self) -> None:
        """Reserve for recovered subscriptions without a new decision: they were admitted before."""
        for session in self.broker.sessions.values():
            for pattern, subscription in session.subscriptions.items():
                self._book(session, pattern, subscription)

    # -------------------------------------------------------------------------------- driver side

    def settle(self) -> None:
        """Notify clients of decisions, and publishers of rate violations."""
        decisions = self.admission.decisions
        while decisions:
            self._decided(decisions.pop(0))
        overruns = self.admission.overruns
        while overruns:
            over = overruns.pop(0)
            told: dict[str, object] = {
                "kind": "rate",
                "advertisement": over.advertisement,
                "standing": str(over.standing),
                "rate_hz": over.rate_hz,
                "events": over.events,
            }
            notify_client(self.broker, over.publisher, ADVICE, told)

    def advance(self) -> None:
        """Retry withdrawn reservations that are due."""
        now_us = self._clock_us()
        for which, due_us in list(self._withdrawn.items()):
            if due_us <= now_us:
                self._withdrawn[which] = now_us + AGAIN_US
                self._ask_again(which)

    def clients(self) -> Iterable[MqttSession]:
        """Sessions with reservations."""
        for name in list(self._booked):
            session = self.broker.sessions.get(name)
            if session is not None and name in self._booked:
                yield session

    def look_at_link(self, session: MqttSession) -> None:
        """Update the capacity of a client's link; it keeps the last value while offline."""
        line = session.line
        if line is not None:
            self.admission.set_capacity(client(session.name), line.link.carries_bps() or None)

    def only_one(self, session: MqttSession) -> ReservedSubscription | None:
        """The subscription that accounts for all of a client's traffic, if it has only one."""
        patterns = self._booked.get(session.name, {})
        if len(patterns) != 1 or len(session.subscriptions) != 1:
            return None
        (pattern,) = patterns
        return None if pattern.startswith(SHARED) else patterns[pattern]

    def guarantee_for(self, entity: Entity, channels: str) -> Guarantee:
        """The guarantee set by policies, or else by the configuration."""
        default = self.admission.options.guarantee
        chosen = guarantee_of(self.broker.router.policies, entity, channels)
        return default if chosen is None else guarantee_from(chosen, default)

    # ------------------------------------------------------------------------------------ internal

    def _ask(self, waiting: PendingSubscribe, pattern: str, booked: ReservedSubscription) -> None:
        session = waiting.session
        place = (session.name, pattern)
        guarantee = self._guarantee(session, pattern)
        if guarantee.kind is GuaranteeKind.NONE:
            self._release(place)
            return
        if len(self._places.get(session.name, ())) >= _WAITING:
            waiting.answers[pattern] = SubackResult(
                f"{_WAITING} of yours wait for other nodes already"
            )
            return
        outcome = self._subscribe(session, booked, guarantee)
        if outcome is not None:
            waiting.answers[pattern] = self._answer(outcome, place, booked)
        elif self.is_binding:
            waiting.open[pattern] = booked
            self._waiting.setdefault(booked.which, {})[place] = waiting
            self._places.setdefault(session.name, {})[pattern] = booked.which
        else:
            self._take(place, booked)  # not binding: the outcome is only recorded

    def _subscribe(
        self, session: MqttSession, booked: ReservedSubscription, guarantee: Guarantee
    ) -> AdmissionOutcome | None:
        self.look_at_link(session)
        measured = self._estimate(booked.filter.channel, booked.where, booked.xpath)
        size = measured.event_bytes
        return self.door.subscribe(
            *booked.which,
            booked.filter,
            now_us=self._clock_us(),
            guarantee=guarantee,
            event_bytes=None if size is None else round(size),
            measured=measured,
        )

    def _book(self, session: MqttSession, pattern: str, subscription: RouterSubscription) -> None:
        if is_exempt(pattern) or self._guarantee(session, pattern).kind is GuaranteeKind.NONE:
            return
        where, xpath = subscription.where, subscription.xpath
        booked = booked_as(session.name, pattern, subscription.predicate, where, xpath)
        self._take((session.name, pattern), booked)
        self._subscribe(session, booked, _ANYHOW)

    def _guarantee(self, session: MqttSession, pattern: str) -> Guarantee:
        return self.guarantee_for(session.entity, channels_of(pattern))

    def _answer(
        self, outcome: AdmissionOutcome, place: SubscriptionKey, booked: ReservedSubscription
    ) -> SubackResult:
        if outcome.state is ReservationState.ADMITTED or not outcome.is_binding:
            self._take(place, booked)
        if outcome.state is not ReservationState.ADMITTED:
            self._note(outcome, place, booked)
            if place[0] not in self._booked:
                self._forget_link(place[0])
            return refused(outcome.refusals[0]) if outcome.is_binding else ACCEPTED
        known = self.admission.subscriptions.get(*booked.which)
        is_share = known is not None and known.guarantee.kind is GuaranteeKind.PERCENTAGE
        return taken_by(outcome.share) if is_share or outcome.share < 1 else ACCEPTED

    def _take(self, place: SubscriptionKey, booked: ReservedSubscription) -> None:
        name, pattern = place
        before = self._booked.get(name, {}).get(pattern)
        if before is not None and before.which != booked.which:
            self._release(place)
        self._booked.setdefault(name, {})[pattern] = booked
        if pattern.startswith(SHARED):
            self._members.setdefault(booked.which, {})[place] = True

    def _release(self, place: SubscriptionKey) -> None:
        name, pattern = place
        patterns = self._booked.get(name, {})
        booked = patterns.pop(pattern, None)
        if booked is None:
            return
        if not patterns:
            del self._booked[name]
            self._forget_link(name)
        members = self._members.get(booked.which)
        if members is not None:
            members.pop(place, None)
            if members:
                return
            del self._members[booked.which]
        self._withdrawn.pop(booked.which, None)
        self.door.unsubscribe(*booked.which)

    def _forget_link(self, name: str) -> None:
        """Remove the capacity of a link that has no reservations."""
        self.admission.set_capacity(client(name), None)
        self.admission.set_used(client(name), 0)

    def _decided(self, outcome: AdmissionOutcome) -> None:
        which = (outcome.client, outcome.key)
        if which in self.asked:
            self.asked[which](outcome)
            return
        waiting = self._waiting.pop(which, None)
        if waiting is None:
            self._changed(which, outcome)
            return
        for place, each in waiting.items():
            self._left(place)
            booked = each.open[place[1]]
            self._answered(each, place, self._answer(outcome, place, booked))

    def _answered(
        self, waiting: PendingSubscribe, place: SubscriptionKey, answer: SubackResult
    ) -> None:
        name, pattern = place
        waiting.answers[pattern] = answer
        del waiting.open[pattern]
        if waiting.open:
            return
        session = waiting.session
        if waiting.connection.session is session:
            waiting.connection.decided(waiting.packet, waiting.answers)
            return
        for each in waiting.answers:  # its client left before the SUBACK
            self._release((name, each))
            if (known := session.subscriptions.get(each)) is not None:
                self._book(session, each, known)

    def _cancel(self, place: SubscriptionKey, why: str) -> None:
        """Conclude a pending request with a refusal."""
        which = self._left(place)
        if which is not None:
            waiting = self._forget(which, place)
            self._answered(waiting, place, SubackResult(why, (), Reason.UNSPECIFIED_ERROR))

    def _left(self, place: SubscriptionKey) -> Which | None:
        """Remove a request from the pending ones."""
        patterns = self._places.get(place[0], {})
        which = patterns.pop(place[1], None)
        if not patterns:
            self._places.pop(place[0], None)
        return which

    def _forget(self, which: Which, place: SubscriptionKey) -> PendingSubscribe:
        """Remove a pending SUBSCRIBE; release its reservation unless another member holds it."""
        waiting = self._waiting[which].pop(place)
        if not self._waiting[which]:
            del self._waiting[which]
            booked = self._booked.get(place[0], {}).get(place[1])
            if which not in self._members and (booked is None or booked.which != which):
                self.door.unsubscribe(*which)
        return waiting

    def _changed(self, which: Which, outcome: AdmissionOutcome) -> None:
        """The outcome of an admitted subscription has changed."""
        concerned = self._concerned(which)
        if not concerned:
            return  # released before the outcome arrived
        if outcome.state is ReservationState.ADMITTED:
            if self._withdrawn.pop(which, None) is None and outcome.share >= 1:
                return
        elif outcome.state is ReservationState.WITHDRAWN:
            self._withdrawn[which] = self._clock_us() + AGAIN_US
        elif which in self._withdrawn:
            return  # unchanged
        for place, booked in concerned:
            if outcome.state is not ReservationState.ADMITTED:
                self._note(outcome, place, booked)
            if outcome.is_binding:
                notify_client(self.broker, place[0], ADVICE, _told(place[1], outcome))

    def _concerned(self, which: Which) -> list[tuple[SubscriptionKey, ReservedSubscription]]:
        members = self._members.get(which)
        places = [(which[0], str(which[1]))] if members is None else list(members)
        return [
            (place, booked)
            for place in places
            if (booked := self._booked.get(place[0], {}).get(place[1])) is not None
        ]

    def _ask_again(self, which: Which) -> None:
        for (name, pattern), booked in self._concerned(which)[:1]:
            session = self.broker.sessions.get(name)
            if session is not None:
                guarantee = self._guarantee(session, pattern)
                outcome = self._subscribe(session, booked, guarantee)
                if outcome is not None:
                    self._changed(which, outcome)

    def _note(
        self, outcome: AdmissionOutcome, place: SubscriptionKey, booked: ReservedSubscription
    ) -> None:
        """Record a refusal in the recent list, the counters and the ledger."""
        hub = self.broker.hub
        name, pattern = place
        resource = str(outcome.refusals[0].resource if outcome.refusals else Resource.PATH)
        self.refused[resource] = self.refused.get(resource, 0) + 1
        self.lately.append(
            RecentRefusal(
                at_ms=hub.now_ms,
                client=name,
                filter=pattern,
                where=booked.where or booked.xpath,
                refusals=outcome.refusals,
                is_binding=outcome.is_binding,
            )
        )
        if outcome.refusals and outcome.is_binding:
            detail = f"subscription: {refusal_text(outcome.refusals[0])}"
            now_ms = hub.now_ms
            hub.ledger.add(
                0, 1, pattern, "", name, REFUSED, now_ms, now_ms, now_ms, 0, 0, "", detail, 0
            )


def is_exempt(pattern: str) -> bool:
    """System channels are few, and carried in any case."""
    return channels_of(pattern).startswith("$")


def channels_of(pattern: str) -> str:
    """The filter of a pattern, also of a shared subscription."""
    return pattern.split("/", 2)[2] if pattern.startswith(SHARED) else pattern


def booked_as(
    name: str, pattern: str, predicate: Predicate | None, where: str, xpath: str
) -> ReservedSubscription:
    filter_ = _filter(channels_of(pattern), _ANYTHING if predicate is None else predicate)
    is_shared = pattern.startswith(SHARED)
    which = (pattern + _GROUP, where or xpath) if is_shared else (name, pattern)
    return ReservedSubscription(which, filter_, where, xpath)


@lru_cache(maxsize=4_096)
def _filter(channel: str, predicate: Predicate) -> Filter:
    """A filter, cached because analysing a predicate is slow."""
    return Filter(channel, predicate)


def guarantee_from(chosen: str | float, default: Guarantee) -> Guarantee:
    """Parse a guarantee as written in policies and configuration: "none", "full", or a share."""
    if isinstance(chosen, str):
        return Guarantee(kind=GuaranteeKind(chosen), basis=default.basis)
    return Guarantee(kind=GuaranteeKind.PERCENTAGE, percent=100 * chosen, basis=default.basis)


def _told(pattern: str, outcome: AdmissionOutcome) -> dict[str, object]:
    told: dict[str, object] = {
        "kind": "admission",
        "filter": pattern,
        "state": str(outcome.state),
        "admitted": outcome.share,
    }
    if outcome.refusals:
        first = outcome.refusals[0]
        told |= {"problem": refusal_text(first), **dict(facts_of(first))}
    return told
