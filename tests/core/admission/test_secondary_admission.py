"""A secondary node and its parents: what is asked of whom, and what is held where."""

from __future__ import annotations

from tests.core.admission.advertised import filter_of
from tests.core.admission.test_overlay_admission import MS, TRADES, Nodes, S

from accord.core.admission.admission import Admission
from accord.core.admission.options import AdmissionOptions, Guarantee, GuaranteeKind
from accord.core.admission.overlay_admission import SERVICE, OverlayAdmission
from accord.core.admission.reservation import ReservationState, ReservationTimers
from accord.core.admission.resources import CPU, Resource, client, link
from accord.core.admission.secondary_admission import SecondaryAdmission
from accord.core.admission.subscription_requests import AdmissionOutcome, AdmissionRefusal
from accord.core.channels.channels import Channels
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TemplateMessage
from accord.core.overlay.tier_links import TierLink, TierLinks

KBIT = 1_000


class Tiers(Nodes):
    """Parents `a` and `b`, and `c` behind them; the child `x` hears from `a` first."""

    def __init__(self) -> None:
        self.tiers: dict[str, TierLinks] = {}
        self.flying: list[tuple[str, str, TemplateMessage]] = []
        self.up = TierLinks()
        self.up.send = lambda parent, said: self.flying.append(("x", parent, said))
        options = AdmissionOptions(event_bytes=1_000, timing=ReservationTimers().of_child())
        self.child = SecondaryAdmission(Admission("x", 1, options), 1, self.up)
        self.turn = 0
        super().__init__([("a", "c"), ("b", "c"), ("a", "b")])
        self.serve("a", "b")

    def start(self, name: str) -> None:
        overlay = Overlay(name, 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
        admission = Admission(name, 1, AdmissionOptions(event_bytes=1_000))
        channels = self.channels[name] = Channels(overlay)
        tiers = self.tiers[name] = TierLinks()
        tiers.send = lambda child, said: self.flying.append((name, child, said))
        self.exchanges[name] = channels.serve(
            SERVICE, lambda context: OverlayAdmission(context, overlay.store, admission, tiers)
        )

    def serve(self, active: str, standby: str = "") -> None:
        """These are its parents from now on."""
        self.turn += 1
        for name in [each for each in self.up.links if each not in (active, standby)]:
            self.up.drop(name)
            self.tiers[name].drop("x")
        for name in filter(None, (active, standby)):
            made = TierLink(5_000, name == active, 1, self.turn)
            self.up.set(name, made)
            self.tiers[name].set("x", made)
        self.settle()

    def expect(self, where: str, **options: object) -> AdmissionOutcome:
        """Of the client `ann` of the child."""
        filter_ = filter_of(where)
        outcome = self.child.subscribe("ann", where, filter_, now_us=self.now_us, **options)  # type: ignore[arg-type]
        if outcome is None:
            self.settle()
            (outcome,) = self.outcomes()
        return outcome

    def outcomes(self) -> list[AdmissionOutcome]:
        decisions = list(self.child.admission.decisions)
        self.child.admission.decisions.clear()
        return decisions

    def promised(self) -> dict[str, int]:
        """Thousandths of a hertz, at all nodes."""
        books = {name: each.admission.reservations for name, each in self.exchanges.items()}
        books["x"] = self.child.admission.reservations
        found = {name: each.state().get(CPU) for name, each in sorted(books.items())}
        return {name: each.reserved for name, each in found.items() if each and each.reserved}

    def run(self, us: int) -> None:
        super().run(us)
        self.child.check_invariants()
        for exchange in self.exchanges.values():
            exchange.check_invariants()

    def _step(self) -> None:
        super()._step()
        if self.child.next_due_us() <= self.now_us:
            self.child.advance(self.now_us)
        flying, self.flying = self.flying, []
        for one, other, said in flying:
            (self.up if other == "x" else self.tiers[other]).on_message(one, said, self.now_us)


def advertising(rate_hz: float = 10) -> Tiers:
    tiers = Tiers()
    tiers.exchanges["c"].advertise("p", "n", TRADES, rate_hz, tiers.now_us)
    tiers.settle()
    return tiers


def test_all_on_the_way_promise_and_give_back() -> None:
    tiers = advertising()
    assert tiers.expect("price > 1").state is ReservationState.ADMITTED
    assert tiers.promised() == {"a": 10_000, "c": 10_000, "x": 10_000}
    assert tiers.admission("a").reservations.state()[link("x")].reserved == 80 * KBIT
    assert tiers.child.admission.reservations.state()[client("ann")].reserved == 80 * KBIT
    tiers.run(21 * S)  # leases are over, if nobody keeps them
    assert tiers.promised() == {"a": 10_000, "c": 10_000, "x": 10_000}
    tiers.child.unsubscribe("ann", "price > 1")
    tiers.settle()
    assert tiers.promised() == {}


def test_whoever_refuses_is_named() -> None:
    tiers = advertising()
    tiers.admission("a").set_capacity(link("x"), 50 * KBIT)
    refused = tiers.expect("price > 1")
    assert refused.state is ReservationState.REFUSED
    assert refused.refusals == (
        AdmissionRefusal("a", Resource.BANDWIDTH, 80_000, 50_000, "link x"),
    )
    tiers.admission("a").set_capacity(link("x"), None)
    tiers.admission("c").set_capacity(CPU, 4_000)
    assert tiers.expect("price > 1").refusals == (AdmissionRefusal("c", Resource.CPU, 10, 4),)
    tiers.admission("c").set_capacity(CPU, None)
    tiers.child.admission.set_capacity(client("ann"), 10 * KBIT)
    refused = tiers.expect("price > 1")
    assert refused.refusals == (
        AdmissionRefusal("x", Resource.BANDWIDTH, 80_000, 10_000, "client ann"),
    )
    tiers.run(8 * S)
    assert tiers.promised() == {}


def test_a_share_counts_all_nodes() -> None:
    tiers = advertising()
    tiers.admission("c").set_capacity(CPU, 4_000)
    share = Guarantee(kind=GuaranteeKind.PERCENTAGE, percent=60)
    outcome = tiers.expect("price > 1", guarantee=share)
    assert (outcome.state, round(outcome.share, 2)) == (ReservationState.ADMITTED, 0.67)
    assert tiers.promised() == {"a": 10_000, "x": 10_000}


def test_another_parent_takes_over_before_the_first_lets_go() -> None:
    tiers = advertising()
    tiers.expect("price > 1")
    tiers.serve("b", "a")
    tiers.run(3 * S)
    assert tiers.outcomes() == []  # nothing to tell
    assert tiers.promised() == {"b": 10_000, "c": 10_000, "x": 10_000}
    tiers.admission("a").set_capacity(link("x"), 50 * KBIT)
    tiers.serve("a", "b")
    tiers.run(3 * S)
    (told,) = tiers.outcomes()
    assert (told.state, told.refusals[0].of) == (ReservationState.WITHDRAWN, "link x")
    tiers.run(25 * S)
    assert tiers.promised() == {}


def test_without_a_parent_a_promise_lasts_as_long_as_it_was_given() -> None:
    tiers = advertising()
    tiers.expect("price > 1")
    tiers.up.drop("a")
    tiers.up.drop("b")
    tiers.run(5 * S)
    assert tiers.outcomes() == []
    tiers.run(25 * S)
    assert [each.state for each in tiers.outcomes()] == [ReservationState.WITHDRAWN]
    assert tiers.promised() == {}  # its parents have heard nothing for as long


def test_a_promise_follows_what_is_advertised() -> None:
    tiers = advertising()
    tiers.expect("price > 1")
    tiers.exchanges["b"].advertise("p", "n", TRADES, 5, tiers.now_us)
    tiers.run(9 * S)
    assert tiers.promised() == {"a": 15_000, "b": 5_000, "c": 10_000, "x": 15_000}
    tiers.child.admission.set_capacity(client("ann"), 130 * KBIT)
    tiers.exchanges["b"].advertise("p", "n", TRADES, 50, tiers.now_us)
    tiers.run(9 * S)
    (told,) = tiers.outcomes()
    assert (told.state, told.refusals[0].node) == (ReservationState.WITHDRAWN, "x")
    tiers.settle()
    assert tiers.promised() == {}


def test_what_a_parent_can_not_promise_any_more_is_told_at_once() -> None:
    tiers = advertising()
    tiers.expect("price > 1")
    tiers.admission("a").set_capacity(link("x"), 90 * KBIT)
    tiers.exchanges["c"].advertise("p", "n", TRADES, 20, tiers.now_us)
    tiers.run(3 * S)
    assert [each.state for each in tiers.outcomes()] == [ReservationState.WITHDRAWN]


def test_a_child_that_leaves_holds_nothing() -> None:
    tiers = advertising()
    tiers.expect("price > 1")
    tiers.tiers["a"].on_left("x")
    tiers.run(100 * MS)
    assert tiers.promised() == {"x": 10_000}
    tiers.tiers["a"].set("x", TierLink(5_000, True, 1, 1))
    tiers.run(9 * S)
    assert tiers.outcomes() == []  # it was asked for anew before its time was over
    assert tiers.promised() == {"a": 10_000, "c": 10_000, "x": 10_000}


def test_what_its_publishers_advertise_all_know_once() -> None:
    tiers = Tiers()
    tiers.child.advertise("sensor", "n", TRADES, 10, tiers.now_us)
    tiers.run(3 * S)
    for name in "abc":
        found = tiers.admission(name).poset.intersecting_by_node(TRADES)
        assert {node: sums.rate for node, sums in found.items()} == {"a": 10_000}, name
    assert tiers.subscribe("c", "bob", "price > 1") is None
    tiers.settle()
    assert tiers.promised() == {"a": 10_000, "c": 10_000}
    tiers.serve("b", "a")
    tiers.run(4 * S)
    assert tiers.promised() == {"b": 10_000, "c": 10_000}
    tiers.child.on_publisher_gone("sensor")
    tiers.run(4 * S)
    assert [tiers.admission(name).poset.advertisements for name in "abc"] == [0, 0, 0]
    tiers.child.advertise("sensor", "n", TRADES, 10, tiers.now_us)
    tiers.run(2 * S)
    for name in "ab":
        tiers.tiers[name].on_left("x")
    tiers.settle()
    assert [tiers.admission(name).poset.advertisements for name in "abc"] == [0, 0, 0]


def test_nonsense_is_counted() -> None:
    tiers = Tiers()
    tiers.up.on_message("a", TemplateMessage(SERVICE, "", b"\xc1"), 0)
    tiers.tiers["a"].on_message("x", TemplateMessage(SERVICE, "", b"\xc1"), 0)
    assert (tiers.child.dropped, tiers.exchanges["a"].dropped) == (1, 1)
