"""The guarantees of templates, as checkers.

A restarted node has lost its state: what it receives twice is no finding, and order is checked
afresh from its restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from accord.core.channels.template import Template
from accord.sim.checkers import CheckedRun, Checker
from accord.sim.machine import Machine, Publication

_SAMPLES: Final = 1_000

# The members of a channel that a node knows of; None if it does not report them.
MembersOf = Callable[[Machine, str], tuple[str, ...] | None]


class UptimeLog(Protocol):
    def has_run_since(self, node: str, since_us: int) -> bool: ...


class IncarnationChecker(Checker):
    """Base of checkers that account for restarts of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.uptime: UptimeLog | None = None

    def has_run_since(self, node: str, since_us: int) -> bool:
        return self.uptime is None or self.uptime.has_run_since(node, since_us)


class NoDuplicatesChecker(IncarnationChecker):
    """No client receives an event twice."""

    name = "once"

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        if not is_first and self.has_run_since(node, publication.published_us):
            self.find(now_us, node, f"{subscriber} got {describe(publication)} again")


class CompletenessChecker(Checker):
    """Every member that stays receives everything from when its source knows of it.

    With `partition_us`, events are exempt that were published shortly before its node was cut off
    from the source's, while it was, or up to this long after: a template with one order can't admit
    it later, and for a while there are two orders. `members_of` gives the members a node knows of.
    """

    name = "all"

    def __init__(
        self,
        members_of: MembersOf = lambda *_: None,
        channels: tuple[str, ...] = (),
        *,
        partition_us: int | None = None,
    ) -> None:
        super().__init__()
        self.unknown = 0  # source did not know of the subscriber
        self.partitioned = 0  # missed because of a partition
        self._members_of = members_of
        self._channels = channels
        self._partition_us = partition_us
        self._parts: deque[tuple[int, dict[str, int]]] = deque(maxlen=_SAMPLES)
        self._known: dict[tuple[str, str], deque[tuple[int, tuple[str, ...]]]] = {}

    def sampled(self, world: CheckedRun, now_us: int) -> None:
        if self._partition_us is not None:
            network = world.network
            parts = {each: network.part(each) for each in network.by_source}
            if len({*parts.values()}) > 1:
                self._parts.append((now_us, parts))
        for name, machine in world.machines().items():
            for channel in self._channels:
                members = self._members_of(machine, channel)
                if members is not None:
                    known = self._known.setdefault((name, channel), deque(maxlen=_SAMPLES))
                    if not known or known[-1][1] != members:
                        known.append((now_us, members))

    def missed(self, publication: Publication, subscriber: str, node: str, now_us: int) -> None:
        if not self._was_known(publication, node):
            self.unknown += 1
        elif self._was_partitioned(publication, node):
            self.partitioned += 1
        else:
            self.find(now_us, node, f"{subscriber} did not get {describe(publication)}")

    def _was_known(self, publication: Publication, node: str) -> bool:
        """Whether the source's node knew it as a member, as of the sample before."""
        members: tuple[str, ...] | None = None
        for at_us, each in self._known.get((publication.node, publication.channel), ()):
            if at_us <= publication.published_us:
                members = each
        return members is None or node in members

    def _was_partitioned(self, publication: Publication, node: str) -> bool:
        since_us = publication.published_us - (self._partition_us or 0)
        return any(
            at_us >= since_us and parts[node] != parts[publication.node]
            for at_us, parts in self._parts
        )


class InOrderChecker(IncarnationChecker):
    """Events of one source arrive in order."""

    name = "in order"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str, str], tuple[int, int]] = {}  # number, and time of arrival

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        if not is_first:
            return
        key = (subscriber, publication.publisher, publication.channel)
        last, came_us = self._last.get(key, (0, 0))
        if publication.sequence < last and self.has_run_since(node, came_us):
            self.find(now_us, node, f"{subscriber} got {describe(publication)} after {last}")
        self._last[key] = (publication.sequence, now_us)


class SameOrderChecker(IncarnationChecker):
    """All members receive their events in one common order.

    Each member's consecutive events form pairs; all pairs together must be acyclic, otherwise no
    total order is consistent with them.
    """

    name = "same order"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        self._after: dict[int, dict[int, str]] = {}
        self._descriptions: dict[int, str] = {}

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        if not is_first:
            return
        number = publication.number
        self._descriptions[number] = describe(publication)
        self._after.setdefault(number, {})
        key = (subscriber, publication.channel)
        last, came_us = self._last.get(key, (0, 0))
        if last and self.has_run_since(node, came_us):
            self._after[last][number] = f"{subscriber} at {node}"
        self._last[key] = (number, now_us)

    def ended(self, world: CheckedRun, now_us: int) -> None:  # noqa: ARG002
        before = dict.fromkeys(self._after, 0)
        for ends in self._after.values():
            for each in ends:
                before[each] += 1
        free = [each for each, count in before.items() if not count]
        for each in free:  # grows during iteration
            for end in self._after[each]:
                before[end] -= 1
                if not before[end]:
                    free.append(end)
        if len(free) < len(before):
            done = dict.fromkeys(free, True)
            circle = [
                f"{self._descriptions[one]}, then {self._descriptions[other]} ({who})"
                for one, ends in self._after.items()
                for other, who in ends.items()
                if one not in done and other not in done
            ]
            self.find(now_us, "", f"no order fits all: {'; '.join(circle[:6])}")


class LeakChecker(Checker):
    """Templates retain no state at the end, if the run lasts long enough."""

    name = "left"

    def __init__(self, template_of: Callable[[Machine], Template | None], after_us: int) -> None:
        super().__init__()
        self._template_of = template_of
        self._after_us = after_us

    def ended(self, world: CheckedRun, now_us: int) -> None:
        if now_us < self._after_us:
            return
        for name, machine in world.machines().items():
            template = self._template_of(machine)
            for what, count in (template.retained_state() if template is not None else {}).items():
                if count:
                    self.find(now_us, name, f"{count} {what} left")


def describe(publication: Publication) -> str:
    at_s = publication.published_us / 1_000_000
    return f"{publication.publisher} {publication.sequence} of {at_s:.1f} s"
