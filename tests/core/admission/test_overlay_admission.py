"""Admission among nodes that say to each other only what really can be said."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.admission.advertised import filter_of

from accord.core.admission.admission import Admission
from accord.core.admission.child_advertisements import ADVERT
from accord.core.admission.options import AdmissionOptions
from accord.core.admission.overlay_admission import SERVICE, OverlayAdmission
from accord.core.admission.reservation import ReservationState
from accord.core.admission.resources import CPU, Resource, link
from accord.core.admission.subscription_requests import AdmissionOutcome, AdmissionRefusal
from accord.core.channels.channels import Channels
from accord.core.model.errors import AdmissionError
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TemplateMessage

MS = 1_000
S = 1_000_000
TRADES = filter_of("price > 0")
RING = [("a", "b"), ("b", "c"), ("a", "d"), ("d", "c")]


class Nodes:
    """Linked without delay; what links are `cut` lose all that is said."""

    def __init__(self, links: list[tuple[str, str]]) -> None:
        names = sorted({name for pair in links for name in pair})
        self.now_us = 0
        self.cut: set[frozenset[str]] = set()
        self.channels: dict[str, Channels] = {}
        self.exchanges: dict[str, OverlayAdmission] = {}
        for name in names:
            self.start(name)
        for one, other in links:
            self.channels[one].overlay.link_up(other, 0)
            self.channels[other].overlay.link_up(one, 0)
        self.run(3 * S)

    def start(self, name: str) -> None:
        overlay = Overlay(name, 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
        admission = Admission(name, 1, AdmissionOptions(event_bytes=1_000))
        channels = self.channels[name] = Channels(overlay)
        self.exchanges[name] = channels.serve(
            SERVICE, lambda context: OverlayAdmission(context, overlay.store, admission)
        )

    def admission(self, name: str) -> Admission:
        return self.exchanges[name].admission

    def run(self, us: int) -> None:
        """In small steps, of which each is seen by all."""
        end_us = self.now_us + us
        while self.now_us < end_us:
            self.now_us += 10 * MS
            self._step()

    def settle(self) -> None:
        self.run(2 * S)

    def subscribe(self, name: str, client: str, where: str) -> AdmissionOutcome | None:
        return self.exchanges[name].subscribe(client, where, filter_of(where), now_us=self.now_us)

    def decisions(self, name: str) -> list[AdmissionOutcome]:
        decisions = list(self.admission(name).decisions)
        self.admission(name).decisions.clear()
        return decisions

    def _step(self) -> None:
        for channels in self.channels.values():
            if channels.next_due_us() <= self.now_us:
                channels.advance(self.now_us)
                channels.check_invariants()
        is_quiet = False
        while not is_quiet:
            is_quiet = True
            for name, channels in self.channels.items():
                sends = list(channels.overlay.sends)
                channels.overlay.sends.clear()
                for neighbour, message in sends:
                    is_quiet = False
                    if frozenset((name, neighbour)) not in self.cut:
                        self.channels[neighbour].overlay.receive(name, message, self.now_us)


def line() -> Nodes:
    nodes = Nodes([("a", "b"), ("b", "c")])
    nodes.exchanges["c"].advertise("ann", "trades", TRADES, 10, nodes.now_us)
    nodes.settle()
    return nodes


def test_all_nodes_know_what_is_advertised() -> None:
    nodes = line()
    for name in "abc":
        assert nodes.admission(name).estimate_demand(TRADES).rate_hz.high == 10
    nodes.exchanges["c"].advertise("ann", "trades", TRADES, 20, nodes.now_us)
    nodes.settle()
    assert [nodes.admission(name).estimate_demand(TRADES).rate_hz.high for name in "abc"] == [
        20,
        20,
        20,
    ]
    assert nodes.exchanges["c"].unadvertise("ann", "trades")
    assert not nodes.exchanges["c"].unadvertise("ann", "trades")
    nodes.settle()
    assert [nodes.admission(name).poset.advertisements for name in "abc"] == [0, 0, 0]


def test_a_publisher_that_goes_takes_its_advertisements_along() -> None:
    nodes = line()
    nodes.exchanges["c"].advertise("ann", "quotes", filter_of("TRUE", "quotes"), 5, nodes.now_us)
    nodes.exchanges["c"].advertise("bob", "quotes", filter_of("TRUE", "quotes"), 5, nodes.now_us)
    nodes.exchanges["c"].on_publisher_gone("ann")
    nodes.settle()
    assert [nodes.admission(name).poset.advertisements for name in "abc"] == [1, 1, 1]


def test_a_subscription_is_asked_for_along_the_way_its_events_come() -> None:
    nodes = line()
    nodes.admission("b").set_capacity(link("a"), 100_000)
    assert nodes.subscribe("a", "bob", "price > 5") is None
    nodes.settle()
    (outcome,) = nodes.decisions("a")
    assert outcome.state is ReservationState.ADMITTED
    assert [len(nodes.admission(name).reservations) for name in "abc"] == [1, 1, 1]
    nodes.subscribe("a", "carol", "price > 6")
    nodes.settle()
    (outcome,) = nodes.decisions("a")
    assert outcome.state is ReservationState.REFUSED
    assert outcome.refusals == (
        AdmissionRefusal("b", Resource.BANDWIDTH, 80_000, 20_000, "link a"),
    )
    nodes.exchanges["a"].on_client_gone("bob")
    nodes.settle()
    assert [len(nodes.admission(name).reservations) for name in "abc"] == [0, 0, 0]


def test_where_all_publishers_are_here_nobody_is_asked() -> None:
    nodes = line()
    outcome = nodes.subscribe("c", "bob", "price > 5")
    assert outcome is not None
    assert outcome.state is ReservationState.ADMITTED
    assert nodes.exchanges["c"].unsubscribe("bob", "price > 5")
    assert nodes.exchanges["a"].source_paths(filter_of("price < 0")) == ()


def test_another_way_is_asked_when_a_link_fails() -> None:
    nodes = Nodes(RING)
    nodes.exchanges["c"].advertise("ann", "trades", TRADES, 10, nodes.now_us)
    nodes.settle()
    nodes.admission("c").set_capacity(CPU, 15_000)
    nodes.subscribe("a", "bob", "price > 5")
    nodes.settle()
    (way,) = nodes.exchanges["a"].source_paths(TRADES)
    between = way.path[1]
    other = "d" if between == "b" else "b"
    assert [len(nodes.admission(name).reservations) for name in ("a", between, "c", other)] == [
        1,
        1,
        1,
        0,
    ]
    nodes.cut.add(frozenset((between, "c")))
    nodes.run(10 * S)
    assert nodes.exchanges["a"].source_paths(TRADES)[0].path == ("a", other, "c")
    assert [len(nodes.admission(name).reservations) for name in ("a", between, "c", other)] == [
        1,
        0,
        1,
        1,
    ]
    assert [each.state for each in nodes.decisions("a")] == [ReservationState.ADMITTED]


def test_what_is_advertised_later_is_booked_too_or_the_client_told() -> None:
    nodes = line()
    nodes.admission("b").set_capacity(CPU, 100_000)
    nodes.subscribe("a", "bob", "price > 5")
    nodes.settle()
    assert [each.state for each in nodes.decisions("a")] == [ReservationState.ADMITTED]
    nodes.exchanges["c"].advertise("ann", "quotes", TRADES, 70, nodes.now_us)
    nodes.settle()
    assert nodes.admission("b").reservations.free(CPU) == 20_000
    assert nodes.admission("a").reservations.state()[CPU].reserved == 80_000
    nodes.exchanges["c"].advertise("ann", "news", TRADES, 30, nodes.now_us)
    nodes.settle()
    (outcome,) = nodes.decisions("a")
    assert outcome.state is ReservationState.WITHDRAWN
    assert outcome.refusals == (AdmissionRefusal("b", Resource.CPU, 110, 100),)
    assert [len(nodes.admission(name).reservations) for name in "abc"] == [0, 0, 0]


def test_a_node_that_is_gone_for_long_does_not_count_until_it_is_back() -> None:
    nodes = line()
    nodes.cut.add(frozenset("bc"))
    nodes.run(10 * S)
    assert nodes.admission("a").remote_advertisers() == ["c"]
    nodes.run(20 * S)
    assert nodes.admission("a").remote_advertisers() == []
    assert nodes.admission("a").poset.advertisements == 0
    nodes.exchanges["c"].advertise("ann", "quotes", TRADES, 5, nodes.now_us)
    nodes.cut.clear()
    nodes.run(10 * S)
    assert nodes.admission("a").remote_advertisers() == ["c"]
    assert nodes.admission("a").estimate_demand(TRADES).rate_hz.high == 15


def test_an_advertisement_that_can_not_be_told_is_refused() -> None:
    nodes = Nodes([("a", "b")])
    exchange = nodes.exchanges["a"]
    with pytest.raises(AdmissionError, match="name: expected one line"):
        exchange.advertise("ann", "tra\ndes", TRADES, 10, 0)
    with pytest.raises(AdmissionError, match="other nodes can't be told more"):
        exchange.advertise("ann", "x" * 2_000, TRADES, 10, 0)
    exchange.advertise("ann", "trades", TRADES, 10, 0)
    for name in ("trades", "more"):
        with pytest.raises(AdmissionError, match="rate_hz: expected 0 to"):
            exchange.advertise("ann", name, TRADES, -1, 0)
    nodes.settle()
    assert nodes.admission("b").estimate_demand(TRADES).rate_hz.high == 10
    assert nodes.admission("b").poset.advertisements == 1


def test_nonsense_of_others_is_counted() -> None:
    nodes = line()
    exchange = nodes.exchanges["b"]
    store = nodes.channels["c"].overlay.store
    nodes.channels["b"].overlay.receive("a", TemplateMessage(SERVICE, "", b"\xc1"), nodes.now_us)
    assert exchange.dropped == 1
    store.put(ADVERT, "ann\ntrades", b"\xc1")
    store.put(ADVERT, "bob\ntrades", msgspec.msgpack.encode(("market", "price >", 1.0)))
    store.put(ADVERT, "carol\ntrades", msgspec.msgpack.encode(("market", "TRUE", -1.0)))
    nodes.settle()
    assert exchange.dropped == 4
    assert exchange.admission.poset.advertisements == 0, "not even what held before"
