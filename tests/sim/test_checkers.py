"""Each checker by itself: what it finds, and what it lets pass."""

from __future__ import annotations

from accord.sim.checkers import (
    MAX_KEPT,
    Checker,
    DeadlineChecker,
    DeliveryChecker,
    DuplicateChecker,
    Finding,
    OrderChecker,
)
from accord.sim.machine import Publication

S = 1_000_000


def publication(sequence: int = 1, deadline_us: int = 0, channel: str = "c") -> Publication:
    return Publication(sequence, "p", "n0", channel, sequence, 0, b"", deadline_us=deadline_us)


def deliver(checker: Checker, *publications: Publication, at_us: int = S) -> list[str]:
    for each in publications:
        checker.delivered(each, "s", "n1", at_us, is_first=True)
    return [finding.problem for finding in checker.findings]


def test_a_finding_says_when_where_and_what() -> None:
    finding = Finding(1_500_000, "n1", "order", "wrong")
    assert str(finding) == "1.500000 s n1: order: wrong"
    assert str(Finding(0, "", "delivery", "few")) == "0.000000 s: delivery: few"


def test_order_is_by_publisher_and_channel() -> None:
    one, two, three = (publication(number) for number in (1, 2, 3))
    assert deliver(OrderChecker(), one, two, three) == []
    assert deliver(OrderChecker(), one, three) == []  # what is missing is not out of order
    assert deliver(OrderChecker(), one, three, two) == ["s got p c 2 after 3"]
    assert deliver(OrderChecker(), two, publication(1, channel="d")) == []


def test_what_comes_again_is_a_duplicate_but_not_out_of_order() -> None:
    order, duplicates = OrderChecker(), DuplicateChecker()
    for checker in (order, duplicates):
        deliver(checker, publication(1), publication(2))
        checker.delivered(publication(1), "s", "n1", S, is_first=False)
    assert order.count == 0
    assert duplicates.findings == [Finding(S, "n1", "duplicates", "s got p c 1 again")]


def test_deadlines_are_kept_to_the_microsecond() -> None:
    assert deliver(DeadlineChecker(1.0), publication(deadline_us=S)) == []
    assert deliver(DeadlineChecker(1.0), publication()) == []
    assert deliver(DeadlineChecker(1.0), publication(deadline_us=S), at_us=S + 1) == [
        "s got p c 1 1 µs late"
    ]
    assert deliver(DeadlineChecker(0.9), publication(deadline_us=S), at_us=S + 1) == []


def test_missing_ones_are_found_one_by_one_only_where_none_may_be_missing() -> None:
    strict, lax = DeliveryChecker(), DeliveryChecker(0.9)
    for checker in (strict, lax):
        for number in range(MAX_KEPT + 5):
            checker.missed(publication(number), "s", "n1", S)
    assert (strict.count, len(strict.findings)) == (MAX_KEPT + 5, MAX_KEPT)
    assert lax.count == 0


def test_what_was_not_wanted_is_found_always() -> None:
    checker = DeliveryChecker(0.1)
    checker.unwanted(7, "s", "n1", S)
    assert checker.findings[0].problem == "s got publication 7, which it did not want"
