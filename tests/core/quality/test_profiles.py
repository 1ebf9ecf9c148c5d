from __future__ import annotations

import pytest
from msgspec.structs import replace

from accord.core.quality.costs import LinearCost, TableCost
from accord.core.quality.local_profiles import LocalProfiles
from accord.core.quality.measurements import EVERYBODY, Measurement
from accord.core.quality.profiles import (
    Capability,
    Coupling,
    Profile,
    check_profile,
    score_capabilities,
    vector_of,
)
from accord.core.quality.properties import PropertyRegistry, QualityError

REGISTRY = PropertyRegistry()
RATE = Capability("rate", 1.0, 60.0, 2.0, LinearCost(0.0, 1.0))
P = Profile(publisher="P", channel="c", capabilities=(RATE,))


def test_offers_are_scores() -> None:
    fresh = Capability("freshness", 10.0, 90.0, 40.0, LinearCost(0.0, 2.0))
    offers = score_capabilities((RATE, fresh), REGISTRY)
    assert vector_of(offers, ("freshness", "rate")) == (-40.0, 2.0, -10.0, 60.0)
    assert vector_of(offers, ("rate", "trust")) is None
    assert offers["freshness"].cost(-40.0) == 80.0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"publisher": ""}, "publisher: expected 1 to 256"),
        ({"channel": "a/+"}, "channel: expected a channel without wildcards"),
        ({"capabilities": ()}, "expected 1 to 32 capabilities, got 0"),
        ({"capabilities": (RATE, RATE)}, "rate: expected once"),
        (
            {"capabilities": (replace(RATE, current=61.0),)},
            "profile of 'P', rate: expected lower ≤ current ≤ upper, got 61 in 1 to 60",
        ),
        ({"capabilities": (replace(RATE, lower=9.0, upper=1.0),)}, "expected lower ≤ current"),
        (
            {"capabilities": (Capability("latency", 1.0, 2.0, 1.0),)},
            "latency: is measured by nodes",
        ),
        ({"capabilities": (replace(RATE, cost=TableCost(())),)}, "rate: cost: expected 1 to 256"),
        ({"couplings": (Coupling("rate", "rate", 1.0),)}, "rate: expected a coupling of two"),
        ({"couplings": (Coupling("rate", "x", 1.0),)}, "'x': no such property"),
        (
            {"couplings": (Coupling("rate", "trust", float("inf")),)},
            "rate on trust: expected a finite number per unit",
        ),
    ],
)
def test_what_is_not_accepted(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(QualityError, match=problem):
        check_profile(replace(P, **changes), REGISTRY)


def test_sources_stand_for_publishers() -> None:
    sources = LocalProfiles("B", REGISTRY, limit=2)
    assert sources.register(P).subject.source == "B#1"
    with pytest.raises(QualityError, match="one is registered for channel 'c' already"):
        sources.register(P)
    sources.register(replace(P, channel="d"))
    with pytest.raises(QualityError, match="2 profiles are registered already"):
        sources.register(replace(P, publisher="Q"))
    assert sources.channels_of("P") == ["c", "d"]
    sources.revoke("P", "c")
    assert sources.register(P).subject.source == "B#3", "a number is never used again"
    with pytest.raises(QualityError, match="none is registered for channel 'e'"):
        sources.update(replace(P, channel="e"))
    sources.check_invariants()


def measured(name: str, value: float | str, publisher: str = EVERYBODY) -> Measurement:
    return Measurement(channel="c", property=name, value=value, publisher=publisher)


def test_profiles_are_completed_by_what_is_measured() -> None:
    sources = LocalProfiles("B", REGISTRY)
    sources.register(P)
    sources.register(replace(P, publisher="Q"))
    assert sources.measure(measured("latency", 20.0)) == ["B#1", "B#2"]
    assert sources.measure(measured("latency", 30.0, "Q")) == ["B#2"]
    for source, latency in (("B#1", 20.0), ("B#2", 30.0)):
        local = sources.refresh(source)
        assert local is not None
        assert local.offers["latency"].capability == Capability("latency", *[latency] * 3)  # type: ignore[arg-type]
        assert local.offers["rate"].capability == RATE
    sources.check_invariants()
    sources.revoke("P", "c")
    sources.revoke("Q", "c")
    assert sources.measure(measured("latency", 20.0)) == [], "nobody is there"
    assert sources.register(P).offers.keys() == {"rate"}
    sources.check_invariants()


@pytest.mark.parametrize(
    ("name", "before", "close", "different"),
    [("latency", 100.0, 110.0, 111.0), ("reliability", 99.0, 98.0, 97.0)],
)
def test_jitter_is_passed_over(name: str, before: float, close: float, different: float) -> None:
    sources = LocalProfiles("B", REGISTRY)
    sources.register(P)
    assert sources.measure(measured(name, before))
    assert not sources.measure(measured(name, close))
    assert sources.measure(measured(name, different))
    assert sources.measure(measured("order", "total"))
    assert not sources.measure(measured("order", "total"))
    assert sources.measure(measured("order", "causal"))


def test_the_best_to_be_had_is_never_worse_than_what_there_is() -> None:
    sources = LocalProfiles("B", REGISTRY)
    sources.register(P)
    better = Measurement(channel="c", property="latency", value=20.0, best=5.0)
    worse = Measurement(channel="c", property="reliability", value=90.0, best=80.0)
    sources.measure(better)
    sources.measure(worse)
    local = sources.refresh("B#1")
    assert local is not None
    assert local.offers["latency"].capability == Capability("latency", 5.0, 20.0, 20.0)
    assert local.offers["reliability"].capability == Capability("reliability", 90.0, 90.0, 90.0)
