"""The subscriptions of a node's clients, and what was decided of each.

A client that subscribes again under the same key keeps what it had until the new subscription is
admitted; if that is refused, the old one stays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from msgspec import Struct

from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_poset import to_hz
from accord.core.admission.messages import FlowSpec, NodeVerdict, ReservationId
from accord.core.admission.options import Guarantee
from accord.core.admission.origin_reservations import OriginReservations
from accord.core.admission.reevaluation import Which
from accord.core.admission.reservation import ReservationDecision, ReservationState
from accord.core.admission.resources import Amounts, Pool, Resource
from accord.core.admission.resources import client as client_pool
from accord.core.admission.source_paths import Path, SourcePath


class AdmissionRefusal(Struct, frozen=True):
    """Why a subscription was not admitted: shown to the client as it is.

    Asked and free are bytes of memory, events per second of CPU, bits per second of bandwidth.
    """

    node: str
    resource: Resource
    asked: float
    free: float
    of: str = ""  # which link or client, of bandwidth


class AdmissionOutcome(Struct, frozen=True, kw_only=True):
    """What became of a client's subscription.

    `share` of the nodes on the way carry it. Where it `is_binding` the client gets what it says,
    otherwise it is only what would have been done.
    """

    client: str
    key: Hashable
    state: ReservationState
    share: float = 1.0
    refusals: tuple[AdmissionRefusal, ...] = ()
    is_binding: bool = True
    took_us: int = 0


class SubscriptionRequest:
    """One that was asked for; `outcome` None: not decided yet.

    What is decided of it is among `decisions` of all, unless there is somebody to `hear` it.
    """

    __slots__ = (
        "asked_hz", "bandwidth", "before", "client", "filter", "guarantee", "hear", "key", "number",
        "outcome", "told_hz", "ways", "wish",
    )  # fmt: skip

    def __init__(
        self, client: str, key: Hashable, filter_: Filter, guarantee: Guarantee, wish: FlowSpec
    ) -> None:
        self.client = client
        self.key = key
        self.filter = filter_
        self.guarantee = guarantee
        self.wish = wish
        self.asked_hz = 0.0
        self.told_hz = 0.0  # by a parent, where others are known to that only
        self.bandwidth: Pool = client_pool(client)
        self.hear: Callable[[ReservationDecision], None] | None = None
        self.ways: tuple[SourcePath, ...] | None = None  # None: not found, but given
        self.number = 0  # of its request
        self.outcome: AdmissionOutcome | None = None
        self.before: SubscriptionRequest | None = None  # what it is to replace

    def is_for(self, filter_: Filter, guarantee: Guarantee) -> bool:
        is_same = self.filter.identity == filter_.identity and self.guarantee == guarantee
        return is_same and self.outcome is not None


class SubscriptionRequests:
    """`decisions` are those that nobody has been told of yet."""

    def __init__(self, requests: OriginReservations, *, is_binding: bool) -> None:
        self.decisions: list[AdmissionOutcome] = []
        self.counts: dict[ReservationState, int] = dict.fromkeys(ReservationState, 0)
        self._requests = requests
        self._is_binding = is_binding
        self._by_client: dict[str, dict[Hashable, SubscriptionRequest]] = {}
        self._by_number: dict[int, SubscriptionRequest] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_client.values()))

    def all(self) -> Iterator[Which]:
        for client, subscriptions in self._by_client.items():
            for key in subscriptions:
                yield client, key

    def paths(self) -> set[Path]:
        """Those that were found for any of them."""
        return {
            way.path
            for subscriptions in self._by_client.values()
            for subscription in subscriptions.values()
            for way in subscription.ways or ()
        }

    def get(self, client: str, key: Hashable) -> SubscriptionRequest | None:
        return self._by_client.get(client, {}).get(key)

    def numbered(self, number: int) -> SubscriptionRequest | None:
        return self._by_number.get(number)

    def verdicts(self, subscription: SubscriptionRequest) -> tuple[NodeVerdict, ...]:
        """Of all nodes, if it is admitted and not being asked for anew."""
        return self._requests.verdicts(subscription.number)

    def id_of(self, subscription: SubscriptionRequest) -> ReservationId:
        return self._requests.id_of(subscription.number)

    def begin(
        self,
        subscription: SubscriptionRequest,
        paths: Sequence[Path],
        amounts: Amounts,
        now_us: int,
    ) -> AdmissionOutcome | None:
        """Ask for it; the decision, if it is there at once."""
        known = self.get(subscription.client, subscription.key)
        subscription.number = self._requests.request(
            subscription.wish,
            paths,
            amounts,
            percent=subscription.guarantee.percent,
            now_us=now_us,
        )
        subscription.before = known
        if known is not None and known.outcome is None:
            subscription.before = known.before
            self._end(known)
        self._by_client.setdefault(subscription.client, {})[subscription.key] = subscription
        self._by_number[subscription.number] = subscription
        self.collect()
        if self.decisions and self.decisions[-1] is subscription.outcome:
            return self.decisions.pop()
        return None

    def end(self, client: str, key: Hashable) -> bool:
        """Release what it held; whether there was such a subscription."""
        subscription = self.get(client, key)
        if subscription is None:
            return False
        if subscription.before is not None:
            self._end(subscription.before)
        self._end(subscription)
        self._forget(subscription)
        return True

    def end_all(self, client: str) -> None:
        for key in list(self._by_client.get(client, ())):
            self.end(client, key)

    def reroute(
        self,
        subscription: SubscriptionRequest,
        paths: Sequence[Path] | None,
        amounts: Amounts,
        now_us: int,
    ) -> None:
        """Ask for it anew; None: by the same paths."""
        self._requests.reroute(subscription.number, paths, now_us, amounts)
        self.collect()

    def collect(self) -> None:
        """See what has been decided."""
        decisions, self._requests.decisions = self._requests.decisions, []
        for decision in decisions:
            subscription = self._by_number.get(decision.number)
            if subscription is not None:
                self._decided(subscription, decision)

    def check_invariants(self) -> None:
        numbers: list[int] = []
        for client, subscriptions in self._by_client.items():
            assert subscriptions
            for key, subscription in subscriptions.items():
                assert (subscription.client, subscription.key) == (client, key)
                numbers.append(subscription.number)
                if subscription.before is not None:
                    assert subscription.outcome is None
                    assert subscription.before.outcome is not None
                    assert subscription.before.before is None
                    numbers.append(subscription.before.number)
        assert sorted(numbers) == sorted(self._by_number)
        assert all(self._requests.state(number) is not None for number in numbers)

    def _decided(self, subscription: SubscriptionRequest, decision: ReservationDecision) -> None:
        outcome = AdmissionOutcome(
            client=subscription.client,
            key=subscription.key,
            state=decision.state,
            share=decision.share,
            refusals=tuple(map(_refusal, decision.refusals)),
            is_binding=self._is_binding,
            took_us=decision.took_us,
        )
        self.counts[decision.state] += 1
        subscription.outcome = outcome
        self._settle(subscription, decision)
        if subscription.hear is None:
            self.decisions.append(outcome)
        else:
            subscription.hear(decision)

    def _settle(self, subscription: SubscriptionRequest, decision: ReservationDecision) -> None:
        before, subscription.before = subscription.before, None
        if decision.state is ReservationState.ADMITTED:
            if before is not None:
                self._end(before)
            return
        del self._by_number[decision.number]
        current = self.get(subscription.client, subscription.key)
        if current is not subscription:
            # What was to be replaced is withdrawn before its successor is decided.
            assert current is not None
            current.before = None
        elif before is not None:
            self._by_client[subscription.client][subscription.key] = before
        else:
            self._forget(subscription)

    def _end(self, subscription: SubscriptionRequest) -> None:
        self._requests.end(subscription.number)
        self._by_number.pop(subscription.number, None)

    def _forget(self, subscription: SubscriptionRequest) -> None:
        subscriptions = self._by_client[subscription.client]
        del subscriptions[subscription.key]
        if not subscriptions:
            del self._by_client[subscription.client]


def _refusal(verdict: NodeVerdict) -> AdmissionRefusal:
    known = verdict.resource in list(Resource)
    resource = Resource(verdict.resource) if known else Resource.PATH
    asked, free = float(verdict.asked), float(verdict.free)
    if resource is Resource.CPU:
        asked, free = to_hz(verdict.asked), to_hz(verdict.free)
    return AdmissionRefusal(verdict.node, resource, asked, free, verdict.of)
