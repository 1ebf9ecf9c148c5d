"""Subscriptions admitted hop by hop: conversations, and hundreds of random runs with faults."""

from __future__ import annotations

import pytest
from tests.core.admission.network import MS, TIMING, Network, S

from accord.core.admission.admission import ReservationProtocol
from accord.core.admission.messages import FlowSpec, NodeVerdict, Refresh, ReservationId, Reserve
from accord.core.admission.reservation import (
    ReservationDecision,
    ReservationState,
    ReservationTimers,
)
from accord.core.admission.resources import CPU, Amounts, ReservationTable, link
from accord.core.model.errors import AdmissionError

LINE = [("a", "b"), ("b", "c"), ("c", "d")]
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
MESH = [
    ("a", "b"), ("a", "c"), ("b", "c"), ("b", "d"), ("c", "d"), ("c", "e"), ("d", "e"), ("d", "f"),
    ("e", "f"),
]  # fmt: skip
SEEDS = 200
BATCH = 20


def take_one(wish: FlowSpec, towards: str, source: str) -> Amounts:
    return {CPU: 1}


def decisions(network: Network, origin: str) -> list[ReservationDecision]:
    """What is decided while time passes, without being taken out on the way."""
    found: list[ReservationDecision] = []
    tell = network._tell

    def noting(node, number, state):  # type: ignore[no-untyped-def]
        found.extend(each for each in node.protocol.decisions if node.name == origin)
        tell(node, number, state)

    network._tell = noting  # type: ignore[method-assign]
    return found


def test_admitted_when_all_nodes_on_the_way_can_carry_it() -> None:
    network = Network(1, LINE)
    number = network.request("a", [("a", "b", "c", "d")], 60)
    assert network.admitted() == []  # nobody has been told anything yet
    network.run(S)
    assert network.admitted() == [("a", number)]
    network.check_settled()
    for name, towards in (("b", "a"), ("c", "b"), ("d", "c")):
        assert network.nodes[name].books.free(CPU) == 40
        assert network.nodes[name].books.free(link(towards)) == 40
    assert network.nodes["b"].books.free(link("c")) == 100
    network.end("a", number)
    network.run(2 * S)
    assert all(not len(node.books) for node in network.nodes.values())


def test_the_first_refusal_ends_it_and_nothing_stays_reserved() -> None:
    network = Network(1, LINE)
    network.nodes["c"].books.set_capacity(CPU, 50)
    found = decisions(network, "a")
    network.request("a", [("a", "b", "c", "d")], 60)
    network.run(S)
    (decision,) = found
    assert decision.state is ReservationState.REFUSED
    assert decision.refusals == (NodeVerdict("c", "cpu", "", 60, 50),)
    assert decision.share == 2 / 3
    assert all(not len(node.books) for node in network.nodes.values())
    network.check_settled()


def test_a_percentage_of_nodes_is_enough_where_that_is_asked() -> None:
    network = Network(1, LINE)
    network.nodes["c"].books.set_capacity(link("b"), 50)
    found = decisions(network, "a")
    enough = network.request("a", [("a", "b", "c", "d")], 60, percent=75)
    network.run(S)
    assert (found[-1].number, found[-1].state) == (enough, ReservationState.ADMITTED)
    assert found[-1].share == 0.75
    assert found[-1].refusals == (NodeVerdict("c", "bandwidth", "link b", 60, 50),)
    assert [name for name, node in network.nodes.items() if len(node.books)] == ["a", "b", "d"]
    another = network.request("a", [("a", "b", "c", "d")], 30, percent=80)
    network.run(2 * S)
    assert (found[-1].number, found[-1].state) == (another, ReservationState.ADMITTED)
    network.request("a", [("a", "b", "c", "d")], 30, percent=80)
    network.run(3 * S)
    assert (found[-1].number, found[-1].state) == (another + 1, ReservationState.REFUSED)
    assert {each.node for each in found[-1].refusals} == {"a", "b", "c", "d"}
    network.check_settled()


def test_a_request_without_ways_is_decided_at_once() -> None:
    network = Network(1, LINE)
    network.request("a", [("a",)], 60)
    network.request("a", [], 60)
    assert network.told == [("a", 1, ReservationState.ADMITTED), ("a", 2, ReservationState.REFUSED)]
    network.check_settled()


def test_several_ways_are_asked_and_all_must_be_had() -> None:
    network = Network(1, RING)
    number = network.request("a", [("a", "b", "c"), ("a", "d", "c")], 40)
    network.run(S)
    assert network.admitted() == [("a", number)]
    assert network.nodes["c"].books.free(CPU) == 20  # it sends both ways
    network.request("a", [("a", "b", "c"), ("a", "d", "c")], 15)
    network.run(2 * S)
    assert network.told[-1] == ("a", 2, ReservationState.REFUSED)
    network.check_settled()
    assert network.nodes["b"].books.free(CPU) == 60


