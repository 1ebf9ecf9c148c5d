"""Cut-through: a single message is written to its receiver before it is counted.

A read with one clean frame, for one receiver that takes it unchanged and has nothing queued, needs
no outbox: there is nothing to order. The driver writes such a frame at once
(`Connection.cut_through`). Counts and ledger entries are those of a run, made later for many frames
together: the driver settles them in each turn and tick, before a connection ends, and before
counters or the ledger are read; the log settles itself when it is full.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Final

from accord.core.broker.broker_context import BrokerContext
from accord.core.broker.runs import ACK_BYTES, CutThrough
from accord.core.broker.session import MqttSession
from accord.core.monitoring.ledger import DELIVERED
from accord.core.router.fan_out import Selection

_MAX_PENDING: Final = 1_024
_PATH: Final = attrgetter("publisher", "selection", "qos")


class CutThroughLog:
    """Cut-through frames not yet counted."""

    def __init__(self, context: BrokerContext) -> None:
        self.pending: list[CutThrough] = []
        self._context = context

    def add(self, made: CutThrough) -> None:
        self.pending.append(made)
        if len(self.pending) >= _MAX_PENDING:
            self.flush()

    def flush(self) -> None:
        """Count and record them."""
        if self.pending:
            waiting = self.pending
            self.pending = []
            for path, several in groupby(waiting, _PATH):
                self._count(*path, list(several))

    def _count(
        self, publisher: MqttSession, selection: Selection, qos: int, several: list[CutThrough]
    ) -> None:
        counters = self._context.counters
        counts = selection.fan_out.channel_fan_out.counts
        copy = selection.copies[0]
        receiver = copy.receiver
        assert isinstance(receiver, MqttSession)
        importance = copy.grant.importance
        count = len(several)
        size = sum([len(each.frame) for each in several])
        counters.bytes_received += size
        counters.packets_received += count
        counters.publishes_received[qos] += count
        counters.publish_bytes_received += size
        counters.matched += count
        publisher.published += count
        selection.fan_out.published += count
        counts.published += count
        counts.published_bytes += size
        counts.count_delivered(count, size, 0)
        counters.bytes_sent += size + ACK_BYTES * qos * count
        counters.packets_sent += count * (1 + qos)
        counters.publishes_sent[qos] += count
        counters.publish_bytes_sent += size
        counters.count_wait(importance, 0, count)
        receiver.sent += count
        receiver.sent_bytes += size
        if receiver.flows is not None:
            receiver.flows.sent(importance, size)
        if self._context.ledger.is_on:
            self._record(several)

    def _record(self, several: list[CutThrough]) -> None:
        """One ledger entry for frames of the same millisecond with no other event between them."""
        start = 0
        for end, each in enumerate(several[1:], 1):
            first = several[start]
            if each.at_ms != first.at_ms or each.number != first.number + end - start:
                self._record_range(several[start:end])
                start = end
        self._record_range(several[start:])

    def _record_range(self, several: list[CutThrough]) -> None:
        first = several[0]
        copy = first.selection.copies[0]
        self._context.ledger.add(
            first.number,
            len(several),
            first.selection.fan_out.channel_fan_out.channel,
            first.publisher.name,
            copy.receiver.name,
            DELIVERED,
            first.at_ms,
            first.at_ms,
            first.at_ms,
            sum([len(each.frame) for each in several]),
            copy.grant.importance,
            copy.grant.policy,
            "",
            0,
        )
