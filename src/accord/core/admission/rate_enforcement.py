"""Publishers held to what they advertised: a token bucket for each advertisement.

An event counts against an advertisement of its publisher that it matches; where several do, against
the first that has something left. What is beyond the rate is limited, and the publisher told, at
most once in a while. Publishers that advertise nothing are free; those that do, and publish what
matches none of their advertisements, are told that, too.

Credit is kept in billionths of an event, so that nothing is lost by rounding whatever the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from accord.core.admission.errors import AdmissionError
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_poset import to_hz, to_units
from accord.core.model.channels import filter_selects
from accord.core.model.document import Document
from accord.core.model.values import Value

MAX_PUBLISHERS: Final = 1_000_000
MAX_OF_ONE: Final = 1_000
MAX_ODD_OF_ONE: Final = 8  # that are no boxes: to compare them costs everybody
_EVENT: Final = 1_000_000_000  # a thousandth of a hertz earns as much in microseconds
_BURST_S: Final = 1.0
_TELL_US: Final = 1_000_000


class Compliance(StrEnum):
    FREE = "free"  # its publisher advertises nothing
    WITHIN = "within"
    OVER = "over"  # more than was advertised
    UNADVERTISED = "unadvertised"  # matches no advertisement of its publisher


class RateViolation(Struct, frozen=True):
    """What a publisher is told; `events` were concerned since it was last told."""

    publisher: str
    advertisement: str  # empty: what was published matches none
    standing: Compliance
    rate_hz: float
    events: int


class TokenBucket:
    """At most `rate` events, in thousandths per second, and so many in one go as in `burst_s`.

    Two at least: who publishes just at its rate would lose whatever comes a little late.
    """

    __slots__ = ("_credit", "_now_us", "most", "rate")

    def __init__(self, rate: int, burst_s: float, now_us: int) -> None:
        self.rate = rate
        self.most = max(int(rate * burst_s * 1_000_000), 2 * _EVENT)
        self._credit = self.most
        self._now_us = now_us

    def follow(self, before: TokenBucket) -> None:
        """Begin as full as another was: to promise the same anew earns nothing."""
        before._earn(self._now_us)
        self._credit = before._credit * self.most // before.most

    def take(self, now_us: int) -> bool:
        """Whether one more event may go now."""
        self._earn(now_us)
        if not self.rate or self._credit < _EVENT:
            return False
        self._credit -= _EVENT
        return True

    def check_invariants(self) -> None:
        assert 0 <= self._credit <= self.most

    def _earn(self, now_us: int) -> None:
        if now_us > self._now_us:
            self._credit = min(self.most, self._credit + (now_us - self._now_us) * self.rate)
            self._now_us = now_us


class _Advertised:
    __slots__ = ("bucket", "filter", "is_plain", "limited", "name", "passed", "tell_us", "untold")

    def __init__(self, name: str, filter_: Filter, bucket: TokenBucket) -> None:
        self.name = name
        self.filter = filter_
        self.is_plain = str(filter_.predicate) == "TRUE"
        self.bucket = bucket
        self.passed = 0
        self.limited = 0
        self.untold = 0
        self.tell_us = 0

    def follow(self, before: _Advertised) -> None:
        """It is the same with another rate or filter."""
        self.bucket.follow(before.bucket)
        self.passed, self.limited = before.passed, before.limited
        self.untold, self.tell_us = before.untold, before.tell_us


class _Publisher:
    __slots__ = ("advertised", "tell_us", "unadvertised", "untold")

    def __init__(self) -> None:
        self.advertised: dict[str, _Advertised] = {}
        self.unadvertised = 0
        self.untold = 0
        self.tell_us = 0

    def odd(self, besides: str) -> int:
        """How many of its filters are no boxes, besides that of one advertisement."""
        return sum(
            name != besides and each.filter.box is None for name, each in self.advertised.items()
        )


class AdvertisementUsage(Struct, frozen=True):
    """What came of one advertisement so far."""

    publisher: str
    advertisement: str
    rate_hz: float
    passed: int
    limited: int


class RateEnforcement:
    """`told` collects what publishers are to be told."""

    def __init__(self, *, burst_s: float = _BURST_S, tell_us: int = _TELL_US) -> None:
        if not 0 <= burst_s <= 3_600:
            raise AdmissionError("burst_s", f"expected 0 to 3600, got {burst_s}")
        self.told: list[RateViolation] = []
        self._burst_s = burst_s
        self._tell_us = tell_us
        self._publishers: dict[str, _Publisher] = {}

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int
    ) -> None:
        """The same name again replaces it, and goes on with what was left of it."""
        rate = to_units(rate_hz)
        self.check(publisher, name, filter_)
        known = self._publishers.setdefault(publisher, _Publisher())
        advertised = _Advertised(name, filter_, TokenBucket(rate, self._burst_s, now_us))
        if (before := known.advertised.get(name)) is not None:
            advertised.follow(before)
        known.advertised[name] = advertised

    def check(self, publisher: str, name: str, filter_: Filter) -> None:
        """AdmissionError where a publisher may not advertise that as well."""
        known = self._publishers.get(publisher)
        if known is None:
            if len(self._publishers) >= MAX_PUBLISHERS:
                raise AdmissionError("publisher", f"expected at most {MAX_PUBLISHERS:,}")
            return
        if name not in known.advertised and len(known.advertised) >= MAX_OF_ONE:
            raise AdmissionError(
                "advertisement", f"expected at most {MAX_OF_ONE:,} of one publisher"
            )
        if filter_.box is None and known.odd(name) >= MAX_ODD_OF_ONE:
            raise AdmissionError(
                "predicate",
                "expected a conjunction of conditions on single attributes: "
                f"{MAX_ODD_OF_ONE} others are yours already",
            )

    def unadvertise(self, publisher: str, name: str) -> bool:
        known = self._publishers.get(publisher)
        if known is None or known.advertised.pop(name, None) is None:
            return False
        if not known.advertised:
            del self._publishers[publisher]
        return True

    def names(self, publisher: str) -> list[str]:
        """Of its advertisements."""
        known = self._publishers.get(publisher)
        return [] if known is None else list(known.advertised)

    def offer(
        self,
        publisher: str,
        channel: str,
        values: Mapping[str, Value],
        document: Document | None,
        now_us: int,
    ) -> Compliance:
        """One event; whoever publishes it is told what is wrong by `told`."""
        known = self._publishers.get(publisher)
        if known is None:
            return Compliance.FREE
        matched: _Advertised | None = None
        for each in known.advertised.values():
            if _is_of(each, channel, values, document):
                if each.bucket.take(now_us):
                    each.passed += 1
                    return Compliance.WITHIN
                matched = matched or each
        if matched is None:
            self._note_unadvertised(publisher, known, now_us)
            return Compliance.UNADVERTISED
        self._note_over(publisher, matched, now_us)
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

    def _note_over(self, publisher: str, each: _Advertised, now_us: int) -> None:
        each.limited += 1
        each.untold += 1
        if now_us >= each.tell_us:
            rate_hz = to_hz(each.bucket.rate)
            self.told.append(
                RateViolation(publisher, each.name, Compliance.OVER, rate_hz, each.untold)
            )
            each.untold = 0
            each.tell_us = now_us + self._tell_us

    def _note_unadvertised(self, publisher: str, known: _Publisher, now_us: int) -> None:
        known.unadvertised += 1
        known.untold += 1
        if now_us >= known.tell_us:
            told = RateViolation(publisher, "", Compliance.UNADVERTISED, 0.0, known.untold)
            self.told.append(told)
            known.untold = 0
            known.tell_us = now_us + self._tell_us


def _is_of(
    each: _Advertised, channel: str, values: Mapping[str, Value], document: Document | None
) -> bool:
    if each.filter.channel != channel and not filter_selects(each.filter.channel, channel):
        return False
    return each.is_plain or each.filter.predicate.evaluate(values, document) is True