def test_nodes_that_do_not_answer_refuse() -> None:
    network = Network(1, LINE)
    network.crash("c")
    found = decisions(network, "a")
    network.request("a", [("a", "b", "c", "d")], 10)
    network.run(TIMING.ask_us + MS)
    assert found[-1].state is ReservationState.REFUSED
    assert [(each.node, each.resource) for each in found[-1].refusals] == [
        ("b", "path"), ("c", "path"), ("d", "path"),
    ]  # fmt: skip
    network.run(TIMING.ask_us + TIMING.hold_us)
    network.check_settled()


def test_what_a_crashed_origin_had_goes_with_its_lease() -> None:
    network = Network(1, LINE)
    network.request("a", [("a", "b", "c")], 10)
    network.run(S)
    network.crash("a")
    network.run(TIMING.lease_us - S)
    assert len(network.nodes["c"].books) == 1
    network.run(TIMING.lease_us + S)
    assert len(network.nodes["c"].books) == 0


def test_what_a_crashed_origin_had_goes_as_soon_as_it_asks_again() -> None:
    network = Network(1, LINE)
    network.request("a", [("a", "b", "c")], 70)
    network.run(S)
    network.crash("a")
    network.start("a")
    number = network.request("a", [("a", "b", "c")], 70)
    network.run(2 * S)
    assert network.admitted() == [("a", number)]
    network.check_settled()


def test_a_node_that_was_started_anew_is_asked_again() -> None:
    network = Network(1, LINE)
    number = network.request("a", [("a", "b", "c")], 10)
    network.run(S)
    network.crash("b")
    network.start("b")
    assert len(network.nodes["b"].books) == 0
    network.run(S + TIMING.refresh_us + S)
    assert network.admitted() == [("a", number)]
    assert network.told == [("a", number, ReservationState.ADMITTED)]
    network.check_settled()


def test_what_can_not_be_had_again_is_withdrawn() -> None:
    network = Network(1, LINE)
    number = network.request("a", [("a", "b", "c")], 60)
    network.run(S)
    network.crash("c")
    network.start("c")
    other = network.request("d", [("d", "c")], 60)
    network.run(S + TIMING.refresh_us + S)
    assert network.told[1:] == [
        ("d", other, ReservationState.ADMITTED),
        ("a", number, ReservationState.WITHDRAWN),
    ]
    assert len(network.nodes["b"].books) == 0
    network.check_settled()


def test_a_lost_link_withdraws_before_the_far_side_forgets() -> None:
    network = Network(1, LINE)
    number = network.request("a", [("a", "b", "c")], 60)
    network.run(S)
    network.cut.add(("b", "c"))
    while network.admitted():
        network.run(network.now_us + 100 * MS)
        network.check()
    assert network.told[-1] == ("a", number, ReservationState.WITHDRAWN)
    assert len(network.nodes["c"].books) == 1, "it has not forgotten yet"
    network.run(network.now_us + TIMING.lease_us)
    network.check_settled()


def test_a_percentage_survives_the_loss_of_one_way() -> None:
    network = Network(1, RING)
    network.request("a", [("a", "b"), ("a", "d")], 10, percent=60)
    network.run(S)
    network.crash("d")
    network.run(S + TIMING.lease_us)
    assert network.admitted() == [("a", 1)]
    network.start("d")
    network.check_settled()


def test_other_ways_are_asked_before_the_old_ones_are_released() -> None:
    network = Network(1, RING)
    number = network.request("a", [("a", "b", "c")], 60)
    network.run(S)
    network.reroute("a", number, [("a", "d", "c")])
    assert len(network.nodes["b"].books) == 1
    network.run(2 * S)
    # Both ways end at one node, which can't carry both at a time.
    assert network.admitted() == [("a", number)]
    assert len(network.nodes["b"].books) == 0
    network.check_settled()


