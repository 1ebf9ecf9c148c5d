"""Admission at one node: advertisements, needs, books and the agreement with others, put together.

Whoever drives it tells it of advertisements, of what was measured and of what neighbours say, asks
before a subscription is taken, lets time pass (`advance`), sends what it says (`sends`), and tells
clients (`decisions`) and publishers (`overruns`). A decision may be there at once, where nobody
else has to be asked.

In the mode that only reports, all is done as if it were for real, books included: a subscription
that would have been refused takes nothing of them. Only the decision says that it does not bind.
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
from accord.core.admission.reevaluation import ReevaluationQueue, Which
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
    SubscriptionRequest,
    SubscriptionRequests,
)
from accord.core.admission.transit_reservations import Sent
from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.predicate import parse

# Of one promise, so that all there may be together can be told to others, in 64 bits.
MAX_AMOUNT: Final = 1 << 43


class Admission:
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
        self.looking = ReevaluationQueue[Which](options.settle_us)  # at subscriptions
        self._looking_at_holds = ReevaluationQueue[Leg](
            options.settle_us
        )  # for those of other nodes
        # By which ways events of a filter come, given those that are known; set by `exchange`.
        self.find_ways: (
            Callable[[Filter, tuple[SourcePath, ...]], tuple[SourcePath, ...]] | None
        ) = None
        self._elsewhere: dict[str, dict[Hashable, bool]] = {}  # advertisements, by node

    # ----------------------------------------------------------------------------- advertisements

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int
    ) -> None:
        """A local publisher's promise; the same name again replaces it."""
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
        """Another node told that one of its publishers promises this."""
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
        """What it told does not hold any more."""
        for key in self._elsewhere.pop(node, ()):
            self.order.unadvertise(key)
            self._changed()

    def elsewhere(self) -> list[str]:
        """The other nodes with publishers that advertise something."""
        return list(self._elsewhere)

    def published(
        self,
        publisher: str,
        channel: str,
        values: Mapping[str, Value],
        document: Document | None,
        now_us: int,
    ) -> Compliance:
        """Whether an event is within what its publisher advertised; it is told if not."""
        return self.enforcement.offer(publisher, channel, values, document, now_us)

    @property
    def overruns(self) -> list[RateViolation]:
        """What publishers are to be told; to be taken out."""
        return self.enforcement.told

    # ---------------------------------------------------------------------------------- resources

    def look_at_cpu(self, use: float, rate_hz: float) -> None:
        """The CPU's use from 0 to 1 and the events processed per second, lately."""
        rate = to_units(rate_hz)
        self.books.set_used(CPU, rate)
        self.books.set_capacity(CPU, self._cpu.look(use, rate))

    def set_capacity(self, pool: Pool, capacity: int | None) -> None:
        """What there is of memory, or of the bandwidth of a link or client; None: no limit."""
        self.books.set_capacity(pool, capacity)

    def set_used(self, pool: Pool, used: int) -> None:
        """What is really used of it."""
        self.books.set_used(pool, used)

    def measured(self, client_: str, key: Hashable, rate_hz: float, event_bytes: int) -> None:
        """What a subscription really gets; the books follow where they were an estimate.

        Where they were a bound they follow upwards only: it has not held.
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
        """What a subscription with this filter would need."""
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
        """May it be taken? The answer, or None: then it is among `decisions` later.

        `paths` begin here and end at nodes with publishers; they are found if they are not given.
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
        """Release what it held; whether there was such a subscription."""
        return self.subscriptions.end(client_, key)

    def client_gone(self, client_: str) -> None:
        """It failed, or its session ended: release all it held."""
        self.subscriptions.end_all(client_)

    def reroute(self, client_: str, key: Hashable, paths: Sequence[Path], now_us: int) -> None:
        """Its events come by other ways now; what it needs is asked for anew along all of them."""
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
        """Subscribe for a secondary node; AccordError where that makes no sense.

        Where not all nodes have to agree, the child decides whether those that do are enough.
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
        """What all nodes say of it, if nothing is being asked anew."""
        subscription = self.subscriptions.get(_guest(child), key)
        return () if subscription is None else self.subscriptions.verdicts(subscription)

    def carried_rate(self, child: str, key: Hashable) -> int:
        """What is asked for, in thousandths of a hertz; -1 where there is nothing."""
        subscription = self.subscriptions.get(_guest(child), key)
        # Of many publishers together: that may be more than one can advertise.
        return -1 if subscription is None else ceil(subscription.asked_hz * PER_HZ - 1e-6)

    def drop(self, child: str, key: Hashable) -> None:
        self.subscriptions.end(_guest(child), key)

    def ask_parents(self) -> None:
        """This is a secondary node: who answers speaks for others, and says what there will be."""
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
        """What is to be said to neighbours; to be taken out."""
        return self._protocol.sends

    @property
    def decisions(self) -> list[AdmissionOutcome]:
        """What clients are to be told; to be taken out."""
        return self.subscriptions.decisions

    @property
    def dropped(self) -> int:
        """Messages of neighbours that made no sense."""
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
        """Something else is advertised now."""
        self.looking.changed()
        self._looking_at_holds.changed()

    def _look_again(self, which: Which, now_us: int) -> None:
        """Ask anew for a subscription, if it needs something else or by other ways than before."""
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
        """What it takes here to carry events of publishers at `source` on towards a neighbour."""
        _check(wish)
        filter_ = _parsed(wish.channel, wish.where)
        rate_hz = self._asked_hz(filter_, wish, frozenset((source,)))
        return self._amounts(rate_hz, wish.event_bytes, link(towards))

    def _own_amounts(self, subscription: SubscriptionRequest) -> Amounts:
        """What it takes here to send events on to the client."""
        subscription.asked_hz = self._own_hz(subscription)
        event_bytes = subscription.wish.event_bytes
        return self._amounts(subscription.asked_hz, event_bytes, subscription.bandwidth)

    def _own_hz(self, subscription: SubscriptionRequest) -> float:
        return max(self._asked_hz(subscription.filter, subscription.wish), subscription.told_hz)

    def _told_rate(self, number: int, rate: int) -> Amounts | None:
        """What a subscription needs here, if that is something else than before."""
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
    """No client is called so."""
    return f"\0\0{child}"


@lru_cache(maxsize=1_024)
def _parsed(channel: str, where: str) -> Filter:
    return Filter(channel, parse(where))
