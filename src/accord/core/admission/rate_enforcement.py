"""Rate enforcement of publishers: one token bucket per advertisement.

An event counts against the first matching advertisement of its publisher whose bucket has a token.
Events beyond the rate are limited, and the publisher is notified at a limited rate. Publishers
without advertisements are not limited; those with some that publish events matching none are
notified as well.

Credit is counted in billionths of an event, so rounding loses nothing at any rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_poset import to_hz, to_units
from accord.core.model.channels import filter_selects
from accord.core.model.document import Document
from accord.core.model.errors import AdmissionError
from accord.core.model.values import Value

MAX_PUBLISHERS: Final = 1_000_000
MAX_OF_ONE: Final = 1_000
MAX_GENERAL_OF_ONE: Final = 8  # general filters: comparing them costs all publishers
_EVENT: Final = 1_000_000_000  # credit of one event; 1/1000 Hz earns 1 per microsecond
_BURST_S: Final = 1.0
_NOTIFY_INTERVAL_US: Final = 1_000_000


class Compliance(StrEnum):
    """How an event relates to the advertisements of its publisher."""

    FREE = "free"  # its publisher advertises nothing
    WITHIN = "within"
    OVER = "over"  # beyond the advertised rate
    UNADVERTISED = "unadvertised"  # matches no advertisement of its publisher


class RateViolation(Struct, frozen=True):
    """Notification to a publisher; `events` counts those since the previous one."""

    publisher: str
    advertisement: str  # empty: the events match none
    compliance: Compliance
    rate_hz: float
    events: int


class TokenBucket:
    """Token bucket of `rate` events per 1,000 seconds, and a burst of `burst_s` seconds.

    The burst is at least two events: a publisher exactly at its rate would otherwise lose every
    event that is a little late.
    """

    __slots__ = ("_credit", "_now_us", "capacity", "rate")

    def __init__(self, rate: int, burst_s: float, now_us: int) -> None:
        self.rate = rate
        self.capacity = max(int(rate * burst_s * 1_000_000), 2 * _EVENT)
        self._credit = self.capacity
        self._now_us = now_us

    def inherit(self, before: TokenBucket) -> None:
        """Start as full as another bucket: advertising the same again earns no credit."""
        before._earn(self._now_us)
        self._credit = before._credit * self.capacity // before.capacity

    def take(self, now_us: int) -> bool:
        """Take a token for one event; returns whether there was one."""
        self._earn(now_us)
        if not self.rate or self._credit < _EVENT:
            return False
        self._credit -= _EVENT
        return True

    def give_back(self) -> None:
        """Return a token that was taken."""
        self._credit = min(self._credit + _EVENT, self.capacity)

    def check_invariants(self) -> None:
        assert 0 <= self._credit <= self.capacity

    def _earn(self, now_us: int) -> None:
        if now_us > self._now_us:
            self._credit = min(self.capacity, self._credit + (now_us - self._now_us) * self.rate)
            self._now_us = now_us


class _Advertised:
    __slots__ = (
        "bucket",
        "filter",
        "is_plain",
        "limited",
        "name",
        "notify_us",
        "passed",
        "unreported",
    )

    def __init__(self, name: str, filter_: Filter, bucket: TokenBucket) -> None:
        self.name = name
        self.filter = filter_
        self.is_plain = str(filter_.predicate) == "TRUE"
        self.bucket = bucket
        self.passed = 0
        self.limited = 0
        self.unreported = 0
        self.notify_us = 0

    def inherit(self, before: _Advertised) -> None:
        """Take over credit and counters when only rate or filter have changed."""
        self.bucket.inherit(before.bucket)
        self.passed, self.limited = before.passed, before.limited
        self.unreported, self.notify_us = before.unreported, before.notify_us


class _Publisher:
    __slots__ = ("advertised", "notify_us", "unadvertised", "unreported")

    def __init__(self) -> None:
        self.advertised: dict[str, _Advertised] = {}
        self.unadvertised = 0
        self.unreported = 0
        self.notify_us = 0

    def general_filters(self, besides: str) -> int:
        """Return the number of general filters, not counting that of advertisement `besides`."""
        return sum(
            name != besides and each.filter.box is None for name, each in self.advertised.items()
        )


class AdvertisementUsage(Struct, frozen=True):
    """Counters of one advertisement."""

    publisher: str
    advertisement: str
    rate_hz: float
    passed: int
    limited: int


class RateEnforcement:
    """Token buckets of all local publishers; the driver drains `violations`."""

    def __init__(
        self, *, burst_s: float = _BURST_S, notify_interval_us: int = _NOTIFY_INTERVAL_US
    ) -> None:
        if not 0 <= burst_s <= 3_600:
            raise AdmissionError("burst_s", f"expected 0 to 3600, got {burst_s}")
        self.violations: list[RateViolation] = []
        self._burst_s = burst_s
        self._notify_interval_us = notify_interval_us
        self._publishers: dict[str, _Publisher] = {}

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int
    ) -> None:
        """Add an advertisement; the same name replaces it and keeps its credit."""
        rate = to_units(rate_hz)
        self.check(publisher, name, filter_)
        known = self._publishers.setdefault(publisher, _Publisher())
        advertised = _Advertised(name, filter_, TokenBucket(rate, self._burst_s, now_us))
        if (before := known.advertised.get(name)) is not None:
            advertised.inherit(before)
        known.advertised[name] = advertised

    def check(self, publisher: str, name: str, filter_: Filter) -> None:
        """Raise AdmissionError if the publisher may not add this advertisement."""
        known = self._publishers.get(publisher)
        if known is None:
            if len(self._publishers) >= MAX_PUBLISHERS:
                raise AdmissionError("publisher", f"expected at most {MAX_PUBLISHERS:,}")
            return
        if name not in known.advertised and len(known.advertised) >= MAX_OF_ONE:
            raise AdmissionError(
                "advertisement", f"expected at most {MAX_OF_ONE:,} of one publisher"
            )
        if filter_.box is None and known.general_filters(name) >= MAX_GENERAL_OF_ONE:
            raise AdmissionError(
                "predicate",
                "expected a conjunction of conditions on single attributes: "
                f"{MAX_GENERAL_OF_ONE} others are yours already",
            )

    def unadvertise(self, publisher: str, name: str) -> bool:
        known = self._publishers.get(publisher)
        if known is None or known.advertised.pop(name, None) is None:
            return False
        if not known.advertised:
            del self._publishers[publisher]
        return True

    def names(self, publisher: str) -> list[str]:
        """Return the names of a publisher's advertisements."""
        known = self._publishers.get(publisher)
        return [] if known is None else list(known.advertised)

    def police(
        self,
        publisher: str,
        channel: str,
        values: Mapping[str, Value],
        document: Document | None,
        now_us: int,
    ) -> Compliance:
        """Count one event; violations are added to `violations`."""
        known = self._publishers.get(publisher)
        if known is None:
            return Compliance.FREE
        matched: _Advertised | None = None
        for each in known.advertised.values():
            if _matches(each, channel, values, document):
                if each.bucket.take(now_us):
                    each.passed += 1
                    return Compliance.WITHIN
                matched = matched or each
        if matched is None:
            self._report_unadvertised(publisher, known, now_us)
            return Compliance.UNADVERTISED
        self._report_over(publisher, matched, now_us)
        return Compliance.OVER

    def usage(self, publisher: str) -> list[AdvertisementUsage]:
        known = self._publishers.get(publisher)
        return [
            AdvertisementUsage(
                publisher, each.name, to_hz(each.bucket.rate), each.passed, each.limited
            )
            for each in ([] if known is None else known.advertised.values())
        ]

    def check_invariants(self) -> None:
        assert len(self._publishers) <= MAX_PUBLISHERS
        for known in self._publishers.values():
            assert 0 < len(known.advertised) <= MAX_OF_ONE
            for each in known.advertised.values():
                each.bucket.check_invariants()

    def _report_over(self, publisher: str, each: _Advertised, now_us: int) -> None:
        each.limited += 1
        each.unreported += 1
        if now_us >= each.notify_us:
            rate_hz = to_hz(each.bucket.rate)
            self.violations.append(
                RateViolation(publisher, each.name, Compliance.OVER, rate_hz, each.unreported)
            )
            each.unreported = 0
            each.notify_us = now_us + self._notify_interval_us

    def _report_unadvertised(self, publisher: str, known: _Publisher, now_us: int) -> None:
        known.unadvertised += 1
        known.unreported += 1
        if now_us >= known.notify_us:
            violation = RateViolation(publisher, "", Compliance.UNADVERTISED, 0.0, known.unreported)
            self.violations.append(violation)
            known.unreported = 0
            known.notify_us = now_us + self._notify_interval_us


def _matches(
    each: _Advertised, channel: str, values: Mapping[str, Value], document: Document | None
) -> bool:
    if each.filter.channel != channel and not filter_selects(each.filter.channel, channel):
        return False
    return each.is_plain or each.filter.predicate.evaluate(values, document) is True
