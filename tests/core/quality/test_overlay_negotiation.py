"""Negotiations over the real overlay; whole nodes with faults are in `tests/sim`."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from accord.core.channels.channels import Channels
from accord.core.overlay.liveness import Pong
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TemplateMessage
from accord.core.overlay.tier_links import TierLink, TierLinks
from accord.core.quality.expectations import Expectation, PropertyRequirement
from accord.core.quality.matching import MatchState, UnmetReason
from accord.core.quality.measurements import Measurement
from accord.core.quality.messages import (
    AdaptationDecision,
    Advice,
    ForwardedProfile,
    NegotiationChange,
    NegotiationDelta,
    StateChanged,
)
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.overlay_negotiation import SERVICE, OverlayNegotiation, TierNegotiation
from accord.core.quality.profiles import Capability, Profile

MS = 1_000
S = 1_000_000


class Nodes:
    """Nodes in a row; each message takes 10 ms."""

    def __init__(self, *names: str) -> None:
        self.now_us = 0
        self.channels: dict[str, Channels] = {}
        self.exchanges: dict[str, OverlayNegotiation] = {}
        self._flying: list[tuple[int, str, str, object]] = []
        self.silent: set[str] = set()
        for name in names:
            self.start(name, 1)
        for one, other in pairwise(names):
            self.join(one, other)

    def start(self, name: str, incarnation: int) -> None:
        overlay = Overlay(name, incarnation, OverlayOptions(), lambda: 0.5, lambda *_: None)
        channels = self.channels[name] = Channels(overlay)
        quality = Negotiation(name, incarnation=incarnation)
        self.exchanges[name] = channels.serve(
            SERVICE, lambda context: OverlayNegotiation(context, quality)
        )

    def join(self, one: str, other: str) -> None:
        self.channels[one].overlay.link_up(other, self.now_us)
        self.channels[other].overlay.link_up(one, self.now_us)

    def run(self, seconds: float) -> None:
        until_us = self.now_us + round(seconds * S)
        while self.now_us < until_us:
            self.now_us += 5 * MS
            for name, channels in self.channels.items():
                if channels.next_due_us() <= self.now_us:
                    channels.advance(self.now_us)
                self._send(name)
            arrived = [each for each in self._flying if each[0] <= self.now_us]
            self._flying = [each for each in self._flying if each[0] > self.now_us]
            for _, source, target, message in arrived:
                self.channels[target].overlay.receive(source, message, self.now_us)  # type: ignore[arg-type]
                self._send(target)
        for channels in self.channels.values():
            channels.check_invariants()

    def _send(self, name: str) -> None:
        overlay = self.channels[name].overlay
        for neighbour, message in overlay.sends:
            if not (isinstance(message, Pong) and neighbour in self.silent):
                self._flying.append((self.now_us + 10 * MS, name, neighbour, message))
        overlay.sends.clear()

    def quality(self, name: str) -> Negotiation:
        return self.exchanges[name].negotiation


def sensor(now: float) -> Profile:
    rate = Capability("rate", 1.0, 60.0, now)
    return Profile(publisher="P", channel="e", capabilities=(rate,))


def expectation(*requirements: PropertyRequirement) -> Expectation:
    return Expectation(id="X", subscription="s", channel="e", requirements=requirements)


def of_a_line() -> Nodes:
    """A publisher at a, a subscription at c that is told of."""
    nodes = Nodes("a", "b", "c")
    nodes.run(3)
    profile = nodes.quality("a").register_profile(sensor(2.0), now_us=nodes.now_us)
    nodes.exchanges["a"].dispatch(profile)
    often = expectation(PropertyRequirement("rate", 5.0))
    nodes.exchanges["c"].dispatch(nodes.quality("c").register(often, now_us=nodes.now_us))
    nodes.run(1)
    return nodes


def test_advice_reaches_a_publisher_behind_other_nodes() -> None:
    nodes = of_a_line()
    assert nodes.exchanges["c"].take_notices() == [
        StateChanged("s", "X", MatchState.UNSATISFIED, reasons=(UnmetReason("X", "rate", None),)),
        StateChanged(
            "s",
            "X",
            MatchState.SATISFIABLE,
            AdaptationDecision.ADAPTING,
            (UnmetReason("X", "rate", 2.0),),
        ),
    ]
    assert nodes.exchanges["c"].notices == []
    assert Advice("P", "e", "rate", 5.0) in nodes.exchanges["a"].notices
    update = nodes.quality("a").update_profile(sensor(5.0), now_us=nodes.now_us)
    nodes.exchanges["a"].dispatch(update)
    nodes.run(1)
    assert nodes.exchanges["c"].take_notices() == [StateChanged("s", "X", MatchState.SATISFIED)]


def test_links_add_their_latency_in_the_direction_of_events() -> None:
    nodes = Nodes("a", "b", "c")
    nodes.run(3)
    a, c = nodes.exchanges["a"], nodes.exchanges["c"]
    a.dispatch(a.negotiation.register_profile(sensor(2.0), now_us=nodes.now_us))
    at_home = Measurement(channel="e", property="latency", value=1.0)
    a.dispatch(a.negotiation.measure(at_home, now_us=nodes.now_us))
    soon = expectation(PropertyRequirement("latency", None, 100.0))
    c.dispatch(c.negotiation.register(soon, now_us=nodes.now_us))
    nodes.run(1)
    (copy,) = c.negotiation.skyline(("e", ("latency",)))
    group = c.negotiation.supersets.groups["e", ("latency",)]
    assert copy[1] == ("b", "a")
    found = group.offers(copy)["latency"].capability.current
    assert isinstance(found, float)
    assert 18 < found < 50, "twice 10 ms, as pings measure them in steps of 5"
    assert c.take_notices()[-1] == StateChanged("s", "X", MatchState.SATISFIED)


def test_what_is_behind_a_link_that_fails_is_gone_and_comes_back() -> None:
    nodes = of_a_line()
    nodes.exchanges["c"].take_notices()
    nodes.channels["b"].overlay.link_down("c", nodes.now_us)
    nodes.channels["c"].overlay.link_down("b", nodes.now_us)
    nodes.run(0.5)
    (told,) = nodes.exchanges["c"].take_notices()
    assert isinstance(told, StateChanged)
    assert told.state is MatchState.UNSATISFIED
    assert nodes.quality("a").usage("P", "e") == (0, 0.0), "nobody is there who relies on it"
    nodes.join("b", "c")
    nodes.run(3)
    told = nodes.exchanges["c"].take_notices()[-1]
    assert isinstance(told, StateChanged)
    assert told.state is MatchState.SATISFIABLE
    assert nodes.quality("a").usage("P", "e") == (1, 1.0)


def test_one_end_alone_may_think_that_a_link_failed() -> None:
    nodes = of_a_line()
    nodes.silent = {"c"}  # answers to its pings are lost, nothing else is
    nodes.run(8)
    assert nodes.quality("c").report("X").state is MatchState.UNSATISFIED
    nodes.silent = set()
    nodes.run(8)
    assert nodes.quality("c").report("X").state is MatchState.SATISFIABLE


def test_a_node_that_starts_anew_learns_everything_again() -> None:
    nodes = of_a_line()
    nodes.start("b", 2)
    nodes.join("a", "b")
    nodes.join("b", "c")
    nodes.run(12)
    assert nodes.quality("c").report("X").state is MatchState.SATISFIABLE
    assert nodes.quality("b").skyline(("e", ("rate",))) == [("a#1", ("a",))]


def test_rubbish_is_counted() -> None:
    nodes = of_a_line()
    b = nodes.exchanges["b"]
    for body in (b"", b"\xc1", b"\x93\x01\x02\x03"):
        nodes.channels["b"].overlay.receive("a", TemplateMessage(SERVICE, "", body), nodes.now_us)
    assert b.malformed == 3
    nodes.run(1)


def test_parents_that_change_their_roles_leave_no_gap() -> None:
    """Whichever of them comes first: what both have is there before and after, and so meanwhile."""
    tiers = TierLinks()
    exchange = TierNegotiation(Negotiation("x", is_leaf=True), tiers)
    near, far = TierLink(5 * MS, is_active=True), TierLink(3 * S, is_active=False)
    tiers.set("a", near)
    tiers.set("b", far)
    exchange.advance(0)
    wish = Expectation(
        id="X",
        subscription="s",
        channel="e",
        requirements=(
            PropertyRequirement("rate", 1.0),
            PropertyRequirement("latency", None, 100.0),
        ),
    )
    exchange.dispatch(exchange.negotiation.register(wish, now_us=0))
    latency = Capability("latency", 1.0, 1.0, 1.0)
    rate = Capability("rate", 1.0, 60.0, 5.0)
    for name in "ab":
        have = ForwardedProfile("e", ("latency", "rate"), "c#1", (name, "c"), (latency, rate))
        news = NegotiationDelta(1, 0, 1, (NegotiationChange(1, ("have",), have),))
        exchange.receive(name, msgspec.msgpack.encode(news), 0)
    assert exchange.negotiation.report("X").state is MatchState.SATISFIED
    exchange.take_notices()
    for now_us, (one, other) in enumerate([(far, near), (near, far)], start=1):
        tiers.set("a", one)
        tiers.set("b", other)
        exchange.advance(now_us)
        assert [each for each in exchange.take_notices() if isinstance(each, StateChanged)] == []
        assert exchange.negotiation.report("X").state is MatchState.SATISFIED
    exchange.check_invariants()
