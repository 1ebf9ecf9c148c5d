"""Admission at a node, and among a few."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.admission.advertised import filter_of

from accord.core.admission.admission import Admission
from accord.core.admission.demand import Basis, Measured
from accord.core.admission.messages import AdmissionMessage, FlowSpec, ReservationId, Reserve
from accord.core.admission.options import AdmissionOptions, Guarantee, GuaranteeKind, Mode
from accord.core.admission.rate_enforcement import Compliance
from accord.core.admission.reservation import ReservationState
from accord.core.admission.resources import CPU, MEMORY, Resource, client, link
from accord.core.admission.subscription_requests import AdmissionOutcome, AdmissionRefusal
from accord.core.model.errors import AdmissionError

S = 1_000_000
EVENT = 1_000
PATH = ("a", "b", "c")


def node(name: str = "a", **options: object) -> Admission:
    chosen = msgspec.convert({"event_bytes": EVENT, **options}, AdmissionOptions)
    return Admission(name, 1, chosen)


def subscribe(
    admission: Admission, who: str, where: str, **options: object
) -> AdmissionOutcome | None:
    return admission.subscribe(who, where, filter_of(where), now_us=0, **options)  # type: ignore[arg-type]


class Trio:
    """Nodes a, b and c in a row, whose links lose nothing."""

    def __init__(self, **options: object) -> None:
        self.nodes = {name: node(name, **options) for name in "abc"}
        for name, each in self.nodes.items():
            each.set_capacity(MEMORY, 1 << 30)
            if name == "c":
                each.advertise("ann", "trades", filter_of("price > 0"), 10, 0)
            else:
                each.advertise_remote("c", "ann", "trades", filter_of("price > 0"), 10)

    def settle(self, now_us: int = 0) -> list[AdmissionOutcome]:
        """All that is said and decided."""
        decided: list[AdmissionOutcome] = []
        is_quiet = False
        while not is_quiet:
            is_quiet = True
            for name, each in self.nodes.items():
                sends = list(each.sends)
                each.sends.clear()
                for neighbour, message in sends:
                    is_quiet = False
                    data = msgspec.msgpack.encode(message)
                    again = msgspec.msgpack.decode(data, type=AdmissionMessage)
                    self.nodes[neighbour].receive(name, again, now_us)
                decided += each.decisions
                each.decisions.clear()
                each.check_invariants()
        return decided


def test_a_subscription_is_admitted_while_there_is_room() -> None:
    admission = node()
    admission.set_capacity(client("bob"), 100_000)
    admission.advertise("ann", "trades", filter_of("price > 0"), 10, 0)
    first = subscribe(admission, "bob", "price > 5")
    assert first == AdmissionOutcome(client="bob", key="price > 5", state=ReservationState.ADMITTED)
    second = subscribe(admission, "bob", "price > 6")
    assert second is not None
    assert second.state is ReservationState.REFUSED
    assert second.refusals == (
        AdmissionRefusal("a", Resource.BANDWIDTH, 80_000, 20_000, "client bob"),
    )
    assert admission.decisions == []
    assert subscribe(admission, "carol", "price > 6") is not None
    admission.unsubscribe("bob", "price > 5")
    again = subscribe(admission, "bob", "price > 6")
    assert again is not None
    assert again.state is ReservationState.ADMITTED
    admission.check_invariants()


def test_what_nobody_advertises_needs_next_to_nothing() -> None:
    admission = node(subscription_bytes=500)
    admission.set_capacity(CPU, 0)
    admission.set_capacity(MEMORY, 1_200)
    for number in range(2):
        assert subscribe(admission, "bob", f"x > {number}").state is ReservationState.ADMITTED  # type: ignore[union-attr]
    refused = subscribe(admission, "bob", "x > 2")
    assert refused is not None
    assert refused.refusals == (AdmissionRefusal("a", Resource.MEMORY, 500, 200),)


def test_cpu_is_learned_and_refusals_speak_of_events_per_second() -> None:
    admission = node()
    admission.advertise("ann", "trades", filter_of("price > 0"), 30, 0)
    admission.sample_cpu(0.9, 50)
    refused = subscribe(admission, "bob", "price > 5")
    assert refused is not None
    # 50 are processed already, by whatever: nothing is free.
    assert refused.refusals == (AdmissionRefusal("a", Resource.CPU, 30, 0),)
    admission.sample_cpu(0.2, 5)
    outcomes = [subscribe(admission, "bob", where) for where in ("price > 5", "price > 6")]
    assert [each.state for each in outcomes if each] == [
        ReservationState.ADMITTED,
        ReservationState.REFUSED,
    ]
    assert outcomes[1] is not None
    assert outcomes[1].refusals == (AdmissionRefusal("a", Resource.CPU, 30, 20),)


def test_clients_that_fail_release_what_they_held() -> None:
    admission = node()
    admission.advertise("ann", "trades", filter_of("price > 0"), 10, 0)
    for number in range(3):
        subscribe(admission, "bob", f"price > {number}")
    subscribe(admission, "carol", "price > 1")
    assert len(admission.reservations) == 4
    admission.on_client_gone("bob")
    assert len(admission.reservations) == len(admission.subscriptions) == 1
    admission.on_client_gone("bob")
    assert not admission.unsubscribe("bob", "price > 1")
    admission.check_invariants()


def test_different_guarantees_for_different_clients() -> None:
    trio = Trio()
    a = trio.nodes["a"]
    trio.nodes["b"].set_capacity(link("a"), 50_000)
    percentage = Guarantee(kind=GuaranteeKind.PERCENTAGE, percent=60)
    none = Guarantee(kind=GuaranteeKind.NONE)
    where = filter_of("price > 5")
    assert a.subscribe("bob", 1, where, [PATH], now_us=0) is None
    assert a.subscribe("carol", 1, where, [PATH], now_us=0, guarantee=percentage) is None
    best_effort = a.subscribe("dave", 1, where, [PATH], now_us=0, guarantee=none)
    assert best_effort == AdmissionOutcome(client="dave", key=1, state=ReservationState.ADMITTED)
    bob, carol = sorted(trio.settle(), key=lambda each: each.client)
    refusal = AdmissionRefusal("b", Resource.BANDWIDTH, 80_000, 50_000, "link a")
    assert (bob.state, bob.refusals) == (ReservationState.REFUSED, (refusal,))
    assert (carol.state, carol.refusals) == (ReservationState.ADMITTED, (refusal,))
    assert round(carol.share, 3) == 0.667
    assert [len(trio.nodes[name].reservations) for name in "abc"] == [1, 0, 1]
    a.on_client_gone("carol")
    trio.settle()
    assert [len(trio.nodes[name].reservations) for name in "abc"] == [0, 0, 0]


def test_each_node_computes_the_need_from_its_own_advertisements() -> None:
    trio = Trio()
    trio.nodes["b"].advertise("eve", "others", filter_of("price > 3"), 100, 0)
    trio.nodes["a"].subscribe("bob", 1, filter_of("price > 5"), [PATH], now_us=0)
    (outcome,) = trio.settle()
    assert outcome.state is ReservationState.ADMITTED
    # What b's own publishers publish does not come over this way.
    (key,) = trio.nodes["b"].reservations
    assert trio.nodes["b"].reservations.amounts(key)[CPU] == 10_000
    assert trio.nodes["b"].reservations.amounts(key)[link("a")] == 80_000


def test_a_mode_that_only_reports() -> None:
    admission = node(mode=Mode.REPORT)
    admission.set_capacity(client("bob"), 100_000)
    admission.advertise("ann", "trades", filter_of("price > 0"), 10, 0)
    outcomes = [subscribe(admission, "bob", f"price > {number}") for number in range(3)]
    assert [each.state for each in outcomes if each] == [
        ReservationState.ADMITTED, ReservationState.REFUSED, ReservationState.REFUSED,
    ]  # fmt: skip
    assert not any(each.is_binding for each in outcomes if each)
    assert len(admission.reservations) == 1, "what would have been refused takes nothing"


def test_switched_off_it_asks_nobody() -> None:
    admission = node(mode=Mode.OFF)
    admission.set_capacity(MEMORY, 0)
    outcome = admission.subscribe("bob", 1, filter_of("TRUE"), [PATH], now_us=0)
    assert outcome == AdmissionOutcome(client="bob", key=1, state=ReservationState.ADMITTED)
    assert admission.sends == []
    assert len(admission.reservations) == 0


def test_the_same_subscription_again_is_no_new_one() -> None:
    admission = node()
    admission.set_capacity(CPU, 15_000)
    admission.advertise("ann", "trades", filter_of("price > 0"), 10, 0)
    first = admission.subscribe("bob", "k", filter_of("price > 5"), now_us=0)
    again = admission.subscribe("bob", "k", filter_of("NOT price <= 5"), now_us=9)
    assert first is again
    assert len(admission.reservations) == 1


def test_a_subscription_that_replaces_another_leaves_it_if_refused() -> None:
    admission = node()
    admission.set_capacity(CPU, 25_000)
    admission.advertise("ann", "trades", filter_of("price > 0"), 10, 0)
    admission.advertise("ann", "more", filter_of("name = 'DEU' AND price < 0"), 100, 0)
    assert admission.subscribe("bob", "k", filter_of("price > 5"), now_us=0)
    refused = admission.subscribe("bob", "k", filter_of("TRUE"), now_us=0)
    assert refused is not None
    assert refused.state is ReservationState.REFUSED
    admission.check_invariants()
    kept = admission.subscriptions.get("bob", "k")
    assert kept is not None
    assert str(kept.filter.predicate) == "price > 5"
    replaced = admission.subscribe("bob", "k", filter_of("price > 6"), now_us=0)
    assert replaced is not None
    assert replaced.state is ReservationState.ADMITTED
    assert len(admission.reservations) == 1
    admission.check_invariants()
    assert admission.unsubscribe("bob", "k")
    assert len(admission.reservations) == 0


def test_replacing_while_the_first_is_not_decided_yet() -> None:
    trio = Trio()
    a = trio.nodes["a"]
    for where in ("price > 5", "price > 6", "price > 7"):
        assert a.subscribe("bob", "k", filter_of(where), [PATH], now_us=0) is None
        a.check_invariants()
    assert [each.state for each in trio.settle()] == [ReservationState.ADMITTED]
    assert [len(trio.nodes[name].reservations) for name in "abc"] == [1, 1, 1]
    a.subscribe("bob", "k", filter_of("price > 8"), [PATH], now_us=0)
    a.unsubscribe("bob", "k")
    trio.settle()
    assert [len(trio.nodes[name].reservations) for name in "abc"] == [0, 0, 0]


def test_books_follow_measured_use() -> None:
    admission = node(estimate_margin=2.0)
    admission.set_capacity(CPU, 100_000)
    admission.advertise("ann", "trades", filter_of("price > 0"), 60, 0)
    estimate = Guarantee(basis=Basis.ESTIMATE)
    one = filter_of("price > 1")
    admission.subscribe("bob", 1, one, now_us=0, guarantee=estimate, measured=Measured(10))
    assert admission.reservations.free(CPU) == 80_000
    admission.apply_measurement("bob", 1, 25, EVENT)
    assert admission.reservations.free(CPU) == 50_000
    admission.apply_measurement("bob", 1, 1, EVENT)
    assert admission.reservations.free(CPU) == 98_000
    admission.subscribe("carol", 1, one, now_us=0)
    assert admission.reservations.free(CPU) == 38_000
    admission.apply_measurement("carol", 1, 5, EVENT)
    assert admission.reservations.free(CPU) == 38_000, "a bound is promised whatever is measured"
    admission.apply_measurement("carol", 1, 70, EVENT)
    assert admission.reservations.free(CPU) == 28_000
    admission.apply_measurement("nobody", 1, 70, EVENT)
    admission.check_invariants()


def test_publishers_beyond_their_rate_are_told() -> None:
    admission = node()
    admission.advertise("ann", "trades", filter_of("price > 0"), 2, 0)
    values = {"price": 5}
    standings = [admission.police("ann", "market", values, None, 0) for _ in range(3)]
    assert standings == [Compliance.WITHIN, Compliance.WITHIN, Compliance.OVER]
    assert [each.advertisement for each in admission.violations] == ["trades"]
    admission.on_publisher_gone("ann")
    assert admission.police("ann", "market", values, None, 0) is Compliance.FREE
    assert admission.poset.advertisements == 0


def test_what_gone_nodes_advertised_goes_with_them() -> None:
    admission = node()
    for publisher in "xyz":
        admission.advertise_remote("c", publisher, "1", filter_of("price > 0"), 5)
    admission.advertise_remote("b", "x", "1", filter_of("price > 0"), 5)
    assert admission.unadvertise_remote("c", "x", "1")
    assert not admission.unadvertise_remote("c", "x", "1")
    admission.on_node_gone("c")
    assert admission.poset.advertisements == 1
    assert admission.unadvertise_remote("b", "x", "1")
    admission.check_invariants()


def test_a_refused_advertisement_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.core.admission.rate_enforcement.MAX_OF_ONE", 1)
    admission = node()
    admission.advertise("ann", "1", filter_of("price > 0"), 2, 0)
    with pytest.raises(AdmissionError):
        admission.advertise("ann", "2", filter_of("price > 0"), 2, 0)
    assert admission.poset.advertisements == 1
    admission.check_invariants()


@pytest.mark.parametrize(
    "wish",
    [
        FlowSpec("c", "price >", True),
        FlowSpec("c/#/d", "TRUE", True),
        FlowSpec("c", "TRUE", True, basis="guess"),
        FlowSpec("c", "TRUE", True, event_bytes=-1),
    ],
)
def test_wishes_that_make_no_sense(wish: FlowSpec) -> None:
    admission = node("b")
    admission.receive("a", Reserve(ReservationId("a", 1, 1), 1, 1, ("a", "b"), wish), 0)
    assert admission.sends == []
    assert admission.dropped == 1
    admission.check_invariants()


def test_other_ways() -> None:
    trio = Trio()
    a = trio.nodes["a"]
    a.subscribe("bob", 1, filter_of("price > 5"), [("a", "b")], now_us=0)
    trio.settle()
    assert len(trio.nodes["c"].reservations) == 0
    a.reroute("bob", 1, [PATH], 0)
    assert trio.settle() == [], "nothing has changed for the client"
    assert [len(trio.nodes[name].reservations) for name in "abc"] == [1, 1, 1]
    a.advance(S)
    assert a.next_due_us() == 2 * S, "what is advertised is taken into account"
    a.advance(2 * S)
    assert a.next_due_us() == 5 * S
    a.advance(5 * S)
    assert len(a.sends) == 1
