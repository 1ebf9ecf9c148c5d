"""What a subscription needs: how many events per second, from how many publishers.

Three answers, side by side. The paper's: the rate and count of its filter if that is advertised,
else an interval, from the greatest of any filter that it covers to the smallest of any that covers
it. Then bounds: when all publishers publish what they promised at most, and keep to their filters,
at least the sum over the advertisements that it covers will come, and at most the sum over those
that it intersects. These always hold; the paper's maximum does not, where an advertisement
intersects a filter that covers the subscription and is not covered by it. And an estimate from what
was measured, of which nobody promised that it stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from math import inf

from msgspec import Struct

from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_index.tables import Sums
from accord.core.admission.filter_poset import FilterPoset, PosetLookup, to_hz
from accord.core.monitoring.measurement_registry import subject_of

# What was measured, by kind, subject and name: `LocalRegistry.get` at some time.
MeasuredLookup = Callable[[str, str, str], float | None]


class Basis(StrEnum):
    """Which of the answers is to be promised."""

    HIGHEST = "highest"  # nothing that was advertised can exceed it
    PAPER = "paper"
    ESTIMATE = "estimate"  # with some room; the highest where nothing was measured


class Interval(Struct, frozen=True):
    low: float
    high: float  # infinite where nothing is known


class Measured(Struct, frozen=True):
    """What events that match came to, where that is known."""

    rate_hz: float | None = None
    event_bytes: float | None = None


class RateDemand(Struct, frozen=True, kw_only=True):
    """`is_advertised`: then the paper's answer is one number, that of its filter.

    `is_loose` says that there was too much to compare, so that lower bounds may be too low.
    """

    rate_hz: Interval
    count: Interval
    paper_rate_hz: Interval
    paper_count: Interval
    is_advertised: bool = False
    estimate_hz: float | None = None
    is_loose: bool = False


class DemandEstimator:
    """Of one node, by the advertisements that it knows of."""

    def __init__(self, order: FilterPoset, *, room: float = 1.25) -> None:
        self.order = order
        self._room = room  # what an estimate is multiplied by

    def need(
        self,
        filter_: Filter,
        *,
        nodes: frozenset[str] | None = None,
        measured: Measured | None = None,
    ) -> RateDemand:
        """All that is known; bounds of what comes from `nodes`, if given."""
        found = self.order.look_up(filter_, nodes)
        paper = _paper(found)
        return RateDemand(
            rate_hz=Interval(to_hz(found.covered.rate), to_hz(found.intersecting.rate)),
            count=Interval(found.covered.count, found.intersecting.count),
            paper_rate_hz=Interval(_hz(paper[0]), _hz(paper[1])),
            paper_count=Interval(_count(paper[0]), _count(paper[1])),
            is_advertised=found.exact is not None,
            estimate_hz=None if measured is None else measured.rate_hz,
            is_loose=found.is_loose,
        )

    def asked_hz(
        self,
        filter_: Filter,
        basis: Basis = Basis.HIGHEST,
        *,
        nodes: frozenset[str] | None = None,
        measured: Measured | None = None,
    ) -> float:
        """What is to be promised; never more than the highest."""
        highest_hz = to_hz(self.order.sum_intersecting(filter_, nodes).rate)
        if basis is Basis.ESTIMATE and measured is not None and measured.rate_hz is not None:
            return min(highest_hz, measured.rate_hz * self._room)
        if basis is Basis.PAPER:
            return min(highest_hz, _hz(_paper(self.order.look_up(filter_))[1]))
        return highest_hz


def measured(known: MeasuredLookup, channel: str, where: str = "", xpath: str = "") -> Measured:
    """What the pipeline measured of a subscription, or of all its channel where it asks for all.

    The selectivity of its predicate is used where only that and the channel's rate are known.
    """
    subject = subject_of(channel, where, xpath)
    rate_hz = known("predicate", subject, "rate_hz")
    if rate_hz is not None:
        return Measured(rate_hz, _ratio(known("predicate", subject, "bytes_per_s"), rate_hz))
    channel_hz = known("channel", channel, "rate_hz")
    event_bytes = _ratio(known("channel", channel, "bytes_per_s"), channel_hz)
    share = known("predicate", subject, "selectivity") if where or xpath else 1.0
    is_known = channel_hz is not None and share is not None
    return Measured((channel_hz or 0.0) * (share or 0.0) if is_known else None, event_bytes)


def _paper(found: PosetLookup) -> tuple[Sums, Sums | None]:
    """The least and the most; None where nothing advertised covers it."""
    if found.exact is not None:
        return found.exact, found.exact
    return found.most_covered, found.least_covering


def _hz(sums: Sums | None) -> float:
    return inf if sums is None else to_hz(sums.rate)


def _count(sums: Sums | None) -> float:
    return inf if sums is None else sums.count


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