def test_late_messages_bring_nothing_back() -> None:
    books = ReservationTable()
    protocol = ReservationProtocol("b", 1, books, take_one)
    id_ = ReservationId("a", 5, 1)
    ask = Reserve(id_, 1, 1, ("a", "b"), FlowSpec("c", "TRUE", True))
    keep = Refresh(id_, 1, 1, ("a", "b"), 1, ("b",))
    protocol.receive("a", keep, 0)
    assert not len(books), "only a question begins something"
    protocol.receive("a", ask, 0)
    protocol.receive("a", ask, 0)
    assert len(books) == 1
    protocol.requests.end(1)
    for message in (keep, keep):
        protocol.receive("a", message, 0)
    newer = Reserve(ReservationId("a", 6, 1), 1, 1, ("a", "b"), FlowSpec("c", "TRUE", True))
    protocol.receive("a", newer, 0)
    assert list(books) == [(newer.request, 1)], "an earlier incarnation has nothing any more"
    protocol.receive("a", ask, 0)
    assert len(books) == 1
    protocol.check_invariants()


@pytest.mark.parametrize(
    "path", [("b",), ("x", "b"), ("a", "b", "a"), ("a", "c", "b"), ("a", "c"), ("c", "b"), ()]
)
def test_paths_that_make_no_sense(path: tuple[str, ...]) -> None:
    books = ReservationTable()
    protocol = ReservationProtocol("b", 1, books, take_one)
    wish = FlowSpec("c", "TRUE", True)
    protocol.receive("a", Reserve(ReservationId("a", 5, 1), 1, 1, path, wish), 0)
    assert not len(books)
    assert protocol.dropped == 1
    assert protocol.sends == []


def test_bad_requests() -> None:
    requests = ReservationProtocol("a", 1, ReservationTable(), take_one).requests
    wish = FlowSpec("c", "TRUE", True)
    with pytest.raises(AdmissionError, match="percent: expected 0 to 100, got 101"):
        requests.request(wish, [], {}, percent=101, now_us=0)
    with pytest.raises(AdmissionError, match="path: expected one that begins at a"):
        requests.request(wish, [("b", "a")], {}, percent=100, now_us=0)
    with pytest.raises(AdmissionError, match="path: expected up to 64 different nodes"):
        requests.request(wish, [("a", "b", "b")], {}, percent=100, now_us=0)
    with pytest.raises(AdmissionError, match="lease_us: expected at least"):
        ReservationTimers(lease_us=10_000_000)
    with pytest.raises(AdmissionError, match="hold_us: expected at least"):
        ReservationTimers(hold_us=1_000_000)
    assert not requests.end(7)


def act(network: Network) -> None:
    """Something happens."""
    random = network.random
    alive = list(network.nodes)
    choice = random.random()
    origin = random.choice(alive) if alive else ""
    if choice < 0.5 and origin:
        paths = [network.path(origin, random.randint(0, 4)) for _ in range(random.randint(1, 3))]
        percent = random.choice([None, None, 50, 80, 100])
        network.request(origin, paths, random.choice([5, 20, 35, 60]), percent)
    elif choice < 0.7 and network.admitted():
        network.end(*random.choice(network.admitted()))
    elif choice < 0.78 and network.admitted():
        origin, number = random.choice(network.admitted())
        network.reroute(origin, number, [network.path(origin, random.randint(1, 4))])
    elif choice < 0.86 and origin:
        network.crash(origin)
    elif choice < 0.94:
        gone = [name for name in network.names if name not in network.nodes]
        if gone:
            network.start(random.choice(gone))
    else:
        one, other = random.choice(network.links)
        network.cut ^= {(min(one, other), max(one, other))}


@pytest.mark.parametrize("batch", range(SEEDS // BATCH))
def test_no_promise_is_leaked_whatever_happens(batch: int) -> None:
    admitted = refused = withdrawn = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        network = Network(seed, (LINE, RING, MESH)[seed % 3])
        network.loss = (0.0, 0.1, 0.4)[seed // 3 % 3]
        network.repeated = (0.0, 0.3)[seed % 2]
        network.most_delay_us = (20 * MS, 900 * MS)[seed // 5 % 2]
        for _ in range(40):
            act(network)
            network.check()
            network.run(network.now_us + int(network.random.random() * 2 * S))
            network.check()
        network.cut.clear()
        network.loss = network.repeated = 0.0
        network.most_delay_us = 20 * MS
        for name in network.names:
            if name not in network.nodes:
                network.start(name)
        network.run(network.now_us + 3 * TIMING.lease_us)
        network.check_settled()
        states = [state for _, _, state in network.told]
        admitted += states.count(ReservationState.ADMITTED)
        refused += states.count(ReservationState.REFUSED)
        withdrawn += states.count(ReservationState.WITHDRAWN)
        for name, number in network.admitted():
            network.end(name, number)
        network.run(network.now_us + 2 * TIMING.lease_us)
        assert all(not len(node.books) for node in network.nodes.values()), f"seed {seed}"
    assert min(admitted, refused, withdrawn) > 0, "the runs must be worth something"
