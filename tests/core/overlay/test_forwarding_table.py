from __future__ import annotations

import pytest

from accord.core.overlay.budgets import Budgets
from accord.core.overlay.forwarding_table import MAX_HOPS, ForwardingTable, Sent, share_of
from accord.core.overlay.signalling import (
    Acknowledge,
    Establish,
    Established,
    NotEstablished,
    TearDown,
)

PATH = ("seattle", "denver", "washington")


def a_node(name: str = "denver", *neighbours: str) -> ForwardingTable:
    node = ForwardingTable(name, Budgets(), refresh_timeout_us=10_000_000)
    for neighbour in neighbours or ("seattle", "washington"):
        node.link_up(neighbour)
    return node


def establish(route: int = 1, path: tuple[str, ...] = PATH) -> Establish:
    return Establish(path[0], route, path, 90_000, (10_000,) * (len(path) - 1))


def said(node: ForwardingTable) -> list[Sent]:
    sends = list(node.sends)
    node.sends.clear()
    node.check_invariants()
    return sends


def established(node: ForwardingTable) -> None:
    node.on_establish("seattle", establish(), 0)
    node.on_established("washington", Established("seattle", 1))
    node.sends.clear()


def test_a_way_is_there_when_all_behind_it_is() -> None:
    node = a_node()
    node.on_establish("seattle", establish(), 0)
    assert said(node) == [("washington", establish())]
    assert node.find_entry("seattle", "seattle", 1) is None
    node.on_established("washington", Established("seattle", 1))
    assert said(node) == [("seattle", Established("seattle", 1))]
    passage = node.find_entry("seattle", "seattle", 1)
    assert passage is not None
    assert passage.next_hop == "washington"


def test_the_last_node_answers_at_once() -> None:
    node = a_node("washington", "denver")
    node.on_establish("denver", establish(), 0)
    assert said(node) == [("denver", Established("seattle", 1))]
    passage = node.find_entry("denver", "seattle", 1)
    assert passage is not None
    assert passage.next_hop == ""


def test_events_are_taken_from_the_node_before_only() -> None:
    node = a_node()
    established(node)
    assert node.find_entry("washington", "seattle", 1) is None
    assert node.find_entry("seattle", "orlando", 1) is None
    assert node.find_entry("seattle", "seattle", 2) is None


@pytest.mark.parametrize(
    "signal",
    [
        establish(path=("seattle", "orlando", "washington")),
        establish(path=("seattle", "denver", "seattle")),
        establish(path=("orlando", "denver", "washington")),
        establish(path=("denver",)),
        establish(path=("denver", "seattle")),
        establish(path=("seattle", "denver", *map(str, range(MAX_HOPS)))),
        Establish("other", 1, PATH),
        Establish("seattle", 1, PATH, 0, (1, 2, 3)),
        Establish("seattle", 1, ()),
    ],
)
def test_what_can_not_be_is_refused_and_leaves_nothing(signal: Establish) -> None:
    node = a_node()
    node.on_establish("seattle", signal, 0)
    ((neighbour, answer),) = said(node)
    assert neighbour == "seattle"
    assert isinstance(answer, NotEstablished)
    assert answer.at == "denver"
    assert not node.entries


def test_a_number_is_that_of_one_route() -> None:
    node = a_node("denver", "seattle", "washington", "orlando")
    established(node)
    node.on_establish("seattle", establish(path=("seattle", "denver", "orlando")), 0)
    ((_, answer),) = said(node)
    assert isinstance(answer, NotEstablished)
    assert "already in use" in answer.reason
    assert node.find_entry("seattle", "seattle", 1) is not None


def test_without_a_link_to_the_next_the_source_is_told() -> None:
    node = a_node("denver", "seattle")
    node.on_establish("seattle", establish(), 0)
    assert said(node) == [
        ("seattle", NotEstablished("seattle", 1, "denver", "no link to washington"))
    ]


def test_a_link_that_fails_is_told_to_all_sources_over_it() -> None:
    node = a_node()
    established(node)
    node.link_down("washington")
    ((neighbour, answer),) = said(node)
    assert (neighbour, isinstance(answer, NotEstablished)) == ("seattle", True)
    assert not node.entries


def test_ways_that_nobody_refreshes_are_forgotten() -> None:
    node = a_node()
    established(node)
    node.advance(6_000_000)
    node.on_establish("seattle", establish(), 6_000_000)
    assert said(node) == [("washington", establish())]
    node.advance(12_000_000)
    assert node.find_entry("seattle", "seattle", 1) is not None
    node.advance(17_000_000)
    assert not node.entries
    assert not node.budgets.all()


def test_tearing_down_goes_on_along_the_path() -> None:
    node = a_node()
    established(node)
    node.on_tear_down("washington", TearDown("seattle", 1))
    assert node.entries
    node.on_tear_down("seattle", TearDown("seattle", 1))
    assert said(node) == [("washington", TearDown("seattle", 1))]
    assert not node.entries


def test_acknowledgements_go_back() -> None:
    node = a_node()
    established(node)
    signal = Acknowledge("seattle", 1, "washington", 1, 7)
    node.on_acknowledge("seattle", signal)
    assert said(node) == []
    node.on_acknowledge("washington", signal)
    assert said(node) == [("seattle", signal)]


def test_what_hops_may_spend_is_what_is_left_in_equal_parts() -> None:
    assert [share_of(establish(), node) for node in PATH] == [35_000, 35_000, 0]
    assert share_of(Establish("seattle", 1, PATH), "denver") == 0
