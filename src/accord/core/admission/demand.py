"""Estimates the demand of a subscription: events per second and number of publishers.

There are three results. The paper's: rate and count of the filter if it is advertised, otherwise an
interval from the greatest of any filter that it covers to the smallest of any that covers it.
Bounds: if all publishers publish at their advertised maximum and keep to their filters, at least
the sum over the covered advertisements arrives, and at most the sum over the intersecting ones.
These always hold; the paper's maximum does not if an advertisement intersects a filter that covers
the subscription without being covered by it. Estimate: the measured rate, which nothing guarantees
to stay the same; what is reserved for it is the bound that the measurement seldom exceeds, with a
margin.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf

from msgspec import Struct

from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_index.tables import Sums
from accord.core.admission.filter_poset import FilterPoset, PosetLookup, to_hz
from accord.core.monitoring.measurement_registry import BOUND, MeasuredLookup, subject_of


class Basis(StrEnum):
    """Which of the results is reserved."""

    HIGHEST = "highest"  # an upper bound if publishers keep to their advertisements
    PAPER = "paper"
    ESTIMATE = "estimate"  # with a margin; the highest if nothing was measured


class Interval(Struct, frozen=True):
    low: float
    high: float  # infinite if unknown


class Measured(Struct, frozen=True):
    """Measured rate and size of matching events, if known; and a bound of the rate."""

    rate_hz: float | None = None
    event_bytes: float | None = None
    bound_hz: float | None = None

    @property
    def reserved_hz(self) -> float | None:
        """The rate to reserve."""
        return self.rate_hz if self.bound_hz is None else self.bound_hz


class RateDemand(Struct, frozen=True, kw_only=True):
    """Demand of a subscription; if `is_advertised`, the paper's interval is a single number.

    With `is_approximate` there were too many filters to compare, and lower bounds may be too low.
    """

    rate_hz: Interval
    count: Interval
    paper_rate_hz: Interval
    paper_count: Interval
    is_advertised: bool = False
    estimate_hz: float | None = None
    is_approximate: bool = False


class DemandEstimator:
    """Estimates demand from the advertisements that a node knows."""

    def __init__(self, poset: FilterPoset, *, margin: float = 1.25) -> None:
        self.poset = poset
        self._margin = margin  # factor on estimates

    def estimate(
        self,
        filter_: Filter,
        *,
        nodes: frozenset[str] | None = None,
        measured: Measured | None = None,
    ) -> RateDemand:
        """Return all three results; the bounds only count `nodes`, if given."""
        found = self.poset.look_up(filter_, nodes)
        paper = _paper(found)
        return RateDemand(
            rate_hz=Interval(to_hz(found.covered.rate), to_hz(found.intersecting.rate)),
            count=Interval(found.covered.count, found.intersecting.count),
            paper_rate_hz=Interval(_hz(paper[0]), _hz(paper[1])),
            paper_count=Interval(_count(paper[0]), _count(paper[1])),
            is_advertised=found.exact is not None,
            estimate_hz=None if measured is None else measured.rate_hz,
            is_approximate=found.is_approximate,
        )

    def requested_hz(
        self,
        filter_: Filter,
        basis: Basis = Basis.HIGHEST,
        *,
        nodes: frozenset[str] | None = None,
        measured: Measured | None = None,
    ) -> float:
        """Return the rate to reserve; never more than the upper bound."""
        highest_hz = to_hz(self.poset.sum_intersecting(filter_, nodes).rate)
        if basis is Basis.ESTIMATE and measured is not None and measured.reserved_hz is not None:
            return min(highest_hz, measured.reserved_hz * self._margin)
        if basis is Basis.PAPER:
            return min(highest_hz, _hz(_paper(self.poset.look_up(filter_))[1]))
        return highest_hz


def measured(known: MeasuredLookup, channel: str, where: str = "", xpath: str = "") -> Measured:
    """Return what the pipeline measured of a subscription; of its channel, without a predicate.

    The rates of channels are measured more often than those of predicates: the product of the
    channel's rate and the predicate's selectivity is used if both are known.
    """
    subject = subject_of(channel, where, xpath)
    rate_hz, size = _rate_and_size(known, "predicate", subject)
    channel_hz, channel_size = _rate_and_size(known, "channel", channel)
    share = known("predicate", subject, "selectivity") if where or xpath else 1.0
    if channel_hz is not None and share is not None:
        bound_hz = known("channel", channel, BOUND)
        bound_hz = None if bound_hz is None else bound_hz * share
        return Measured(channel_hz * share, size or channel_size, bound_hz)
    return Measured(rate_hz, size or channel_size, known("predicate", subject, BOUND))


def _rate_and_size(
    known: MeasuredLookup, kind: str, subject: str
) -> tuple[float | None, float | None]:
    """Events per second, and bytes per event."""
    rate_hz = known(kind, subject, "rate_hz")
    return rate_hz, _ratio(known(kind, subject, "bytes_per_s"), rate_hz)


def _paper(found: PosetLookup) -> tuple[Sums, Sums | None]:
    """Return the paper's minimum and maximum; None if no advertised filter covers it."""
    if found.exact is not None:
        return found.exact, found.exact
    return found.most_covered, found.least_covering


def _hz(sums: Sums | None) -> float:
    return inf if sums is None else to_hz(sums.rate)


def _count(sums: Sums | None) -> float:
    return inf if sums is None else sums.count


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
