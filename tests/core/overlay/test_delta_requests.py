from __future__ import annotations

from accord.core.overlay.gossip import DeltaRequests
from accord.core.overlay.state_messages import StateOptions

MS = 1_000


def joined(*neighbours: str, limit: int = 2) -> DeltaRequests:
    asking = DeltaRequests(StateOptions(requests_limit=limit, origins_limit=5, request_us=100 * MS))
    for neighbour in neighbours:
        asking.link_up(neighbour)
    return asking


def test_one_neighbour_is_asked_for_what_several_have() -> None:
    asking = joined("a", "b")
    for neighbour in ("a", "b"):
        asking.on_offer(neighbour, "x", (1, 1))
    assert asking.next_due_us(3) == 3
    assert asking.take(3) == [("a", "x")]
    assert asking.take(4) == []
    asking.on_delta("x", (1, 1))
    assert asking.take(5) == []
    assert asking.next_due_us(5) is None
    asking.check_invariants()


def test_a_few_at_a_time_of_each() -> None:
    asking = joined("a", "b")
    for number in range(5):
        asking.on_offer("a", f"x{number}", (1, 1))
    asking.on_offer("b", "x3", (1, 1))
    assert asking.take(0) == [("a", "x0"), ("a", "x1"), ("b", "x3")]
    asking.on_delta("x0", (1, 1))
    assert asking.take(1) == [("a", "x2")]
    asking.on_delta("x3", (1, 1))
    assert asking.take(1) == [], "a is to answer two others still"
    asking.check_invariants()


def test_what_does_not_come_is_asked_for_again_ever_later_and_of_others() -> None:
    asking = joined("a", "b")
    asking.on_offer("a", "x", (1, 1))
    asked = []
    for now_us in range(0, 10_000 * MS, 10 * MS):
        asked += [(now_us // MS, *each) for each in asking.take(now_us)]
        asking.check_invariants()
    assert asked == [(0, "a", "x"), (100, "a", "x"), (300, "a", "x"), (700, "a", "x")]
    asking.on_offer("a", "x", (1, 1))
    asking.on_offer("b", "x", (1, 1))
    now_us = 20_000 * MS
    assert asking.take(now_us) == [("a", "x")]
    asking.link_down("a")
    assert asking.take(now_us) == [("b", "x")]


def test_less_than_was_asked_for_leaves_the_rest_to_ask_for() -> None:
    asking = joined("a")
    asking.on_offer("a", "x", (1, 5))
    asking.on_offer("a", "x", (1, 4))
    asking.take(0)
    asking.on_delta("x", (1, 4))
    assert asking.take(1) == [("a", "x")]
    asking.on_delta("x", (1, 6))
    assert asking.take(2) == []


def test_who_answers_a_part_at_last_may_be_asked_as_often_again() -> None:
    asking = joined("a")
    asking.on_offer("a", "x", (1, 5))
    for now_us in (0, 100 * MS, 300 * MS, 700 * MS):
        assert asking.take(now_us) == [("a", "x")]
    asking.on_delta("x", (1, 3))
    asking.check_invariants()
    assert asking.take(701 * MS) == [("a", "x")]
    asking.check_invariants()


def test_offers_are_bounded_and_forgotten() -> None:
    asking = joined("a", limit=100)
    for number in range(1_000):
        asking.on_offer("a", f"x{number}", (1, 1))
    asking.remove_origin("x1")
    assert asking.take(0) == [("a", f"x{number}") for number in (0, 2, 3, 4)]
    asking.check_invariants()
