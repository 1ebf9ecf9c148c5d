"""Subscriptions of a node's clients: the outcome of each, and its re-evaluation.

A client that subscribes again under the same key keeps its old reservation until the new one is
admitted; if that is refused, the old one stays.

Demand and paths are computed when a subscription is requested, and change later as publishers
advertise and leave and links come up and fail. Some time after a change all subscriptions are
re-evaluated in small batches; the delay combines changes and lets other nodes learn of them too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_poset import to_hz
from accord.core.admission.messages import FlowSpec, NodeVerdict, ReservationId
from accord.core.admission.options import Guarantee
from accord.core.admission.origin_reservations import OriginReservations
from accord.core.admission.reservation import (
    Path,
    ReservationDecision,
    ReservationState,
    SourcePath,
)
from accord.core.admission.resources import Amounts, Pool, Resource
from accord.core.admission.resources import client as client_pool

MAX_BATCH: Final = 32
PAUSE_US: Final = 10_000

T = TypeVar("T")
Which = tuple[str, Hashable]  # client and key


class ReevaluationQueue(Generic[T]):
    """Queue of items to re-evaluate, filled with all items `delay_us` after a change."""

    def __init__(self, delay_us: int) -> None:
        self._delay_us = delay_us
        self._now_us = 0
        self._has_changed = False
        self._due_us = -1  # below 0: nothing is pending
        self._remaining: deque[T] = deque()

    def schedule(self) -> None:
        self._has_changed = True

    def take(self, everyone: Callable[[], Iterable[T]], now_us: int) -> list[T]:
        """Return the next batch that is due."""
        self._now_us = now_us
        if self._due_us < 0 and self._has_changed:
            self._due_us = now_us + self._delay_us
        if self._due_us < 0 or now_us < self._due_us:
            return []
        if not self._remaining:
            self._has_changed = False
            self._remaining.extend(everyone())
        taken = [self._remaining.popleft() for _ in range(min(MAX_BATCH, len(self._remaining)))]
        self._due_us = now_us + PAUSE_US if self._remaining else -1
        return taken

    def next_due_us(self) -> int | None:
        if self._due_us >= 0:
            return self._due_us
        return self._now_us + self._delay_us if self._has_changed else None


class AdmissionRefusal(Struct, frozen=True):
    """Why a subscription was not admitted; shown to the client unchanged.

    `requested` and `free` are bytes of memory, events per second of CPU, bits per second of
    bandwidth.
    """

    node: str
    resource: Resource
    requested: float
    free: float
    of: str = ""  # the link or client whose bandwidth it is


class AdmissionOutcome(Struct, frozen=True, kw_only=True):
    """The decision on a client's subscription.

    `share` is the proportion of nodes on its paths that carry it. If not `is_binding`, it reports
    what would have been decided, and is not enforced.
    """

    client: str
    key: Hashable
    state: ReservationState
    share: float = 1.0
    refusals: tuple[AdmissionRefusal, ...] = ()
    is_binding: bool = True
    took_us: int = 0


class SubscriptionRequest:
    """A requested subscription; `outcome` is None until decided.

    Its decision goes to the callback `on_decision` if that is set, otherwise to
    `SubscriptionRequests.decisions`.
    """

    __slots__ = (
        "bandwidth",
        "client",
        "filter",
        "flow_spec",
        "guarantee",
        "key",
        "number",
        "on_decision",
        "outcome",
        "parent_hz",
        "previous",
        "requested_hz",
        "source_paths",
    )  # fmt: skip

    def __init__(
        self, client: str, key: Hashable, filter_: Filter, guarantee: Guarantee, flow_spec: FlowSpec
    ) -> None:
        self.client = client
        self.key = key
        self.filter = filter_
        self.guarantee = guarantee
        self.flow_spec = flow_spec
        self.requested_hz = 0.0
        self.parent_hz = 0.0  # reported by the parent, which alone knows remote publishers
        self.bandwidth: Pool = client_pool(client)
        self.on_decision: Callable[[ReservationDecision], None] | None = None
        self.source_paths: tuple[SourcePath, ...] | None = None  # None: the caller gave the paths
        self.number = 0  # of its reservation
        self.outcome: AdmissionOutcome | None = None
        self.previous: SubscriptionRequest | None = None  # the subscription it replaces

    def is_for(self, filter_: Filter, guarantee: Guarantee) -> bool:
        is_same = self.filter.identity == filter_.identity and self.guarantee == guarantee
        return is_same and self.outcome is not None


class SubscriptionRequests:
    """All subscriptions of a node; `decisions` are those not yet delivered."""

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
        """Return all computed paths of the subscriptions."""
        return {
            source_path.path
            for subscriptions in self._by_client.values()
            for subscription in subscriptions.values()
            for source_path in subscription.source_paths or ()
        }

    def get(self, client: str, key: Hashable) -> SubscriptionRequest | None:
        return self._by_client.get(client, {}).get(key)

    def by_number(self, number: int) -> SubscriptionRequest | None:
        return self._by_number.get(number)

    def verdicts(self, subscription: SubscriptionRequest) -> tuple[NodeVerdict, ...]:
        """Return the verdicts of all nodes if it is admitted and no round is under way."""
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
        """Request the reservation; returns the outcome if it is decided at once."""
        known = self.get(subscription.client, subscription.key)
        subscription.number = self._requests.request(
            subscription.flow_spec,
            paths,
            amounts,
            percent=subscription.guarantee.percent,
            now_us=now_us,
        )
        subscription.previous = known
        if known is not None and known.outcome is None:
            subscription.previous = known.previous
            self._end(known)
        self._by_client.setdefault(subscription.client, {})[subscription.key] = subscription
        self._by_number[subscription.number] = subscription
        self.collect()
        if self.decisions and self.decisions[-1] is subscription.outcome:
            return self.decisions.pop()
        return None

    def end(self, client: str, key: Hashable) -> bool:
        """Release the subscription's reservations; returns whether it existed."""
        subscription = self.get(client, key)
        if subscription is None:
            return False
        if subscription.previous is not None:
            self._end(subscription.previous)
        self._end(subscription)
        self._remove(subscription)
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
        """Request the reservation again; `paths` None keeps the paths."""
        self._requests.reroute(subscription.number, paths, now_us, amounts)
        self.collect()

    def collect(self) -> None:
        """Process the decisions made since the last call."""
        decisions, self._requests.decisions = self._requests.decisions, []
        for decision in decisions:
            subscription = self._by_number.get(decision.number)
            if subscription is not None:
                self._on_decision(subscription, decision)

    def check_invariants(self) -> None:
        numbers: list[int] = []
        for client, subscriptions in self._by_client.items():
            assert subscriptions
            for key, subscription in subscriptions.items():
                assert (subscription.client, subscription.key) == (client, key)
                numbers.append(subscription.number)
                if subscription.previous is not None:
                    assert subscription.outcome is None
                    assert subscription.previous.outcome is not None
                    assert subscription.previous.previous is None
                    numbers.append(subscription.previous.number)
        assert sorted(numbers) == sorted(self._by_number)
        assert all(self._requests.state(number) is not None for number in numbers)

    def _on_decision(
        self, subscription: SubscriptionRequest, decision: ReservationDecision
    ) -> None:
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
        self._resolve_replacement(subscription, decision)
        if subscription.on_decision is None:
            self.decisions.append(outcome)
        else:
            subscription.on_decision(decision)

    def _resolve_replacement(
        self, subscription: SubscriptionRequest, decision: ReservationDecision
    ) -> None:
        before, subscription.previous = subscription.previous, None
        if decision.state is ReservationState.ADMITTED:
            if before is not None:
                self._end(before)
            return
        del self._by_number[decision.number]
        current = self.get(subscription.client, subscription.key)
        if current is not subscription:
            # The subscription being replaced was withdrawn before its successor was decided.
            assert current is not None
            current.previous = None
        elif before is not None:
            self._by_client[subscription.client][subscription.key] = before
        else:
            self._remove(subscription)

    def _end(self, subscription: SubscriptionRequest) -> None:
        self._requests.end(subscription.number)
        self._by_number.pop(subscription.number, None)

    def _remove(self, subscription: SubscriptionRequest) -> None:
        subscriptions = self._by_client[subscription.client]
        del subscriptions[subscription.key]
        if not subscriptions:
            del self._by_client[subscription.client]


def _refusal(verdict: NodeVerdict) -> AdmissionRefusal:
    known = verdict.resource in list(Resource)
    resource = Resource(verdict.resource) if known else Resource.PATH
    asked, free = float(verdict.requested), float(verdict.free)
    if resource is Resource.CPU:
        asked, free = to_hz(verdict.requested), to_hz(verdict.free)
    return AdmissionRefusal(verdict.node, resource, asked, free, verdict.of)
