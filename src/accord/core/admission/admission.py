"""Admission control of one node: advertisements, demand, resource pools and reservations.

The driver reports advertisements, measurements and messages of neighbours, calls `subscribe` before
a subscription is accepted, and calls `advance` as time passes. It drains `sends` to neighbours,
`decisions` to clients and `overruns` to publishers. A decision that needs no other node is returned
at once.

In report mode everything runs as in enforce mode, reservations included: a subscription that would
have been refused reserves nothing. Only the outcome is marked as not binding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import Final

from accord.core.admission.demand import Basis, DemandEstimator, Measured, RateDemand
from accord.core.admission.errors import AdmissionError
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_poset import PER_HZ, FilterPoset, to_hz, to_units
from accord.core.admission.messages import AdmissionMessage, FlowSpec, NodeVerdict
from accord.core.admission.options import AdmissionOptions, Guarantee, GuaranteeKind, Mode
from accord.core.admission.rate_enforcement import Compliance, RateEnforcement, RateViolation
from accord.core.admission.released_legs import Leg
from accord.core.admission.reservation import ReservationDecision, ReservationState
from accord.core.admission.reservation_protocol import ReservationProtocol
from accord.core.admission.resources import (
    CPU,
    MEMORY,
    Amounts,
    CpuCapacityEstimator,
    Pool,
    ReservationTable,
    client,
    link,
)
from accord.core.admission.source_paths import Path, SourcePath
from accord.core.admission.subscription_requests import (
    AdmissionOutcome,
    ReevaluationQueue,
    SubscriptionRequest,
    SubscriptionRequests,
    Which,
)
from accord.core.admission.transit_reservations import Sent
from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.predicate import parse

# Limit of one reserved amount; keeps the sum of all reservations within 64 bits on the wire.
MAX_AMOUNT: Final = 1 << 43


class Admission:
    """Admits subscriptions against the resources of this node and of the nodes on their paths."""

    def __init__(
        self, name: str, incarnation: int, options: AdmissionOptions | None = None
    ) -> None:
        options = AdmissionOptions() if options is None else options
        self.name = name
        self.options = options
        self.order = FilterPoset(
            advertisements_limit=options.advertisements, odd_limit=options.odd_filters
        )
        self.needs = DemandEstimator(self.order, room=options.estimate_room)
        self.books = ReservationTable()
        self.enforcement = RateEnforcement(burst_s=options.burst_s, tell_us=options.tell_us)
        self._cpu = CpuCapacityEstimator(threshold=options.cpu_threshold)
        self._protocol = ReservationProtocol(
            name, incarnation, self.books, self._assess, options.timing
        )
        self.subscriptions = SubscriptionRequests(
            self._protocol.requests, is_binding=options.mode is Mode.ENFORCE
        )
        self.looking = ReevaluationQueue[Which](options.settle_us)  # of local subscriptions
        self._looking_at_holds = ReevaluationQueue[Leg](
            options.settle_us
        )  # of transit reservations
        # Finds the paths of a filter's events, given the known ones; set by overlay and secondary
        # admission.
        self.find_ways: (
            Callable[[Filter, tuple[SourcePath, ...]], tuple[SourcePath, ...]] | None
        ) = None
        self._elsewhere: dict[str, dict[Hashable, bool]] = {}  # advertisement keys, by remote node

    # ----------------------------------------------------------------------------- advertisements

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int
    ) -> None:
        """Register a local publisher's advertisement; the same name replaces it."""
        self.enforcement.check(publisher, name, filter_)
        self.order.advertise((self.name, publisher, name), filter_, rate_hz, self.name)
        self.enforcement.advertise(publisher, name, filter_, rate_hz, now_us)
        self._changed()

    def unadvertise(self, publisher: str, name: str) -> bool:
        self._changed()
        self.enforcement.unadvertise(publisher, name)
        return self.order.unadvertise((self.name, publisher, name))

    def publisher_gone(self, publisher: str) -> None:
        for name in self.enforcement.names(publisher):
            self.unadvertise(publisher, name)

    def advertised_elsewhere(
        self, node: str, publisher: str, name: str, filter_: Filter, rate_hz: float
    ) -> None:
        """Register an advertisement announced by a remote node."""
        key = (node, publisher, name)
        self.order.advertise(key, filter_, rate_hz, node)
        self._elsewhere.setdefault(node, {})[key] = True
        self._changed()

    def unadvertised_elsewhere(self, node: str, publisher: str, name: str) -> bool:
        key = (node, publisher, name)
        keys = self._elsewhere.get(node, {})
        if keys.pop(key, None) is None:
            return False
        if not keys:
            del self._elsewhere[node]
        self._changed()
        return self.order.unadvertise(key)

    def node_gone(self, node: str) -> None:
        """Remove all advertisements announced by `node`."""
        for key in self._elsewhere.pop(node, ()):
            self.order.unadvertise(key)
            self._changed()

    def elsewhere(self) -> list[str]:
        """Return the remote nodes whose publishers advertise something."""
        return list(self._elsewhere)

    def published(
        self,
        publisher: str,
        channel: str,
        values: Mapping[str, Value],
        document: Document | None,
        now_us: int,
    ) -> Compliance:
        """Check an event against its publisher's advertisements; violations go to `overruns`."""
        return self.enforcement.offer(publisher, channel, values, document, now_us)

    @property
    def overruns(self) -> list[RateViolation]:
        """Violations to report to publishers; drained by the driver."""
        return self.enforcement.told

    # ---------------------------------------------------------------------------------- resources

    def look_at_cpu(self, use: float, rate_hz: float) -> None:
        """Record a sample: CPU utilisation from 0 to 1, and events processed per second."""
        rate = to_units(rate_hz)
        self.books.set_used(CPU, rate)
        self.books.set_capacity(CPU, self._cpu.look(use, rate))

    def set_capacity(self, pool: Pool, capacity: int | None) -> None:
        """Set the capacity of memory, or of a link's or client's bandwidth; None: no limit."""
        self.books.set_capacity(pool, capacity)

    def set_used(self, pool: Pool, used: int) -> None:
        """Set the measured use of a pool."""
        self.books.set_used(pool, used)

    def measured(self, client_: str, key: Hashable, rate_hz: float, event_bytes: int) -> None:
        """Correct a subscription's reservation by what it was measured to receive.

        A reservation based on an estimate follows the measurement. One based on a bound is only
        raised: the bound has been exceeded.
        """
        subscription = self.subscriptions.get(client_, key)
        if subscription is None:
            return
        id_ = self.subscriptions.id_of(subscription)
        is_estimate = subscription.guarantee.basis is Basis.ESTIMATE
        room = self.options.estimate_room if is_estimate else 1.0
        amounts = self._amounts(rate_hz * room, event_bytes, client(client_))
        for pool, promised in self.books.amounts(id_).items():
            amount = amounts.get(pool, promised)
            self.books.correct(id_, pool, amount if is_estimate else max(amount, promised))

    # ------------------------------------------------------------------------------ subscriptions

    def need(self, filter_: Filter, measured: Measured | None = None) -> RateDemand:
        """Return the demand that a subscription with this filter would have."""
        return self.needs.need(filter_, measured=measured)

    def subscribe(  # noqa: PLR0913
        self,
        client_: str,
        key: Hashable,
        filter_: Filter,
        paths: Sequence[Path] | None = None,
        *,
        now_us: int,
        guarantee: Guarantee | None = None,
        event_bytes: int | None = None,
        measured: Measured | None = None,
    ) -> AdmissionOutcome | None:
        """Request admission; returns the outcome, or None if it is added to `decisions` later.

        `paths` start at this node and end at nodes with publishers; they are computed if not given.
        """
        guarantee = self.options.guarantee if guarantee is None else guarantee
        if self.options.mode is Mode.OFF or guarantee.kind is GuaranteeKind.NONE:
            self.unsubscribe(client_, key)
            return AdmissionOutcome(client=client_, key=key, state=ReservationState.ADMITTED)
        known = self.subscriptions.get(client_, key)
        if known is not None and known.is_for(filter_, guarantee):
            return known.outcome
        size = self.options.event_bytes if event_bytes is None else event_bytes
        wish = FlowSpec(
            filter_.channel,
            str(filter_.predicate),
            guarantee.kind is GuaranteeKind.FULL,
            guarantee.basis,
            size,
            -1.0 if measured is None or measured.rate_hz is None else measured.rate_hz,
        )
        subscription = SubscriptionRequest(client_, key, filter_, guarantee, wish)
        if paths is None:
            subscription.ways = self._ways(filter_, ())
            paths = [way.path for way in subscription.ways]
        amounts = self._own_amounts(subscription)
        return self.subscriptions.begin(subscription, paths, amounts, now_us)

    def unsubscribe(self, client_: str, key: Hashable) -> bool:
        """Release the subscription's reservations; returns whether it existed."""
        return self.subscriptions.end(client_, key)

    def client_gone(self, client_: str) -> None:
        """Release all reservations of a client that failed or whose session ended."""
        self.subscriptions.end_all(client_)

    def reroute(self, client_: str, key: Hashable, paths: Sequence[Path], now_us: int) -> None:
        """Request the subscription's reservations again along new paths."""
        subscription = self.subscriptions.get(client_, key)
        if subscription is not None:
            amounts = self._own_amounts(subscription)
            self.subscriptions.reroute(subscription, paths, amounts, now_us)

    # --------------------------------------------------------------------------- secondary nodes

    def carry(
        self,
        child: str,
        key: Hashable,
        wish: FlowSpec,
        hear: Callable[[ReservationDecision], None],
        *,
        now_us: int,
    ) -> None:
        """Subscribe on behalf of a secondary node; AccordError if the flow spec is invalid.

        Unless the guarantee is full, the child decides whether enough nodes agreed.
        """
        _check(wish)
        filter_ = _parsed(wish.channel, wish.where)
        kind = GuaranteeKind.FULL if wish.is_full else GuaranteeKind.PERCENTAGE
        percent = 100.0 if wish.is_full else 0.0
        guarantee = Guarantee(kind=kind, percent=percent, basis=Basis(wish.basis))
        subscription = SubscriptionRequest(_guest(child), key, filter_, guarantee, wish)
        subscription.bandwidth, subscription.hear = link(child), hear
        subscription.ways = self._ways(filter_, ())
        paths = [way.path for way in subscription.ways]
        self.subscriptions.begin(subscription, paths, self._own_amounts(subscription), now_us)

    def is_carried(self, child: str, key: Hashable) -> bool:
        return self.subscriptions.get(_guest(child), key) is not None

    def carried_by(self, child: str, key: Hashable) -> tuple[NodeVerdict, ...]:
        """Return the verdicts of all nodes, or none while a new round is under way."""
        subscription = self.subscriptions.get(_guest(child), key)
        return () if subscription is None else self.subscriptions.verdicts(subscription)

    def carried_rate(self, child: str, key: Hashable) -> int:
        """Return the requested rate in thousandths of a hertz; -1 if there is no subscription."""
        subscription = self.subscriptions.get(_guest(child), key)
        # Not `to_units`: the sum over many publishers may exceed what one may advertise.
        return -1 if subscription is None else ceil(subscription.asked_hz * PER_HZ - 1e-6)

    def drop(self, child: str, key: Hashable) -> None:
        self.subscriptions.end(_guest(child), key)

    def ask_parents(self) -> None:
        """Configure a secondary node: a parent replies for the other nodes and reports the rate."""
        self._protocol.requests.assess = self._told_rate

    # ------------------------------------------------------------------------------ for its driver

    def receive(self, neighbour: str, message: AdmissionMessage, now_us: int) -> None:
        self._protocol.receive(neighbour, message, now_us)
        self.subscriptions.collect()

    def advance(self, now_us: int) -> None:
        for which in self.looking.take(self.subscriptions.all, now_us):
            self._look_again(which, now_us)
        hops = self._protocol.hops
        for leg in self._looking_at_holds.take(hops.all, now_us):
            hops.look_again(leg)
        self._protocol.advance(now_us)
        self.subscriptions.collect()

    def next_due_us(self) -> int | None:
        dues = [self._protocol.next_due_us()]
        if len(self.subscriptions):
            dues.append(self.looking.next_due_us())
        if len(self._protocol.hops):
            dues.append(self._looking_at_holds.next_due_us())
        return min((due for due in dues if due is not None), default=None)

    @property
    def sends(self) -> list[Sent]:
        """Messages for neighbours; drained by the driver."""
        return self._protocol.sends

    @property
    def decisions(self) -> list[AdmissionOutcome]:
        """Outcomes for clients; drained by the driver."""
        return self.subscriptions.decisions

    @property
    def dropped(self) -> int:
        """Count of invalid messages from neighbours."""
        return self._protocol.dropped

    def check_invariants(self) -> None:
        self.order.check_invariants()
        self.books.check_invariants()
        self.enforcement.check_invariants()
        self._protocol.check_invariants()
        self.subscriptions.check_invariants()
        assert sum(map(len, self._elsewhere.values())) <= self.order.advertisements

    # ------------------------------------------------------------------------------------- inside

    def _changed(self) -> None:
        """Schedule a re-evaluation of all reservations after a change of advertisements."""
        self.looking.changed()
        self._looking_at_holds.changed()

    def _look_again(self, which: Which, now_us: int) -> None:
        """Request a subscription again if its demand or its paths have changed."""
        subscription = self.subscriptions.get(*which)
        if subscription is None:
            return
        before, ways = subscription.ways, subscription.ways
        if before is not None:
            ways = subscription.ways = self._ways(subscription.filter, before)
        asked_hz = self._own_hz(subscription)
        if ways != before or subscription.asked_hz != asked_hz:
            paths = None if ways is None else [way.path for way in ways]
            amounts = self._own_amounts(subscription)
            self.subscriptions.reroute(subscription, paths, amounts, now_us)

    def _ways(self, filter_: Filter, known: tuple[SourcePath, ...]) -> tuple[SourcePath, ...]:
        return () if self.find_ways is None else self.find_ways(filter_, known)

    def _assess(self, wish: FlowSpec, towards: str, source: str) -> Amounts:
        """Return what forwarding events from `source` to a neighbour takes at this node."""
        _check(wish)
        filter_ = _parsed(wish.channel, wish.where)
        rate_hz = self._asked_hz(filter_, wish, frozenset((source,)))
        return self._amounts(rate_hz, wish.event_bytes, link(towards))

    def _own_amounts(self, subscription: SubscriptionRequest) -> Amounts:
        """Return what delivering the events to the client takes at this node."""
        subscription.asked_hz = self._own_hz(subscription)
        event_bytes = subscription.wish.event_bytes
        return self._amounts(subscription.asked_hz, event_bytes, subscription.bandwidth)

    def _own_hz(self, subscription: SubscriptionRequest) -> float:
        return max(self._asked_hz(subscription.filter, subscription.wish), subscription.told_hz)

    def _told_rate(self, number: int, rate: int) -> Amounts | None:
        """Return the amounts needed for a rate reported by a parent, if they changed."""
        subscription = self.subscriptions.numbered(number)
        told_hz = to_hz(rate)
        if subscription is None or subscription.told_hz == told_hz:
            return None
        subscription.told_hz = told_hz
        return self._own_amounts(subscription)

    def _asked_hz(
        self, filter_: Filter, wish: FlowSpec, nodes: frozenset[str] | None = None
    ) -> float:
        measured = Measured(wish.measured_hz) if wish.measured_hz >= 0 else None
        return self.needs.asked_hz(filter_, Basis(wish.basis), nodes=nodes, measured=measured)

    def _amounts(self, rate_hz: float, event_bytes: int, bandwidth: Pool) -> dict[Pool, int]:
        waiting = ceil(rate_hz * self.options.queue_s * event_bytes)
        amounts = {
            MEMORY: self.options.subscription_bytes + waiting,
            CPU: round(rate_hz * PER_HZ),
            bandwidth: ceil(rate_hz * event_bytes * 8),
        }
        return {pool: min(amount, MAX_AMOUNT) for pool, amount in amounts.items()}


def _check(wish: FlowSpec) -> None:
    if wish.basis not in list(Basis) or wish.event_bytes < 0:
        raise AdmissionError("wish", "expected a known basis and a size of 0 or more")


def _guest(child: str) -> str:
    """Return a client name that no real client can have."""
    return f"\0\0{child}"


@lru_cache(maxsize=1_024)
def _parsed(channel: str, where: str) -> Filter:
    return Filter(channel, parse(where))
