"""One trial: a contender, its subscribers and its publishers, from start to end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Final

from benchmarks.table2.agents import agent
from benchmarks.table2.nodes import Node
from benchmarks.table2.plans import Audience, Flow, Received, Sent

SECOND: Final = 1_000_000_000
_HEAD_START_S: Final = 0.5


class StoppedError(Exception):
    """Somebody pressed Ctrl-C."""


@dataclass(frozen=True)
class Timing:
    """Load begins, is measured after `lead_s` for `measured_s`, and goes on for `tail_s`.

    What is due in the measured time has the tail to arrive in, under the same load.
    """

    lead_s: float
    measured_s: float
    tail_s: float

    @property
    def seconds(self) -> float:
        return self.lead_s + self.measured_s + self.tail_s


@dataclass(frozen=True)
class Span:
    from_ns: int
    to_ns: int

    @property
    def seconds(self) -> float:
        return (self.to_ns - self.from_ns) / SECOND

    def has(self, time_ns: int) -> bool:
        return self.from_ns <= time_ns < self.to_ns

    def part(self, from_s: float, to_s: float) -> Span:
        return Span(self.from_ns + round(from_s * SECOND), self.from_ns + round(to_s * SECOND))


@dataclass(frozen=True)
class Seen:
    """What was sent and received, by flow; `busy` is how many cores the broker used."""

    span: Span
    topics: dict[int, str]
    sent: dict[int, Sent]
    received: Received
    busy: float


@dataclass(frozen=True)
class Trial:
    """`changes` happen at their seconds after the start of the measured time."""

    audience: Audience
    flows: Sequence[Flow]
    timing: Timing
    near: Sequence[str] = ()
    far: Sequence[str] = ()
    changes: Sequence[tuple[float, Callable[[], None]]] = ()
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, node: Node) -> Seen:
        with ExitStack() as stack:
            subscriber = stack.enter_context(agent("subscriber", self.audience, self.far))
            publishers = {
                flow.number: stack.enter_context(agent("publisher", flow, self.near))
                for flow in self.flows
            }
            for each in (subscriber, *publishers.values()):
                each.wait_ready()
            start_ns = monotonic_ns() + round(_HEAD_START_S * SECOND)
            for each in publishers.values():
                each.tell(str(start_ns))
            span, busy = self._watch(node, start_ns)
            self._sleep(span.to_ns + round(self.timing.tail_s * SECOND))
            sent = {number: each.result(Sent) for number, each in publishers.items()}
            subscriber.tell("stop")
            received = subscriber.result(Received)
        topics = {flow.number: flow.topic for flow in self.flows}
        return Seen(span, topics, sent, received, busy)

    def _watch(self, node: Node, start_ns: int) -> tuple[Span, float]:
        from_ns = start_ns + round(self.timing.lead_s * SECOND)
        span = Span(from_ns, from_ns + round(self.timing.measured_s * SECOND))
        self._sleep(span.from_ns)
        before_s, before_ns = node.cpu_s(), monotonic_ns()
        for at_s, change in self.changes:
            self._sleep(span.from_ns + round(at_s * SECOND))
            change()
        self._sleep(span.to_ns)
        spent_s, passed_s = node.cpu_s() - before_s, (monotonic_ns() - before_ns) / SECOND
        return span, spent_s / passed_s

    def _sleep(self, until_ns: int) -> None:
        if self.stop.wait(max(0.0, (until_ns - monotonic_ns()) / SECOND)):
            raise StoppedError
