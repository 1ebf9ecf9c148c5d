"""Delivery oracle: what ought to be delivered on each channel, and the outcome.

The simulation knows all subscriptions at all times, and so the expected receivers of each
publication: all subscribers whose subscription matched for at least `settle_us` before, the time
nodes have to propagate it, and a restarted node to learn it again. `timeout_us` after publishing,
or after the deadline, each expected delivery is judged: delivered, or else excused (the subscriber
left, or one of the two nodes crashed), unreachable (no path led there at publication), or lost.
Memory is bounded by the publications within that time.

Histogram of times with bounded memory: quantiles exact to one in a hundred.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from msgspec import Struct

from accord.core.model.channels import filter_selects
from accord.core.model.document import Document
from accord.core.predicates.predicate import Predicate, parse, parse_xpath
from accord.sim.machine import Publication, SimSubscription

_BITS: Final = 7  # significant bits of a value


class Histogram:
    __slots__ = ("_counts", "count", "least", "most", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total = 0
        self.least = 0
        self.most = 0

    def add(self, value: int) -> None:
        assert value >= 0
        shift = max(value.bit_length() - _BITS, 0)
        bucket = value >> shift << shift
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.least = value if not self.count else min(value, self.least)
        self.most = max(value, self.most)
        self.count += 1
        self.total += value

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> int | None:
        """The value that this share does not exceed; None if empty."""
        if not self.count:
            return None
        missing = share * self.count
        for bucket in sorted(self._counts):
            missing -= self._counts[bucket]
            if missing <= 0:
                width = 1 << max(bucket.bit_length() - _BITS, 0)
                return min(max(bucket + width // 2, self.least), self.most)
        return self.most


class ChannelTally(Struct, kw_only=True):
    """Counts of one channel; `expected` counts pairs of publication and subscriber."""

    published: int = 0
    wanted: int = 0
    delivered: int = 0  # of those wanted, in time or not
    in_time: int = 0
    lost: int = 0
    excused: int = 0
    unreachable: int = 0
    duplicates: int = 0
    latency_us: Histogram

    @property
    def in_time_share(self) -> float | None:
        """Share of all that could have been delivered."""
        return _share(self.in_time, self.in_time + self.late + self.lost)

    @property
    def delivered_share(self) -> float | None:
        return _share(self.delivered, self.delivered + self.lost)

    @property
    def late(self) -> int:
        return self.delivered - self.in_time


class ReachabilityLog(Protocol):
    """What the oracle needs to know of the simulation."""

    def has_run_since(self, node: str, since_us: int) -> bool: ...

    def is_reachable(self, node: str, other: str) -> bool: ...


class ActiveSubscription:
    """A subscription in effect since some time."""

    __slots__ = ("predicate", "since_us", "subscription", "xpath")

    def __init__(self, subscription: SimSubscription, since_us: int) -> None:
        self.subscription = subscription
        self.since_us = since_us
        self.predicate: Predicate | None = parse(subscription.where) if subscription.where else None
        self.xpath: Predicate | None = (
            parse_xpath(subscription.xpath) if subscription.xpath else None
        )

    def selects(self, publication: Publication) -> bool:
        if not filter_selects(self.subscription.filter, publication.channel):
            return False
        values = publication.attributes
        if self.predicate is not None and self.predicate.evaluate(values) is not True:
            return False
        if self.xpath is None:
            return True
        metadata = values.get("metadata")
        if not isinstance(metadata, str):
            return False
        return self.xpath.evaluate(values, Document(metadata.encode())) is True


class PendingPublication(Struct):
    """A publication not judged yet, with its expected and actual receivers."""

    publication: Publication
    until_us: int
    expected: dict[str, bool]  # whether a path led there
    received: dict[str, int]


# (publication, subscriber, its node)
Missed = Callable[[Publication, str, str], None]


class DeliveryOracle:
    def __init__(self, places: ReachabilityLog, *, settle_us: int, timeout_us: int) -> None:
        self.channels: dict[str, ChannelTally] = {}
        self.unpublished = 0  # because their node was down
        self.overdue = 0  # delivered after they were counted as lost
        self.unknown = 0  # deliveries of unknown publications
        self._reachability = places
        self._settle_us = settle_us
        self._timeout_us = timeout_us
        self._active: dict[tuple[str, str], ActiveSubscription] = {}
        self._by_channel: dict[str, list[ActiveSubscription]] = {}
        self._pending: dict[int, PendingPublication] = {}
        self._queue: deque[PendingPublication] = deque()
        self._last = 0  # number of the last publication
        self._former: deque[tuple[int, ActiveSubscription]] = deque()  # until when, and which

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def subscribe(self, subscription: SimSubscription, now_us: int) -> None:
        self._active[subscription.subscriber, subscription.filter] = ActiveSubscription(
            subscription, now_us
        )
        self._by_channel.clear()

    def unsubscribe(self, subscription: SimSubscription, now_us: int) -> None:
        former = self._active.pop((subscription.subscriber, subscription.filter), None)
        if former is not None:
            self._former.append((now_us, former))
            self._by_channel.clear()

    def publish(self, publication: Publication, now_us: int) -> list[str]:
        """Record a publication; returns its expected receivers."""
        tally = self._channel(publication.channel)
        tally.published += 1
        wanted: dict[str, bool] = {}
        settled_us = now_us - self._settle_us
        if self._reachability.has_run_since(publication.node, settled_us):
            for active in self._selecting(publication.channel):
                if active.since_us <= settled_us and active.selects(publication):
                    is_reachable = self._reachability.is_reachable(
                        publication.node, active.subscription.node
                    )
                    wanted[active.subscription.subscriber] = is_reachable
        tally.wanted += len(wanted)
        until_us = now_us + max(self._timeout_us, publication.deadline_us)
        known = PendingPublication(publication, until_us, wanted, {})
        self._last = publication.number
        self._pending[publication.number] = known
        self._queue.append(known)
        return list(wanted)

    def deliver(
        self, number: int, subscriber: str, now_us: int
    ) -> tuple[Publication | None, bool, bool]:
        """Return the publication, whether it is delivered first here, and whether it was wanted."""
        known = self._pending.get(number)
        if known is None:
            is_overdue = 0 < number <= self._last
            self.overdue += is_overdue
            self.unknown += not is_overdue
            return None, False, is_overdue
        publication = known.publication
        tally = self._channel(publication.channel)
        is_first = subscriber not in known.received
        if not is_first:
            tally.duplicates += 1
            return publication, False, True
        known.received[subscriber] = now_us
        if subscriber not in known.expected:
            return publication, True, self._may_receive(subscriber, publication)
        latency_us = now_us - publication.published_us
        tally.latency_us.add(latency_us)
        tally.delivered += 1
        if not publication.deadline_us or latency_us <= publication.deadline_us:
            tally.in_time += 1
        return publication, True, True

    def judge(self, now_us: int, missed: Missed, *, is_last: bool = False) -> None:
        """Judge publications whose time is over; at the end of the run, all of them."""
        waiting = self._queue
        while waiting and (waiting[0].until_us <= now_us or is_last):
            known = waiting.popleft()
            del self._pending[known.publication.number]
            if known.until_us > now_us:
                self._excuse(known)
            else:
                self._close(known, missed)
        while self._former and self._former[0][0] + self._timeout_us <= now_us:
            self._former.popleft()

    def _excuse(self, known: PendingPublication) -> None:
        tally = self._channel(known.publication.channel)
        tally.excused += sum(subscriber not in known.received for subscriber in known.expected)

    def _close(self, known: PendingPublication, missed: Missed) -> None:
        publication = known.publication
        tally = self._channel(publication.channel)
        for subscriber, is_reachable in known.expected.items():
            if subscriber in known.received:
                continue
            node = self._node_since(subscriber, publication)
            if node is None:
                tally.excused += 1
            elif not is_reachable:
                tally.unreachable += 1
            else:
                tally.lost += 1
                missed(publication, subscriber, node)

    def _node_since(self, subscriber: str, publication: Publication) -> str | None:
        """The subscriber's node, if nothing has excused it since the publication."""
        since_us = publication.published_us
        if not self._reachability.has_run_since(publication.node, since_us):
            return None
        for active in self._selecting(publication.channel):
            if active.subscription.subscriber == subscriber and active.since_us <= since_us:
                node = active.subscription.node
                return node if self._reachability.has_run_since(node, since_us) else None
        return None

    def _may_receive(self, subscriber: str, publication: Publication) -> bool:
        """Whether it has a matching subscription, or still had one at publication."""
        return any(
            active.subscription.subscriber == subscriber and active.selects(publication)
            for active in self._selecting(publication.channel)
        ) or any(
            ended_us >= publication.published_us
            and active.subscription.subscriber == subscriber
            and active.selects(publication)
            for ended_us, active in self._former
        )

    def _selecting(self, channel: str) -> list[ActiveSubscription]:
        found = self._by_channel.get(channel)
        if found is None:
            found = self._by_channel[channel] = list(self._find(channel))
        return found

    def _find(self, channel: str) -> Iterator[ActiveSubscription]:
        for active in self._active.values():
            if filter_selects(active.subscription.filter, channel):
                yield active

    def _channel(self, name: str) -> ChannelTally:
        found = self.channels.get(name)
        if found is None:
            found = self.channels[name] = ChannelTally(latency_us=Histogram())
        return found


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
