"""Publishers held to their advertised rates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.admission.advertised import filter_of

from accord.core.admission import rate_enforcement as module
from accord.core.admission.rate_enforcement import (
    AdvertisementUsage,
    Compliance,
    RateEnforcement,
    RateViolation,
    TokenBucket,
)
from accord.core.model.errors import AdmissionError

S = 1_000_000


def offer(
    enforcement: RateEnforcement, now_us: int, *, price: int = 9, channel: str = "m"
) -> Compliance:
    return enforcement.police("ann", channel, {"price": price}, None, now_us)


def test_who_advertises_nothing_is_free() -> None:
    assert offer(RateEnforcement(), 0) is Compliance.FREE


def test_what_is_beyond_the_rate_is_limited_and_told_once_in_a_while() -> None:
    enforcement = RateEnforcement()
    enforcement.advertise("ann", "trades", filter_of("price > 5", "m"), 4, 0)
    standings = [offer(enforcement, 0) for _ in range(10)]
    assert standings == [Compliance.WITHIN] * 4 + [Compliance.OVER] * 6
    assert enforcement.violations == [RateViolation("ann", "trades", Compliance.OVER, 4, 1)]
    enforcement.violations.clear()
    assert offer(enforcement, S // 4) is Compliance.WITHIN
    assert offer(enforcement, S // 4) is Compliance.OVER
    assert enforcement.violations == []
    assert [offer(enforcement, 2 * S) for _ in range(5)] == [Compliance.WITHIN] * 4 + [
        Compliance.OVER
    ]
    assert enforcement.violations == [RateViolation("ann", "trades", Compliance.OVER, 4, 7)]
    assert enforcement.usage("ann") == [AdvertisementUsage("ann", "trades", 4, 9, 8)]
    enforcement.check_invariants()


def test_what_matches_no_advertisement_is_told_too() -> None:
    enforcement = RateEnforcement()
    enforcement.advertise("ann", "trades", filter_of("price > 5", "m/+"), 4, 0)
    assert offer(enforcement, 0, channel="m/1") is Compliance.WITHIN
    assert offer(enforcement, 0, channel="x") is Compliance.UNADVERTISED
    assert offer(enforcement, 0, channel="m/1", price=1) is Compliance.UNADVERTISED
    assert enforcement.violations == [RateViolation("ann", "", Compliance.UNADVERTISED, 0, 1)]


def test_an_event_counts_where_something_is_left() -> None:
    enforcement = RateEnforcement()
    enforcement.advertise("ann", "some", filter_of("price > 5", "m"), 2, 0)
    enforcement.advertise("ann", "all", filter_of("TRUE", "m"), 3, 0)
    standings = [offer(enforcement, 0) for _ in range(6)]
    assert standings == [Compliance.WITHIN] * 5 + [Compliance.OVER]
    assert enforcement.violations[0].advertisement == "some"


def test_advertisements_come_and_go() -> None:
    enforcement = RateEnforcement()
    enforcement.advertise("ann", "trades", filter_of("TRUE", "m"), 0, 0)
    assert offer(enforcement, 10 * S) is Compliance.OVER, "a rate of 0 is none"
    enforcement.advertise("ann", "trades", filter_of("TRUE", "m"), 1, 0)
    assert offer(enforcement, 10 * S) is Compliance.WITHIN
    assert enforcement.names("ann") == ["trades"]
    assert enforcement.unadvertise("ann", "trades")
    assert not enforcement.unadvertise("ann", "trades")
    assert offer(enforcement, 0) is Compliance.FREE
    enforcement.check_invariants()


def test_who_advertises_the_same_again_may_publish_no_more() -> None:
    enforcement = RateEnforcement()
    enforcement.advertise("ann", "trades", filter_of("TRUE", "m"), 4, 0)
    for _ in range(4):
        assert offer(enforcement, 0) is Compliance.WITHIN
    for rate_hz in (4, 0, 4, 400, 4):
        enforcement.advertise("ann", "trades", filter_of("TRUE", "m"), rate_hz, 0)
        assert offer(enforcement, 0) is Compliance.OVER
    assert enforcement.usage("ann") == [AdvertisementUsage("ann", "trades", 4, 4, 5)]
    assert len(enforcement.violations) == 1, "once a second, however often it is advertised"
    assert offer(enforcement, S // 4) is Compliance.WITHIN


def test_another_rate_begins_as_full_as_the_one_before() -> None:
    enforcement = RateEnforcement()
    enforcement.advertise("ann", "trades", filter_of("TRUE", "m"), 4, 0)
    assert [offer(enforcement, 0) for _ in range(2)] == [Compliance.WITHIN] * 2
    enforcement.advertise("ann", "trades", filter_of("TRUE", "m"), 10, 0)
    standings = [offer(enforcement, 0) for _ in range(6)]
    assert standings == [Compliance.WITHIN] * 5 + [Compliance.OVER]
    enforcement.check_invariants()


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OF_ONE", 1)
    monkeypatch.setattr(module, "MAX_PUBLISHERS", 1)
    enforcement = RateEnforcement()
    enforcement.advertise("ann", "1", filter_of("TRUE"), 1, 0)
    with pytest.raises(AdmissionError, match="at most 1 of one publisher"):
        enforcement.advertise("ann", "2", filter_of("TRUE"), 1, 0)
    with pytest.raises(AdmissionError, match="publisher: expected at most 1"):
        enforcement.advertise("bob", "1", filter_of("TRUE"), 1, 0)
    with pytest.raises(AdmissionError, match="burst_s: expected 0 to 3600"):
        RateEnforcement(burst_s=-1)


@given(
    st.integers(1, 10**7),
    st.sampled_from([0.0, 0.5, 1.0, 10.0]),
    st.lists(st.integers(0, S), max_size=60),
)
def test_never_more_than_the_rate_and_one_burst(
    rate: int, burst_s: float, waits_us: list[int]
) -> None:
    bucket = TokenBucket(rate, burst_s, 0)
    now_us, passed = 0, 0
    for wait_us in waits_us:
        now_us += wait_us
        passed += bucket.take(now_us)
        bucket.check_invariants()
        burst = max(rate * burst_s / 1_000, 2)
        assert passed <= burst + rate * now_us / 1e9 + 1e-6


def test_the_whole_rate_can_be_had() -> None:
    bucket = TokenBucket(333, 1.0, 0)
    assert bucket.take(0)
    assert bucket.take(0)
    passed = sum(bucket.take(now_us) for now_us in range(0, 1_000 * S, S // 10))
    assert passed == 332  # of 333 in 1,000 s the last would be due with their end


def test_filters_that_are_costly_to_compare_are_few() -> None:
    enforcement = RateEnforcement()
    for number in range(module.MAX_GENERAL_OF_ONE):
        odd = filter_of(f"x = {number} OR y = {number}")
        enforcement.advertise("p", str(number), odd, 1.0, 0)
    another = filter_of("x = 99 OR y = 99")
    with pytest.raises(AdmissionError, match="conjunction"):
        enforcement.advertise("p", "more", another, 1.0, 0)
    enforcement.advertise("p", "0", another, 1.0, 0)
    enforcement.advertise("p", "more", filter_of("x IN (1, 2)"), 1.0, 0)
    enforcement.advertise("q", "more", another, 1.0, 0)
