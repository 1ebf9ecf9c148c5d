"""Counters and gauges of a running node.

They are plain integers and lists that hot code changes in place (`counters.packets_received += n`),
without an allocation per message. Gauges (`connections`, `sessions`, queue depths, …) are either
kept up to date by their owner or set just before a snapshot.

Counters by name are bounded in size, because names are external input.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.units import IMPORTANCES
from accord.core.monitoring.statistics import (
    WAIT_BUCKETS,
    JournalStatus,
    Publishes,
    Queue,
    Shed,
    ShedClient,
    Statistics,
    Traffic,
    Waits,
)

OTHER: Final = "other"


class BoundedCounts:
    """Counters by name; names beyond `limit` count as `other`."""

    def __init__(self, limit: int = 64) -> None:
        self.limit: int = limit
        self.counts: dict[str, int] = {}

    def add(self, name: str, count: int = 1) -> None:
        counts = self.counts
        if name not in counts and len(counts) >= self.limit:
            name = OTHER
        counts[name] = counts.get(name, 0) + count


class TopCounts:
    """Counters by client and cause, of which only the greatest are kept.

    Twice as many as wanted are held. When one more arrives, the smaller half is moved into `rest`:
    this takes constant time on average, and the total stays exact. An evicted counter that comes
    back starts from zero, so a count shown is never above the true one.
    """

    def __init__(self, limit: int = 100) -> None:
        self.limit: int = limit
        self.counts: dict[tuple[str, str], int] = {}
        self.rest: BoundedCounts = BoundedCounts()

    def add(self, client: str, cause: str, count: int = 1) -> None:
        key = (client, cause)
        before = self.counts.get(key)
        if before is not None:
            self.counts[key] = before + count
            return
        if len(self.counts) >= 2 * self.limit:
            for dropped in self._order()[self.limit :]:
                self.rest.add(dropped[1], self.counts.pop(dropped))
        self.counts[key] = count

    def top(self) -> list[tuple[str, str, int]]:
        """Return client, cause and count, greatest first; then the rest as client `other`."""
        order = self._order()
        rest = BoundedCounts()
        for cause, count in self.rest.counts.items():
            rest.add(cause, count)
        for key in order[self.limit :]:
            rest.add(key[1], self.counts[key])
        found = [(key[0], key[1], self.counts[key]) for key in order[: self.limit]]
        found += [(OTHER, cause, count) for cause, count in rest.counts.items()]
        return found

    def _order(self) -> list[tuple[str, str]]:
        """Keys by descending count; ties by name, so that a run replays exactly."""
        return [key for _, key in sorted((-count, key) for key, count in self.counts.items())]


class Counters:
    """Counters since `started_ms`, and gauges; `snapshot` freezes them."""

    def __init__(self, *, started_ms: int) -> None:
        self.started_ms: int = started_ms
        # Gauges.
        self.sessions: int = 0
        self.subscriptions: int = 0
        self.predicates: int = 0
        self.retained_messages: int = 0
        self.retained_bytes: int = 0
        self.queued_messages: list[int] = [0] * IMPORTANCES
        self.queued_bytes: list[int] = [0] * IMPORTANCES
        # Traffic; publishes by QoS.
        self.bytes_received: int = 0
        self.bytes_sent: int = 0
        self.packets_received: int = 0
        self.packets_sent: int = 0
        self.publishes_received: list[int] = [0, 0, 0]
        self.publishes_sent: list[int] = [0, 0, 0]
        self.publish_bytes_received: int = 0
        self.publish_bytes_sent: int = 0
        # Published messages with and without a matching subscription.
        self.matched: int = 0
        self.unmatched: int = 0
        # Changed through the methods below.
        self.connections: int = 0
        self.connections_peak: int = 0
        self.connects: int = 0
        self.connects_refused: BoundedCounts = BoundedCounts()
        self.disconnects: BoundedCounts = BoundedCounts()
        self.shed_causes: BoundedCounts = BoundedCounts()
        self.shed_clients: TopCounts = TopCounts()
        self.replaced: int = 0  # queued messages whose place newer values took
        self.wait_counts: list[list[int]] = [[0] * WAIT_BUCKETS for _ in range(IMPORTANCES)]
        self.waited_ms: list[int] = [0] * IMPORTANCES

    def count_connect(self) -> None:
        self.connects += 1
        self.connections += 1
        self.connections_peak = max(self.connections_peak, self.connections)

    def count_refused(self, cause: str) -> None:
        """Count a connection that was refused before it became a client's."""
        self.connects_refused.add(cause)

    def count_disconnect(self, reason: str) -> None:
        self.connections -= 1
        self.disconnects.add(reason)

    def count_shed(self, cause: str, client: str, count: int = 1) -> None:
        """Count `count` messages that will not reach `client`."""
        self.shed_causes.add(cause, count)
        self.shed_clients.add(client, cause, count)

    def count_wait(self, importance: int, wait_ms: int, count: int = 1) -> None:
        """Count `count` messages that left their queue after `wait_ms`."""
        if wait_ms <= 0:  # the usual case; also, wall clocks step back
            self.wait_counts[importance][0] += count
            return
        bucket = min(wait_ms.bit_length(), WAIT_BUCKETS - 1)
        self.wait_counts[importance][bucket] += count
        self.waited_ms[importance] += wait_ms * count

    def snapshot(self, *, now_ms: int, journal: JournalStatus | None = None) -> Statistics:
        return Statistics(
            taken_ms=now_ms,
            uptime_ms=max(now_ms - self.started_ms, 0),
            connections=self.connections,
            connections_peak=self.connections_peak,
            connects=self.connects,
            connects_refused=dict(self.connects_refused.counts),
            disconnects=dict(self.disconnects.counts),
            sessions=self.sessions,
            subscriptions=self.subscriptions,
            predicates=self.predicates,
            retained_messages=self.retained_messages,
            retained_bytes=self.retained_bytes,
            received=_traffic(
                self.bytes_received,
                self.packets_received,
                self.publishes_received,
                self.publish_bytes_received,
            ),
            sent=_traffic(
                self.bytes_sent, self.packets_sent, self.publishes_sent, self.publish_bytes_sent
            ),
            matched=self.matched,
            unmatched=self.unmatched,
            queues=tuple(self._queue(importance) for importance in range(IMPORTANCES)),
            shed=Shed(
                causes=dict(self.shed_causes.counts),
                clients=tuple(ShedClient(*each) for each in self.shed_clients.top()),
            ),
            replaced=self.replaced,
            journal=journal,
        )

    def _queue(self, importance: int) -> Queue:
        return Queue(
            importance=importance,
            messages=self.queued_messages[importance],
            bytes=self.queued_bytes[importance],
            waits=Waits(tuple(self.wait_counts[importance]), self.waited_ms[importance]),
        )


def _traffic(bytes_: int, packets: int, publishes: list[int], publish_bytes: int) -> Traffic:
    return Traffic(
        bytes=bytes_,
        packets=packets,
        publishes=Publishes(publishes[0], publishes[1], publishes[2]),
        publish_bytes=publish_bytes,
    )
