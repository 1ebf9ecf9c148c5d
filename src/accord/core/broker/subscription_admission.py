"""Admission of client subscriptions: admitted, refused with the facts, or pending at other nodes.

Each filter of a SUBSCRIBE is a request of its own. If all are decided at once, the SUBSCRIBE
proceeds; if other nodes are asked, its SUBACK waits for their replies. An admitted subscription
holds its reservation until UNSUBSCRIBE, a subscription that replaces it, or the end of its session.
A shared subscription is reserved once for the whole group; system channels (`$…`) need no
reservation.

Other nodes may withdraw a reservation later. The client is then notified, its events are delivered
as best effort, and the request is repeated periodically.

Results of a SUBSCRIBE: refusals as text for operators and as facts for programs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from accord.core.admission.admission import Admission
from accord.core.admission.demand import Measured
from accord.core.admission.filter_index.filters import Filter, covers
from accord.core.admission.networked_admission import NetworkedAdmission
from accord.core.admission.options import Guarantee, GuaranteeKind, Mode
from accord.core.admission.reservation import ReservationState
from accord.core.admission.resources import Resource, client
from accord.core.admission.subscription_requests import (
    AdmissionOutcome,
    AdmissionRefusal,
    SubscriptionRequest,
)
from accord.core.broker.client_advertisements import ClientAdvertisements
from accord.core.broker.client_notifications import notify_client
from accord.core.broker.session import MqttSession
from accord.core.model.units import BANDWIDTHS_BPS
from accord.core.monitoring.ledger import REFUSED
from accord.core.monitoring.recent_changes import REFUSAL
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


Facts = tuple[tuple[str, str], ...]

ADMITTED: Final = "admitted"  # user property with the share of nodes that carry it
_SIZES: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class SubackResult(Struct, frozen=True):
    """The result for one filter of a SUBSCRIBE; `problem` is empty if it is accepted."""

    problem: str = ""
    facts: Facts = ()
    reason: Reason = Reason.QUOTA_EXCEEDED


ACCEPTED: Final = SubackResult()


def refused_result(refusal: AdmissionRefusal) -> SubackResult:
    return SubackResult(refusal_text(refusal), facts_of(refusal))


def admitted_result(share: float) -> SubackResult:
    return SubackResult("", ((ADMITTED, f"{share:.4g}"),))


def refusal_text(refusal: AdmissionRefusal) -> str:
    if refusal.resource is Resource.PATH:
        return f"node {refusal.node} does not answer"
    whose = f" of {_holder_name(refusal)}" if refusal.of else ""
    asked, free = (
        amount_text(refusal.resource, each) for each in (refusal.requested, refusal.free)
    )
    return f"node {refusal.node} lacks {refusal.resource}{whose}: {asked} asked, {free} free"


def amount_text(resource: str, amount: float) -> str:
    if resource == Resource.BANDWIDTH:
        return _with_unit(amount, BANDWIDTHS_BPS)
    if resource == Resource.MEMORY:
        return _with_unit(amount, _SIZES)
    return f"{amount:,.4g} events/s"


def facts_of(refusal: AdmissionRefusal) -> Facts:
    """Refusal facts; memory in bytes, CPU in events per second, bandwidth in bits per second."""
    named = [("node", refusal.node), ("resource", str(refusal.resource))]
    if refusal.of:
        named.append(("of", _holder_name(refusal)))
    return (*named, ("asked", f"{refusal.requested:.15g}"), ("free", f"{refusal.free:.15g}"))


def _holder_name(refusal: AdmissionRefusal) -> str:
    """The holder without the internal prefix."""
    return refusal.of.replace("\0", "")


def _with_unit(amount: float, units: Mapping[str, int]) -> str:
    """Format an amount in the largest unit of which it has at least one."""
    fitting = [(unit, factor) for unit, factor in units.items() if factor <= max(abs(amount), 1)]
    unit, factor = fitting[-1]
    return f"{amount / factor:.4g} {unit}"


MAX_RECENT_REFUSALS: Final = 100  # refusals remembered for monitoring
RETRY_US: Final = 5_000_000  # retry interval for withdrawn reservations
SHARED: Final = "$share/"
_MAX_PENDING: Final = 1_000  # pending subscriptions of one client
_MAX_COMPARED: Final = 200  # subscriptions of one client
_GROUP: Final = "\0"  # not a valid client ID
_MATCH_ALL: Final = parse("TRUE")
_UNCONDITIONAL: Final = Guarantee(kind=GuaranteeKind.PERCENTAGE, percent=0)

ReservationKey = tuple[str, Hashable]  # client and key: identity within admission
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

    key: ReservationKey
    filter: Filter
    where: str  # its predicate, in one of two languages
    xpath: str


class PendingSubscribe:
    """A SUBSCRIBE whose SUBACK waits for other nodes."""

    def __init__(self, connection: Connection, session: MqttSession, packet: Subscribe) -> None:
        self.connection = connection
        self.session = session
        self.packet = packet
        self.results: dict[str, SubackResult] = {}
        self.pending: dict[str, ReservedSubscription] = {}  # by pattern


class SubscriptionAdmission:
    """Connects SUBSCRIBE packets to admission.

    `controller` performs admission, at this node alone or together with others. `estimate` returns
    the measurements for a channel and a predicate. `outcome_callbacks` holds callbacks for the
    outcomes of requests that belong to no client.
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
        self.controller: Admission | NetworkedAdmission = admission
        self.advertisements = ClientAdvertisements(broker, admission, clock_us)
        self.recent_refusals: deque[RecentRefusal] = deque(maxlen=MAX_RECENT_REFUSALS)
        self.refused_counts: dict[str, int] = {}  # subscriptions, by resource
        self.is_binding = admission.options.mode is Mode.ENFORCE
        self._clock_us = clock_us
        self._estimate = estimate
        self.outcome_callbacks: dict[ReservationKey, Callable[[AdmissionOutcome], None]] = {}
        self._pending: dict[ReservationKey, dict[SubscriptionKey, PendingSubscribe]] = {}
        self._pending_keys: dict[
            str, dict[str, ReservationKey]
        ] = {}  # pending ones, by client and pattern
        self._reserved: dict[str, dict[str, ReservedSubscription]] = {}  # by client and pattern
        self._members: dict[
            ReservationKey, dict[SubscriptionKey, bool]
        ] = {}  # members of shared groups
        self._withdrawn: dict[ReservationKey, int] = {}  # with the time of the next attempt

    # ------------------------------------------------------------------------------ client requests

    def request(
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
                self._cancel((session.name, pattern), "subscribed again before the decision")
                booked = reservation_for(
                    session.name, pattern, condition.predicate, condition.where, condition.xpath
                )
                self._request(waiting, pattern, booked)
        return None if waiting.pending else waiting.results

    def on_unsubscribed(self, session: MqttSession, pattern: str) -> None:
        """Cancel or release the reservation of a removed subscription."""
        self._cancel((session.name, pattern), "unsubscribed before the decision")
        self._release((session.name, pattern))

    def release_refused(self, session: MqttSession, pattern: str) -> None:
        """Release a subscription that was admitted and then refused for another reason."""
        if pattern not in session.subscriptions:
            self._release((session.name, pattern))

    def on_session_ended(self, session: MqttSession) -> None:
        name = session.name
        for pattern, which in self._pending_keys.pop(name, {}).items():
            self._abandon_pending(which, (name, pattern))
        for pattern in list(self._reserved.get(name, ())):
            self._release((name, pattern))
        self.advertisements.on_session_ended(session)
        self.controller.on_client_gone(name)
        self._clear_link(name)

    def restore(self) -> None:
        """Reserve for recovered subscriptions without a new decision: they were admitted before."""
        for session in self.broker.sessions.values():
            for pattern, subscription in session.subscriptions.items():
                self._restore_reservation(session, pattern, subscription)

    # -------------------------------------------------------------------------------- driver side

    def notify_decisions(self) -> None:
        """Notify clients of decisions, and publishers of rate violations."""
        decisions = self.admission.decisions
        while decisions:
            self._on_decision(decisions.pop(0))
        overruns = self.admission.violations
        while overruns:
            over = overruns.pop(0)
            notice: dict[str, object] = {
                "kind": "rate",
                "advertisement": over.advertisement,
                "standing": str(over.compliance),
                "rate_hz": over.rate_hz,
                "events": over.events,
            }
            notify_client(self.broker, over.publisher, ADVICE, notice)

    def advance(self) -> None:
        """Retry withdrawn reservations that are due."""
        now_us = self._clock_us()
        for which, due_us in list(self._withdrawn.items()):
            if due_us <= now_us:
                self._withdrawn[which] = now_us + RETRY_US
                self._retry(which)

    def clients(self) -> Iterable[MqttSession]:
        """Sessions with reservations."""
        for name in list(self._reserved):
            session = self.broker.sessions.get(name)
            if session is not None and name in self._reserved:
                yield session

    def refresh_link(self, session: MqttSession) -> None:
        """Update the capacity of a client's link; it keeps the last value while offline."""
        connection = session.connection
        if connection is not None:
            self.admission.set_capacity(
                client(session.name), connection.link.capacity_bps() or None
            )

    def sole_reservation(self, session: MqttSession) -> ReservedSubscription | None:
        """The subscription that accounts for all of a client's traffic, if it has only one."""
        patterns = self._reserved.get(session.name, {})
        if len(patterns) != 1 or len(session.subscriptions) != 1:
            return None
        (pattern,) = patterns
        return None if pattern.startswith(SHARED) else patterns[pattern]

    def held_by(self, name: str, filter_: Filter) -> SubscriptionRequest | None:
        """What is promised to a client for these events, by the same filter or a wider one."""
        found = None
        for pattern, reserved in islice(self._reserved.get(name, {}).items(), _MAX_COMPARED):
            if pattern.startswith(SHARED) or not covers(reserved.filter, filter_):
                continue
            known = self.admission.subscriptions.get(*reserved.key)
            if known is None or known.outcome is None:
                continue
            if known.outcome.state is ReservationState.ADMITTED:
                if reserved.filter.identity == filter_.identity:
                    return known
                found = found or known
        return found

    def guarantee_for(self, entity: Entity, channels: str) -> Guarantee:
        """The guarantee set by policies, or else by the configuration."""
        default = self.admission.options.guarantee
        chosen = guarantee_of(self.broker.router.policies, entity, channels)
        return default if chosen is None else guarantee_from(chosen, default)

    # ------------------------------------------------------------------------------------ internal

    def _request(
        self, pending: PendingSubscribe, pattern: str, reserved: ReservedSubscription
    ) -> None:
        session = pending.session
        place = (session.name, pattern)
        guarantee = self._guarantee(session, pattern)
        if guarantee.kind is GuaranteeKind.NONE:
            self._release(place)
            return
        if len(self._pending_keys.get(session.name, ())) >= _MAX_PENDING:
            pending.results[pattern] = SubackResult(
                f"{_MAX_PENDING} of your subscriptions already wait for other nodes"
            )
            return
        outcome = self._subscribe(session, reserved, guarantee)
        if outcome is not None:
            pending.results[pattern] = self._result_of(outcome, place, reserved)
        elif self.is_binding:
            pending.pending[pattern] = reserved
            self._pending.setdefault(reserved.key, {})[place] = pending
            self._pending_keys.setdefault(session.name, {})[pattern] = reserved.key
        else:
            self._reserve(place, reserved)  # not binding: the outcome is only recorded

    def _subscribe(
        self, session: MqttSession, reserved: ReservedSubscription, guarantee: Guarantee
    ) -> AdmissionOutcome | None:
        self.refresh_link(session)
        measured = self._estimate(reserved.filter.channel, reserved.where, reserved.xpath)
        size = measured.event_bytes
        return self.controller.subscribe(
            *reserved.key,
            reserved.filter,
            now_us=self._clock_us(),
            guarantee=guarantee,
            event_bytes=None if size is None else round(size),
            measured=measured,
        )

    def _restore_reservation(
        self, session: MqttSession, pattern: str, subscription: RouterSubscription
    ) -> None:
        if is_exempt(pattern) or self._guarantee(session, pattern).kind is GuaranteeKind.NONE:
            return
        where, xpath = subscription.where, subscription.xpath
        booked = reservation_for(session.name, pattern, subscription.predicate, where, xpath)
        self._reserve((session.name, pattern), booked)
        self._subscribe(session, booked, _UNCONDITIONAL)

    def _guarantee(self, session: MqttSession, pattern: str) -> Guarantee:
        return self.guarantee_for(session.entity, channels_of(pattern))

    def _result_of(
        self, outcome: AdmissionOutcome, key: SubscriptionKey, reserved: ReservedSubscription
    ) -> SubackResult:
        if outcome.state is ReservationState.ADMITTED or not outcome.is_binding:
            self._reserve(key, reserved)
        if outcome.state is not ReservationState.ADMITTED:
            self._record_refusal(outcome, key, reserved)
            if key[0] not in self._reserved:
                self._clear_link(key[0])
            return refused_result(outcome.refusals[0]) if outcome.is_binding else ACCEPTED
        known = self.admission.subscriptions.get(*reserved.key)
        is_share = known is not None and known.guarantee.kind is GuaranteeKind.PERCENTAGE
        return admitted_result(outcome.share) if is_share or outcome.share < 1 else ACCEPTED

    def _reserve(self, key: SubscriptionKey, reserved: ReservedSubscription) -> None:
        name, pattern = key
        before = self._reserved.get(name, {}).get(pattern)
        if before is not None and before.key != reserved.key:
            self._release(key)
        self._reserved.setdefault(name, {})[pattern] = reserved
        if pattern.startswith(SHARED):
            self._members.setdefault(reserved.key, {})[key] = True

    def _release(self, key: SubscriptionKey) -> None:
        name, pattern = key
        patterns = self._reserved.get(name, {})
        booked = patterns.pop(pattern, None)
        if booked is None:
            return
        if not patterns:
            del self._reserved[name]
            self._clear_link(name)
        members = self._members.get(booked.key)
        if members is not None:
            members.pop(key, None)
            if members:
                return
            del self._members[booked.key]
        self._withdrawn.pop(booked.key, None)
        self.controller.unsubscribe(*booked.key)

    def _clear_link(self, name: str) -> None:
        """Remove the capacity of a link that has no reservations."""
        self.admission.set_capacity(client(name), None)
        self.admission.set_used(client(name), 0)

    def _on_decision(self, outcome: AdmissionOutcome) -> None:
        which = (outcome.client, outcome.key)
        if which in self.outcome_callbacks:
            self.outcome_callbacks[which](outcome)
            return
        waiting = self._pending.pop(which, None)
        if waiting is None:
            self._on_change(which, outcome)
            return
        for place, each in waiting.items():
            self._remove_pending(place)
            booked = each.pending[place[1]]
            self._on_result(each, place, self._result_of(outcome, place, booked))

    def _on_result(
        self, pending: PendingSubscribe, key: SubscriptionKey, result: SubackResult
    ) -> None:
        name, pattern = key
        pending.results[pattern] = result
        del pending.pending[pattern]
        if pending.pending:
            return
        session = pending.session
        if pending.connection.session is session:
            pending.connection.on_decided(pending.packet, pending.results)
            return
        for each in pending.results:  # its client left before the SUBACK
            self._release((name, each))
            if (known := session.subscriptions.get(each)) is not None:
                self._restore_reservation(session, each, known)

    def _cancel(self, key: SubscriptionKey, why: str) -> None:
        """Conclude a pending request with a refusal."""
        which = self._remove_pending(key)
        if which is not None:
            waiting = self._abandon_pending(which, key)
            self._on_result(waiting, key, SubackResult(why, (), Reason.UNSPECIFIED_ERROR))

    def _remove_pending(self, key: SubscriptionKey) -> ReservationKey | None:
        """Remove a request from the pending ones."""
        patterns = self._pending_keys.get(key[0], {})
        which = patterns.pop(key[1], None)
        if not patterns:
            self._pending_keys.pop(key[0], None)
        return which

    def _abandon_pending(self, which: ReservationKey, key: SubscriptionKey) -> PendingSubscribe:
        """Remove a pending SUBSCRIBE; release its reservation unless another member holds it."""
        waiting = self._pending[which].pop(key)
        if not self._pending[which]:
            del self._pending[which]
            booked = self._reserved.get(key[0], {}).get(key[1])
            if which not in self._members and (booked is None or booked.key != which):
                self.controller.unsubscribe(*which)
        return waiting

    def _on_change(self, which: ReservationKey, outcome: AdmissionOutcome) -> None:
        """The outcome of an admitted subscription has changed."""
        concerned = self._reservations_of(which)
        if not concerned:
            return  # released before the outcome arrived
        if outcome.state is ReservationState.ADMITTED:
            if self._withdrawn.pop(which, None) is None and outcome.share >= 1:
                return
        elif outcome.state is ReservationState.WITHDRAWN:
            self._withdrawn[which] = self._clock_us() + RETRY_US
        elif which in self._withdrawn:
            return  # unchanged
        for place, booked in concerned:
            if outcome.state is not ReservationState.ADMITTED:
                self._record_refusal(outcome, place, booked)
            if outcome.is_binding:
                notify_client(self.broker, place[0], ADVICE, _notice_form(place[1], outcome))

    def _reservations_of(
        self, which: ReservationKey
    ) -> list[tuple[SubscriptionKey, ReservedSubscription]]:
        members = self._members.get(which)
        places = [(which[0], str(which[1]))] if members is None else list(members)
        return [
            (place, booked)
            for place in places
            if (booked := self._reserved.get(place[0], {}).get(place[1])) is not None
        ]

    def _retry(self, which: ReservationKey) -> None:
        for (name, pattern), booked in self._reservations_of(which)[:1]:
            session = self.broker.sessions.get(name)
            if session is not None:
                guarantee = self._guarantee(session, pattern)
                outcome = self._subscribe(session, booked, guarantee)
                if outcome is not None:
                    self._on_change(which, outcome)

    def _record_refusal(
        self, outcome: AdmissionOutcome, key: SubscriptionKey, reserved: ReservedSubscription
    ) -> None:
        """Record a refusal in the recent list, the counters and the ledger."""
        context = self.broker.context
        name, pattern = key
        resource = str(outcome.refusals[0].resource if outcome.refusals else Resource.PATH)
        self.refused_counts[resource] = self.refused_counts.get(resource, 0) + 1
        self.recent_refusals.append(
            RecentRefusal(
                at_ms=context.now_ms,
                client=name,
                filter=pattern,
                where=reserved.where or reserved.xpath,
                refusals=outcome.refusals,
                is_binding=outcome.is_binding,
            )
        )
        if outcome.refusals and outcome.is_binding:
            detail = f"subscription: {refusal_text(outcome.refusals[0])}"
            now_ms = context.now_ms
            context.changes.add(
                REFUSAL,
                f"subscription of {name} to {pattern} refused",
                now_ms=now_ms,
                who=name,
                detail=refusal_text(outcome.refusals[0]),
                page="/admission",
                channel=channels_of(pattern),
                many="subscriptions refused",
            )
            context.ledger.add(
                0, 1, pattern, "", name, REFUSED, now_ms, now_ms, now_ms, 0, 0, "", detail, 0
            )


def is_exempt(pattern: str) -> bool:
    """System channels are few, and carried in any case."""
    return channels_of(pattern).startswith("$")


def channels_of(pattern: str) -> str:
    """The filter of a pattern, also of a shared subscription."""
    return pattern.split("/", 2)[2] if pattern.startswith(SHARED) else pattern


def reservation_for(
    name: str, pattern: str, predicate: Predicate | None, where: str, xpath: str
) -> ReservedSubscription:
    filter_ = _filter(channels_of(pattern), _MATCH_ALL if predicate is None else predicate)
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


def _notice_form(pattern: str, outcome: AdmissionOutcome) -> dict[str, object]:
    notice: dict[str, object] = {
        "kind": "admission",
        "filter": pattern,
        "state": str(outcome.state),
        "admitted": outcome.share,
    }
    if outcome.refusals:
        first = outcome.refusals[0]
        notice |= {"problem": refusal_text(first), **dict(facts_of(first))}
    return notice
