"""The node's statistics as messages on `$SYS/…`.

Counters that mosquitto also has use its topics, so that its dashboards work; those specific to
Accord are under `$SYS/accord/…`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from accord.core.monitoring.statistics import JournalStatus, PipelineStatus, Queue, Statistics

_BROKER: Final = "$SYS/broker"
_ACCORD: Final = "$SYS/accord"


def system_topics(statistics: Statistics, *, version: str = "") -> list[tuple[str, bytes]]:
    """Topics and payloads, to be published as retained messages."""
    return [
        (topic, str(value).encode())
        for topic, value in (*_as_mosquitto(statistics, version), *_our_own(statistics))
    ] + [(f"{_ACCORD}/statistics", msgspec.json.encode(statistics))]


def _as_mosquitto(now: Statistics, version: str) -> Iterator[tuple[str, object]]:
    yield f"{_BROKER}/version", f"accord {version}".strip()
    yield f"{_BROKER}/uptime", f"{now.uptime_ms // 1_000} seconds"
    yield f"{_BROKER}/clients/connected", now.connections
    yield f"{_BROKER}/clients/disconnected", max(now.sessions - now.connections, 0)
    yield f"{_BROKER}/clients/total", max(now.sessions, now.connections)
    yield f"{_BROKER}/clients/maximum", now.connections_peak
    yield f"{_BROKER}/subscriptions/count", now.subscriptions
    yield f"{_BROKER}/retained messages/count", now.retained_messages
    yield f"{_BROKER}/store/messages/count", now.retained_messages + now.queued_messages
    yield f"{_BROKER}/store/messages/bytes", now.retained_bytes + now.queued_bytes
    for direction, traffic in (("received", now.received), ("sent", now.sent)):
        yield f"{_BROKER}/bytes/{direction}", traffic.bytes
        yield f"{_BROKER}/messages/{direction}", traffic.packets
        yield f"{_BROKER}/publish/messages/{direction}", traffic.publishes.total
        yield f"{_BROKER}/publish/bytes/{direction}", traffic.publish_bytes
    yield f"{_BROKER}/publish/messages/dropped", now.shed.total


def _our_own(now: Statistics) -> Iterator[tuple[str, object]]:
    yield f"{_ACCORD}/predicates/count", now.predicates
    yield f"{_ACCORD}/messages/matched", now.matched
    yield f"{_ACCORD}/messages/unmatched", now.unmatched
    yield f"{_ACCORD}/messages/replaced", now.replaced
    yield f"{_ACCORD}/connects/accepted", now.connects
    for name, counts in (
        ("connects/refused", now.connects_refused),
        ("disconnects", now.disconnects),
        ("shed", now.shed.causes),
    ):
        for cause, count in counts.items():
            yield f"{_ACCORD}/{name}/{_level(cause)}", count
    for queue in now.queues:
        yield from _queue(queue)
    if now.journal is not None:
        yield from _journal(now.journal)
    if now.pipeline is not None:
        yield from _pipeline(now.pipeline)


def _queue(queue: Queue) -> Iterator[tuple[str, object]]:
    prefix = f"{_ACCORD}/queue/{queue.importance}"
    yield f"{prefix}/messages", queue.messages
    yield f"{prefix}/bytes", queue.bytes
    yield f"{prefix}/wait_ms/p50", queue.waits.quantile_ms(0.5)
    yield f"{prefix}/wait_ms/p99", queue.waits.quantile_ms(0.99)


def _journal(journal: JournalStatus) -> Iterator[tuple[str, object]]:
    prefix = f"{_ACCORD}/journal"
    yield f"{prefix}/segments", journal.segments
    yield f"{prefix}/bytes", journal.bytes
    yield f"{prefix}/first_offset", journal.first_offset
    yield f"{prefix}/next_offset", journal.next_offset
    yield f"{prefix}/synced_offset", journal.synced_offset
    yield f"{prefix}/state", "ok" if journal.failure is None else journal.failure


def _pipeline(pipeline: PipelineStatus) -> Iterator[tuple[str, object]]:
    prefix = f"{_ACCORD}/pipeline"
    yield f"{prefix}/state", pipeline.state
    yield f"{prefix}/lag_ms", pipeline.lag_ms
    yield f"{prefix}/lag_records", pipeline.lag_records
    yield f"{prefix}/archived_offset", pipeline.archived_offset
    yield f"{prefix}/restarts", pipeline.restarts


def _level(name: str) -> str:
    """A cause as one topic level."""
    return "".join(c if c.isalnum() else "_" for c in name)
