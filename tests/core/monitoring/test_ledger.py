from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.errors import EventError
from accord.core.monitoring.ledger import (
    DELIVERED,
    MAX_NUMBER,
    OUTCOMES,
    REFUSED,
    SHED,
    Ledger,
    deadline_detail,
    event_id,
    event_number,
    outcome_name,
    read_detail,
    replacement_detail,
    shape_detail,
)

FIRST = 1_763_000_000_000_000_000


def add(ledger: Ledger, number: int, count: int = 1, *, at_ms: int = 1_000) -> None:
    ledger.add(
        number,
        count,
        "a/b",
        "ann",
        "bob",
        DELIVERED,
        at_ms,
        at_ms + 2,
        at_ms + 7,
        90,
        3,
        "p",
        "d",
        5,
    )


class TestIds:
    @given(st.integers(0, MAX_NUMBER))
    def test_there_and_back(self, number: int) -> None:
        text = event_id(number)
        assert len(text) <= 13
        assert event_number(text) == number

    @pytest.mark.parametrize(
        ("number", "text"), [(0, "0"), (31, "Z"), (32, "10"), (MAX_NUMBER, "FZZZZZZZZZZZZ")]
    )
    def test_as_crockford_has_it(self, number: int, text: str) -> None:
        assert event_id(number) == text

    @pytest.mark.parametrize("text", ["1o1-l-I", " 10111 ", "10111", "1OILI", "000000010111"])
    def test_what_people_type_instead(self, text: str) -> None:
        assert event_number(text) == event_number("10111")

    @pytest.mark.parametrize(
        "text", ["", "-", "U", "1 2", "é", "G000000000000", "0" * 14, "A" * 1_000, "\x00"]
    )
    def test_what_is_none(self, text: str) -> None:
        with pytest.raises(EventError, match="event id: expected"):
            event_number(text)

    @pytest.mark.parametrize("number", [-1, MAX_NUMBER + 1])
    def test_numbers_that_are_none(self, number: int) -> None:
        with pytest.raises(EventError, match="64 bits"):
            event_id(number)


def test_outcomes_have_names() -> None:
    assert len(OUTCOMES) == REFUSED + 1
    assert outcome_name(SHED) == "shed"
    assert outcome_name(99) == "outcome 99"
    assert outcome_name(-1) == "outcome -1"


@pytest.mark.parametrize(
    ("detail", "facts", "words"),
    [
        ("", {}, ""),
        ("queue full", {}, "queue full"),
        ("a=b; c", {}, "a=b; c"),
        (deadline_detail(5_000), {"deadline_ms": "5000"}, ""),
        (f"{deadline_detail(5)}; shaping took long", {"deadline_ms": "5"}, "shaping took long"),
        (shape_detail(70_312, "to 640x480"), {"from_bytes": "70312"}, "to 640x480"),
        (shape_detail(7, ""), {"from_bytes": "7"}, ""),
        (replacement_detail(32), {"by": "10"}, ""),
    ],
)
def test_details_are_facts_and_words(detail: str, facts: dict[str, str], words: str) -> None:
    assert read_detail(detail) == (facts, words)


class TestLedger:
    def test_takes_what_was_added(self) -> None:
        ledger = Ledger()
        assert ledger.take() is None
        add(ledger, FIRST + 5, 3, at_ms=1_000)
        add(ledger, FIRST, 1, at_ms=990)
        batch = ledger.take()
        assert batch is not None
        assert (batch.first_number, batch.first_ms) == (FIRST + 5, 1_000)
        assert (batch.lowest, batch.highest) == (FIRST, FIRST + 7)
        assert batch.rows == [
            (0, 0, 3, "a/b", "ann", "bob", DELIVERED, 2, 5, 90, 3, "p", "d", 5),
            (-5, -10, 1, "a/b", "ann", "bob", DELIVERED, 2, 5, 90, 3, "p", "d", 5),
        ]
        assert ledger.take() is None

    def test_events_without_a_number_are_in_no_range(self) -> None:
        ledger = Ledger()
        add(ledger, 0)
        batch = ledger.take()
        assert batch is not None
        assert batch.lowest > batch.highest
        add(ledger, 0)
        add(ledger, FIRST)
        batch = ledger.take()
        assert batch is not None
        assert (batch.lowest, batch.highest) == (FIRST, FIRST)

    def test_counts_what_does_not_fit(self) -> None:
        ledger = Ledger(bound=2)
        for number in range(4):
            add(ledger, FIRST + number, 10)
        batch = ledger.take()
        assert batch is not None
        assert len(batch.rows) == 2
        assert ledger.missed == 20
        add(ledger, FIRST)
        assert ledger.missed == 20

    def test_can_be_off(self) -> None:
        ledger = Ledger()
        ledger.is_on = False
        add(ledger, FIRST)
        assert ledger.take() is None
        assert ledger.missed == 0

    def test_is_due_when_there_is_enough_for_a_record(self) -> None:
        ledger = Ledger()
        while not ledger.is_due():
            add(ledger, FIRST)
        batch = ledger.take()
        assert batch is not None
        assert 2_000 <= len(batch.rows) <= 2_001
        assert not ledger.is_due()

    def test_events_that_follow_each_other_are_one_entry(self) -> None:
        ledger = Ledger()
        add(ledger, FIRST)
        add(ledger, FIRST + 1)
        add(ledger, FIRST + 3)
        batch = ledger.take()
        assert batch is not None
        assert [(row[0], row[2]) for row in batch.rows] == [(0, 2), (3, 1)]
        assert batch.rows[0][9] == 2 * batch.rows[1][9]
