"""Checkers: each observes a run and reports violations of one property.

A finding has time, node and problem; a checker keeps only its first ones, and counts all. If a
share of failures is allowed (`least` below 1), the share is judged at the end of the run; otherwise
each failure is a finding at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Struct

from accord.sim.delivery_oracle import DeliveryOracle
from accord.sim.machine import Machine, Publication
from accord.sim.network import Network

MAX_KEPT: Final = 100


class Finding(Struct, frozen=True):
    """A violation; `node` is empty if it concerns the whole run."""

    at_us: int
    node: str
    checker: str
    problem: str

    def __str__(self) -> str:
        where = f" {self.node}" if self.node else ""
        return f"{self.at_us / 1_000_000:.6f} s{where}: {self.checker}: {self.problem}"


class CheckedRun(Protocol):
    """The view of a run that checkers have."""

    @property
    def network(self) -> Network: ...

    @property
    def tally(self) -> DeliveryOracle: ...

    def machines(self) -> Mapping[str, Machine]:
        """The running machines, by name."""


class Checker:
    """Base class with empty hooks."""

    name = "checker"

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.count = 0

    def find(self, at_us: int, node: str, problem: str) -> None:
        self.count += 1
        if len(self.findings) < MAX_KEPT:
            self.findings.append(Finding(at_us, node, self.name, problem))

    def published(self, publication: Publication, machine: Machine, now_us: int) -> None:
        """A client's node has accepted its publication."""

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        """A client received an event, for the first time or again."""

    def unwanted(self, number: int, subscriber: str, node: str, now_us: int) -> None:
        """A client received an event it had not subscribed to, or that was never published."""

    def missed(self, publication: Publication, subscriber: str, node: str, now_us: int) -> None:
        """A client did not receive an event it should have."""

    def sampled(self, world: CheckedRun, now_us: int) -> None:
        """A sampling interval has passed."""

    def ended(self, world: CheckedRun, now_us: int) -> None:
        """The run is over."""


class DeliveryChecker(Checker):
    """Everything wanted arrives, or at least some share on each channel, and nothing else does."""

    name = "delivery"

    def __init__(self, least: float = 1.0) -> None:
        super().__init__()
        self.least = least

    def missed(self, publication: Publication, subscriber: str, node: str, now_us: int) -> None:
        if self.least >= 1.0:
            what = f"{publication.publisher} {publication.channel} {publication.sequence}"
            self.find(now_us, node, f"{subscriber} did not get {what}")

    def unwanted(self, number: int, subscriber: str, node: str, now_us: int) -> None:
        self.find(now_us, node, f"{subscriber} got publication {number}, which it did not want")

    def ended(self, world: CheckedRun, now_us: int) -> None:
        if self.least >= 1.0:
            return
        for channel, tally in world.tally.channels.items():
            share = tally.delivered_share
            if share is not None and share < self.least:
                of = tally.delivered + tally.lost
                problem = f"{channel}: {tally.delivered} of {of} delivered ({share:.3%})"
                self.find(now_us, "", f"{problem}, expected {self.least:.3%}")


class LostChecker(Checker):
    """Reports no findings; counts what each subscriber received and missed."""

    name = "lost"

    def __init__(self) -> None:
        super().__init__()
        self.received: dict[str, int] = {}
        self.lost: dict[str, int] = {}

    def delivered(
        self,
        publication: Publication,  # noqa: ARG002
        subscriber: str,
        node: str,  # noqa: ARG002
        now_us: int,  # noqa: ARG002
        *,
        is_first: bool,
    ) -> None:
        self.received[subscriber] = self.received.get(subscriber, 0) + is_first

    def missed(
        self,
        publication: Publication,  # noqa: ARG002
        subscriber: str,
        node: str,  # noqa: ARG002
        now_us: int,  # noqa: ARG002
    ) -> None:
        self.lost[subscriber] = self.lost.get(subscriber, 0) + 1


class DuplicateChecker(Checker):
    """No client receives an event twice."""

    name = "duplicates"

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        if not is_first:
            what = f"{publication.publisher} {publication.channel} {publication.sequence}"
            self.find(now_us, node, f"{subscriber} got {what} again")


class OrderChecker(Checker):
    """Events of one publisher on one channel arrive in order."""

    name = "order"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str, str], int] = {}

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        if not is_first:
            return
        key = (subscriber, publication.publisher, publication.channel)
        last = self._last.get(key, 0)
        sequence = publication.sequence
        if sequence < last:
            what = f"{publication.publisher} {publication.channel} {sequence}"
            self.find(now_us, node, f"{subscriber} got {what} after {last}")
        else:
            self._last[key] = sequence


class DeadlineChecker(Checker):
    """Events arrive before their deadlines, at least some share on each channel."""

    name = "deadlines"

    def __init__(self, least: float = 0.99) -> None:
        super().__init__()
        self.least = least

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        late_us = now_us - publication.published_us - publication.deadline_us
        if self.least >= 1.0 and is_first and publication.deadline_us and late_us > 0:
            what = f"{publication.publisher} {publication.channel} {publication.sequence}"
            self.find(now_us, node, f"{subscriber} got {what} {late_us} µs late")

    def ended(self, world: CheckedRun, now_us: int) -> None:
        for channel, tally in world.tally.channels.items():
            share = tally.in_time_share
            if share is not None and share < self.least:
                of = tally.delivered + tally.lost
                problem = f"{channel}: {tally.in_time} of {of} in time ({share:.3%})"
                self.find(now_us, "", f"{problem}, expected {self.least:.3%}")


class Queueing(Protocol):
    """A machine that reports its queue lengths."""

    def queued_bytes(self) -> int: ...


class QueueChecker(Checker):
    """Queues are bounded: in front of each link, and in each machine that reports them."""

    name = "queues"

    def __init__(self, link_bytes: int, machine_bytes: int = 0) -> None:
        super().__init__()
        self.link_bytes = link_bytes
        self.machine_bytes = machine_bytes
        self._seen: dict[str, int] = {}

    def sampled(self, world: CheckedRun, now_us: int) -> None:
        for (source, _), link in world.network.links.items():
            self._compare(now_us, source, f"link {link.name}",
                          link.counts.most_queued_bytes, self.link_bytes)  # fmt: skip
        if not self.machine_bytes:
            return
        for name, machine in world.machines().items():
            ask = getattr(machine, "queued_bytes", None)
            if ask is not None:
                self._compare(now_us, name, "the node", int(ask()), self.machine_bytes)

    def ended(self, world: CheckedRun, now_us: int) -> None:
        self.sampled(world, now_us)

    def _compare(self, now_us: int, node: str, what: str, size: int, limit: int) -> None:
        # Once per new maximum: a queue that stays too long is one finding.
        if size > limit and size > self._seen.get(f"{node} {what}", 0):
            self._seen[f"{node} {what}"] = size
            self.find(now_us, node, f"{size} bytes queued at {what}, expected at most {limit}")
