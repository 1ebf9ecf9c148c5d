"""Whatever neighbours say, a node believes what makes sense and stays consistent."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.quality.costs import ConstantCost, TableCost
from accord.core.quality.expectations import Expectation, PropertyRequirement
from accord.core.quality.messages import (
    ForwardedProfile,
    NegotiationAck,
    NegotiationChange,
    NegotiationDelta,
    NegotiationEntry,
    PropertyInterest,
    QualityMessage,
    QualityRejection,
    QualityRequest,
    SendToNeighbour,
)
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.profiles import Capability, Profile
from accord.core.quality.properties import Better, Property, QualityError

NODES = st.sampled_from(("n", "m", "k", ""))
PATHS = st.lists(NODES, max_size=4).map(tuple)
NAMES = st.lists(st.sampled_from(("rate", "latency", "x")), max_size=3).map(tuple)
VALUES = st.sampled_from((0.0, 5.0, 80.0, math.nan, math.inf, -1.0, "low"))
CHANNELS = st.sampled_from(("c", "+", "a/#/b", ""))
SOURCES = st.sampled_from(("n#1", "m#1", "", "x" * 300))
COSTS = st.sampled_from((ConstantCost(1.0), ConstantCost(math.nan), TableCost(())))
CAPABILITIES = st.builds(
    Capability, st.sampled_from(("rate", "latency", "x")), VALUES, VALUES, VALUES, COSTS
)
REQUIREMENTS = st.builds(
    PropertyRequirement, st.sampled_from(("rate", "x")), VALUES | st.none(), VALUES | st.none()
)
SAID: st.SearchStrategy[NegotiationEntry] = st.one_of(
    st.builds(PropertyInterest, CHANNELS, NAMES, st.integers(-1, 20), PATHS),
    st.builds(
        ForwardedProfile,
        CHANNELS,
        NAMES,
        SOURCES,
        PATHS,
        st.lists(CAPABILITIES, max_size=3).map(tuple),
    ),
    st.builds(
        QualityRequest,
        SOURCES,
        PATHS,
        st.lists(REQUIREMENTS, max_size=3).map(tuple),
        st.floats(-1, 9),
    ),
    st.builds(
        QualityRejection, NODES, SOURCES, PATHS, st.sampled_from(("rate", "x")), VALUES | st.none()
    ),
)
CHANGES = st.tuples(st.sampled_from("abc"), SAID | st.none())


def node() -> Negotiation:
    quality = Negotiation("n")
    quality.link_up("m", {"latency": 5.0}, now_us=0)
    quality.link_up("k", {}, now_us=0)
    rate = Capability("rate", 1.0, 60.0, 2.0)
    profile = Profile(publisher="P", channel="c", capabilities=(rate,))
    quality.register_profile(profile, now_us=0)
    expectation = Expectation(
        id="X", subscription="s", channel="c", requirements=(PropertyRequirement("rate", 50.0),)
    )
    quality.register(expectation, now_us=0)
    return quality


@given(st.lists(st.tuples(st.sampled_from("mk"), st.lists(CHANGES, max_size=3)), max_size=8))
def test_rubbish_does_no_harm(
    said: list[tuple[str, list[tuple[str, NegotiationEntry | None]]]],
) -> None:
    quality = node()
    versions = {"m": 0, "k": 0}
    for number, (neighbour, changes) in enumerate(said):
        base = versions[neighbour]
        versions[neighbour] += 1 + len(changes)
        listed = tuple(
            NegotiationChange(base + 1 + at, (key,), value)
            for at, (key, value) in enumerate(changes)
        )
        news = NegotiationDelta(1, base, versions[neighbour], listed)
        quality.receive(neighbour, news, now_us=number)
        quality.check_invariants()
    for neighbour in versions:
        quality.link_down(neighbour, now_us=100)
    quality.check_invariants()
    assert [party.id for party in quality.engine.demands] == ["X"]
    assert all(not path for _, path in quality.skyline(("c", ("rate",))))


def test_messages_survive_the_wire() -> None:
    said: list[NegotiationEntry] = [
        PropertyInterest("c", ("rate",), 2, ("m", "k")),
        ForwardedProfile(
            "c", ("rate",), "m#1", ("m",), (Capability("rate", 1.0, 2.0, 1.0, ConstantCost(3.0)),)
        ),
        QualityRequest("m#1", ("m",), (PropertyRequirement("rate", 5.0, None),), 3.0),
        QualityRejection("n", "m#1", ("m",), "trust", "low"),
    ]
    changes = tuple(
        NegotiationChange(number, (str(number),), each) for number, each in enumerate(said)
    )
    messages: list[QualityMessage] = [NegotiationDelta(1, 0, 9, changes), NegotiationAck(1, 9)]
    decoder = msgspec.msgpack.Decoder(QualityMessage)
    for message in messages:
        assert decoder.decode(msgspec.msgpack.encode(message)) == message


def test_strangers_are_not_answered() -> None:
    quality = node()
    assert quality.receive("x", NegotiationDelta(1, 0, 1, ()), now_us=0) == []
    answer = quality.receive("m", NegotiationDelta(1, 0, 1, (), (1, 1)), now_us=0)
    assert SendToNeighbour("m", NegotiationAck(1, 1, (1, 1))) in answer


def test_a_link_has_finite_qualities() -> None:
    quality = node()
    with pytest.raises(QualityError, match="latency: expected a finite value of a link, got inf"):
        quality.link_up("j", {"latency": math.inf}, now_us=0)
    with pytest.raises(QualityError, match="'x': no such property"):
        quality.link_changed("m", {"x": 1.0}, now_us=0)


def test_what_was_heard_before_a_property_was_defined_counts_after() -> None:
    quality = node()
    colour = Property(name="colour", better=Better.HIGHER, levels=("grey", "full"))
    have = ForwardedProfile(
        "c", ("colour",), "m#1", ("m",), (Capability("colour", "grey", "full", "full"),)
    )
    want = PropertyInterest("c", ("colour",), 1, ("m",))
    changes = (NegotiationChange(1, ("w",), want), NegotiationChange(2, ("h",), have))
    quality.receive("m", NegotiationDelta(1, 0, 2, changes), now_us=0)
    assert quality.skyline(("c", ("colour",))) == []
    quality.define(colour, now_us=0)
    assert quality.skyline(("c", ("colour",))) == [("m#1", ("m",))]
    quality.check_invariants()
