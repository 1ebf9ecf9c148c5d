"""From what was sent and received to the figures of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from benchmarks.table2.trial import SECOND, Seen, Span

_TENTHS: Final = 10


@dataclass
class Figures:
    """Of one channel, over one or several trials.

    `offered` events were due in the measured time, of which `delivered` arrived before the end of
    the trial; `arrived` in the measured time, whenever they had been due. `latencies_s` are of all
    events that either is true of.
    """

    seconds: float = 0.0
    offered: int = 0
    delivered: int = 0
    arrived: int = 0
    arrived_bytes: int = 0
    largest: int = 0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def rate_hz(self) -> float:
        return self.arrived / self.seconds if self.seconds else 0.0

    @property
    def share(self) -> float | None:
        return self.delivered / self.offered if self.offered else None

    def latency_s(self, share: float) -> float | None:
        """The latency that this share of events did not exceed."""
        return percentile(self.latencies_s, share)

    def add(self, other: Figures) -> None:
        self.seconds += other.seconds
        self.offered += other.offered
        self.delivered += other.delivered
        self.arrived += other.arrived
        self.arrived_bytes += other.arrived_bytes
        self.largest = max(self.largest, other.largest)
        self.latencies_s += other.latencies_s


def percentile(values: Sequence[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def figures(seen: Seen, topic: str, span: Span | None = None) -> Figures:
    """Of all flows to `topic`, in the whole measured time or a part of it."""
    span = span or seen.span
    found = Figures(seconds=span.seconds)
    for number in _flows(seen, topic):
        sent = seen.sent[number]
        due = {n for n, due_ns in enumerate(sent.due_ns) if span.has(due_ns)}
        found.offered += len(due)
        found.largest = max([found.largest, *sent.sizes[:1_000]])
        arrivals = seen.received.flows.get(number)
        if arrivals is None:
            continue
        for place, arrived_ns in enumerate(arrivals.arrived_ns):
            is_here, is_due = span.has(arrived_ns), arrivals.numbers[place] in due
            if is_here:
                found.arrived += 1
                found.arrived_bytes += arrivals.sizes[place]
            if is_due:
                due.discard(arrivals.numbers[place])  # a second copy is no second delivery
                found.delivered += 1
            if is_here or is_due:
                found.latencies_s.append((arrived_ns - arrivals.due_ns[place]) / SECOND)
    return found


def bytes_per_s(seen: Seen, span: Span | None = None) -> float:
    """What came over the subscribers' connections in the measured time."""
    span = span or seen.span
    tenth = SECOND // _TENTHS
    first, last = ceil(span.from_ns / tenth), span.to_ns // tenth
    count = sum(seen.received.tenths.get(each, 0) for each in range(first, last))
    return count * _TENTHS / (last - first)


def _flows(seen: Seen, topic: str) -> Iterator[int]:
    return (number for number, each in seen.topics.items() if each == topic)
