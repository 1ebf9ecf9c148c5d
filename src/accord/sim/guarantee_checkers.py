"""What templates promise, as checkers.

A node that was started again does not know what it had: what it gets twice is no finding, and what
it gets in which order is looked at anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from accord.core.channels.template import Template
from accord.sim.checkers import CheckedRun, Checker
from accord.sim.machine import Machine, Publication

_SAMPLES: Final = 1_000

# The nodes that are members of a channel, as a node knows it; None where it does not tell.
MembersOf = Callable[[Machine, str], tuple[str, ...] | None]


class UptimeLog(Protocol):
    def has_run_since(self, node: str, since_us: int) -> bool: ...


class IncarnationChecker(Checker):
    """One that asks whether nodes were started again in between."""

    def __init__(self) -> None:
        super().__init__()
        self.places: UptimeLog | None = None

    def has_run_since(self, node: str, since_us: int) -> bool:
        return self.places is None or self.places.has_run_since(node, since_us)


class NoDuplicatesChecker(IncarnationChecker):
    """Nobody gets anything twice."""

    name = "once"

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        if not is_first and self.has_run_since(node, publication.published_us):
            self.find(now_us, node, f"{subscriber} got {what(publication)} again")


class CompletenessChecker(Checker):
    """Every member that stays gets everything from when its source knows of it.

    With `parted_us` it need not get what was published shortly before its node was cut off from the
    source's, while it was, or so long after: who keeps to one order can't let it in later, and for
    a while there are two. `members_of` gives the nodes a node knows to be members.
    """

    name = "all"

    def __init__(
        self,
        members_of: MembersOf = lambda *_: None,
        channels: tuple[str, ...] = (),
        *,
        parted_us: int | None = None,
    ) -> None:
        super().__init__()
        self.unknown = 0  # not known to be wanted
        self.parted = 0  # missed by those that were cut off
        self._members_of = members_of
        self._channels = channels
        self._parted_us = parted_us
        self._parts: deque[tuple[int, dict[str, int]]] = deque(maxlen=_SAMPLES)
        self._known: dict[tuple[str, str], deque[tuple[int, tuple[str, ...]]]] = {}

    def sampled(self, world: CheckedRun, now_us: int) -> None:
        if self._parted_us is not None:
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
        elif self._was_parted(publication, node):
            self.parted += 1
        else:
            self.find(now_us, node, f"{subscriber} did not get {what(publication)}")

    def _was_known(self, publication: Publication, node: str) -> bool:
        """As a member, where it was published, by the time that was looked at before."""
        members: tuple[str, ...] | None = None
        for at_us, each in self._known.get((publication.node, publication.channel), ()):
            if at_us <= publication.published_us:
                members = each
        return members is None or node in members

    def _was_parted(self, publication: Publication, node: str) -> bool:
        since_us = publication.published_us - (self._parted_us or 0)
        return any(
            at_us >= since_us and parts[node] != parts[publication.node]
            for at_us, parts in self._parts
        )


class InOrderChecker(IncarnationChecker):
    """What one source publishes comes in that order."""

    name = "in order"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str, str], tuple[int, int]] = {}  # number, and when it came

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        if not is_first:
            return
        key = (subscriber, publication.publisher, publication.channel)
        last, came_us = self._last.get(key, (0, 0))
        if publication.sequence < last and self.has_run_since(node, came_us):
            self.find(now_us, node, f"{subscriber} got {what(publication)} after {last}")
        self._last[key] = (publication.sequence, now_us)


class SameOrderChecker(IncarnationChecker):
    """All members get what they get in the same order.

    Each got something right after something else; all these pairs together must not lead round in
    a circle, or else there is no order that all of them kept to.
    """

    name = "same order"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        self._after: dict[int, dict[int, str]] = {}
        self._what: dict[int, str] = {}

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        if not is_first:
            return
        number = publication.number
        self._what[number] = what(publication)
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
        for each in free:  # grows while it is walked over
            for end in self._after[each]:
                before[end] -= 1
                if not before[end]:
                    free.append(end)
        if len(free) < len(before):
            done = dict.fromkeys(free, True)
            circle = [
                f"{self._what[one]}, then {self._what[other]} ({who})"
                for one, ends in self._after.items()
                for other, who in ends.items()
                if one not in done and other not in done
            ]
            self.find(now_us, "", f"no order fits all: {'; '.join(circle[:6])}")


class LeakChecker(Checker):
    """In the end, if the run goes on for so long, templates have kept nothing."""

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
            for what, count in (template.left() if template is not None else {}).items():
                if count:
                    self.find(now_us, name, f"{count} {what} left")


def what(publication: Publication) -> str:
    at_s = publication.published_us / 1_000_000
    return f"{publication.publisher} {publication.sequence} of {at_s:.1f} s"
