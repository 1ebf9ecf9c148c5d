from __future__ import annotations

from random import Random

import pytest
from msgspec.msgpack import decode

from accord.core.model.channels import filter_covers, filter_selects
from accord.core.overlay.interests import (
    BUDGET,
    MANY,
    NARROW_US,
    SETTLE_US,
    Interest,
    InterestTable,
)
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import INTEREST, Overlay
from accord.core.predicates.predicate import Predicate, parse
from accord.core.predicates.relations import covers

NONE = ("", "")


def where(text: str) -> tuple[tuple[str, str], Predicate]:
    return (text, ""), parse(text)


class Told:
    """What others know after each change."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.needs = InterestTable(budget)
        self.known: dict[str, Interest] = {}
        self.now_us = 0
        self.changes = 0

    def hear(self) -> list[Interest]:
        for key, need in self.needs.changes(self.now_us):
            self.changes += 1
            if need is None:
                del self.known[key]
            else:
                assert key not in self.known
                self.known[key] = need
        self.needs.check_invariants()
        due_us = self.needs.next_due_us()
        assert due_us is None or due_us > self.now_us
        return sorted(self.known.values(), key=lambda need: (need.filter, need.where))

    def wait(self) -> list[Interest]:
        """Until nothing changes any more by itself."""
        self.hear()
        while (due_us := self.needs.next_due_us()) is not None:
            self.now_us = due_us
            self.hear()
        return self.hear()


def test_what_several_wish_is_said_once() -> None:
    told = Told()
    told.needs.add("uav/imagery", NONE, None)
    told.needs.add("uav/imagery", NONE, None)
    assert told.hear() == [Interest("uav/imagery")]
    told.needs.remove("uav/imagery", NONE)
    assert told.hear() == [Interest("uav/imagery")]
    told.needs.remove("uav/imagery", NONE)
    assert told.hear() == []


def test_a_wider_filter_takes_the_place_of_narrower_ones_while_it_is_there() -> None:
    told = Told()
    told.needs.add("uav/imagery", NONE, None)
    told.needs.add("uav/+", *where("altitude_m > 300"))
    told.needs.add("sea", NONE, None)
    told.needs.add("uav/#", NONE, None)
    assert told.hear() == [Interest("sea"), Interest("uav/#")]
    told.needs.remove("uav/#", NONE)
    assert told.hear() == [
        Interest("sea"),
        Interest("uav/+", "altitude_m > 300"),
        Interest("uav/imagery"),
    ]


def test_a_filter_with_a_predicate_covers_no_other_filter() -> None:
    told = Told()
    told.needs.add("uav/imagery", NONE, None)
    told.needs.add("uav/#", *where("altitude_m > 300"))
    assert [need.filter for need in told.hear()] == ["uav/#", "uav/imagery"]


def test_predicates_within_others_are_not_announced() -> None:
    told = Told()
    told.needs.add("uav", *where("altitude_m > 300"))
    told.needs.add("uav", *where("altitude_m > 100"))
    told.needs.add("uav", *where("altitude_m > 200"))
    assert told.hear() == [Interest("uav", "altitude_m > 100")]
    told.needs.remove("uav", ("altitude_m > 100", ""))
    assert told.hear() == [Interest("uav", "altitude_m > 200")]
    told.needs.add("uav", NONE, None)
    assert told.hear() == [Interest("uav")]


def test_many_predicates_become_the_filter_alone() -> None:
    told = Told()
    texts = [f"number = {number}" for number in range(MANY + 5)]
    for text in texts:
        told.needs.add("uav", *where(text))
    assert told.hear() == [Interest("uav")]
    for text in texts[: MANY // 2]:
        told.needs.remove("uav", (text, ""))
    assert len(told.hear()) == MANY + 5 - MANY // 2


def test_what_a_wider_need_covers_is_taken_back_when_that_has_stood_for_a_while() -> None:
    told = Told()
    told.needs.add("uav/imagery", NONE, None)
    told.hear()
    told.needs.add("uav/#", NONE, None)
    assert told.hear() == [Interest("uav/#"), Interest("uav/imagery")]
    told.needs.add("uav/telemetry", NONE, None)  # what was never told need not be
    told.now_us = SETTLE_US - 1
    assert told.hear() == [Interest("uav/#"), Interest("uav/imagery")]
    told.now_us = SETTLE_US
    assert told.hear() == [Interest("uav/#")]
    told.needs.remove("uav/#", NONE)
    assert told.hear() == [Interest("uav/imagery"), Interest("uav/telemetry")]


def test_a_wide_need_that_comes_and_goes_costs_nothing_but_itself() -> None:
    told = Told()
    for number in range(50):
        told.needs.add(f"x/{number}", NONE, None)
    told.hear()
    told.changes = 0
    for _ in range(50):
        told.needs.add("x/#", NONE, None)
        told.hear()
        told.needs.remove("x/#", NONE)
        told.hear()
    assert told.changes == 100


def test_what_is_new_is_told_before_what_is_taken_back() -> None:
    needs = InterestTable()
    needs.add("x/#", NONE, None)
    for number in range(5):
        needs.add(f"x/{number}", NONE, None)
    needs.changes(0)
    needs.remove("x/#", NONE)
    changes = [need for _, need in needs.changes(0)]
    assert changes == [*(Interest(f"x/{number}") for number in range(5)), None]


def test_the_crowd_is_widened_and_narrowed_again_when_there_is_room() -> None:
    told = Told()
    told.needs.add("x/1", NONE, None)
    told.needs.add("x/2", *where("v > 1"))
    for number in range(3_000):
        told.needs.add(f"mal/{number}", NONE, None)
        if number % 1_000 == 999:
            told.hear()
    assert told.hear() == [Interest("mal/#"), Interest("x/1"), Interest("x/2", "v > 1")]
    assert told.needs.count_aggregated() == 3_000
    for number in range(2_990):
        told.needs.remove(f"mal/{number}", NONE)
    assert len(told.wait()) == 12
    assert told.needs.count_aggregated() == 0


def test_predicates_that_take_most_are_left_out_first() -> None:
    told = Told(5_600)
    told.needs.add("a", *where(f"v = '{'x' * 3_000}'"))
    told.needs.add("b", *where("v = 2"))
    told.needs.add("c", *where(f"v = '{'x' * 2_000}'"))
    assert told.hear() == [
        Interest("a"),
        Interest("b", "v = 2"),
        Interest("c", f"v = '{'x' * 2_000}'"),
    ]
    told.needs.remove("c", (f"v = '{'x' * 2_000}'", ""))
    assert [len(need.where) > 1_000 for need in told.wait()] == [True, False]


def test_needs_next_to_each_other_are_put_together_before_those_above() -> None:
    told = Told(9_000)
    for site in range(6):
        for number in range(4):
            told.needs.add(f"plant/{site}/{number}", NONE, None)
    found = [need.filter for need in told.hear()]
    assert "plant/#" not in found
    assert "plant/0/#" in found
    for number in range(100):
        told.needs.add(f"{number}", NONE, None)
    assert told.hear() == [Interest("#")]


def test_a_single_need_takes_no_more_than_its_share() -> None:
    told = Told()
    told.needs.add("a/" * 30_000 + "b", NONE, None)
    told.needs.add("b" * 60_000, NONE, None)
    told.needs.add("c", (f"v = '{'ä' * 16_000}'", ""), parse("v = 1"))
    assert told.hear() == [Interest("#")] or len(told.known) == 3
    told.needs.remove("b" * 60_000, NONE)
    assert told.wait() == [Interest("/".join(["a"] * 32 + ["#"])), Interest("c")]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_needed_what_is_told_covers_it_and_fits(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    budget = random.choice([600, 2_000, 10_000])
    told = Told(budget)
    wished: list[tuple[str, tuple[str, str]]] = []
    names = ["a", "b", "c", "dd", "+"]
    texts = [f"v > {number}" for number in range(4)] + [f"w = '{'x' * 300}'"]
    predicates = {text: parse(text) for text in texts}
    for step in range(300):
        is_growing = (step // 75) % 2 == 0
        if wished and random.random() < (0.2 if is_growing else 0.8):
            told.needs.remove(*wished.pop(random.randrange(len(wished))))
        else:
            levels = [random.choice(names) for _ in range(random.randrange(1, 5))]
            pattern = "/".join([*levels, *random.choice([[], [], [], ["#"]])])
            text = random.choice(["", *texts])
            told.needs.add(pattern, (text, ""), predicates.get(text))
            wished.append((pattern, (text, "")))
        told.now_us += random.randrange(NARROW_US // 2)
        if random.random() < 0.5:
            known = told.hear()
            _assert_covered(known, wished, predicates)
            assert sum(440 + len(each.filter) + len(each.where) for each in known) <= budget
    for pattern, condition in wished:
        told.needs.remove(pattern, condition)
    assert told.wait() == []
    assert told.needs.count_aggregated() == 0


def _assert_covered(
    known: list[Interest],
    wished: list[tuple[str, tuple[str, str]]],
    predicates: dict[str, Predicate],
) -> None:
    for pattern, (text, _) in wished:
        assert any(
            filter_covers(need.filter, pattern)
            and (
                not need.where
                or (bool(text) and bool(covers(predicates[need.where], predicates[text])))
            )
            for need in known
        )


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_and_goes_all_that_is_wished_is_announced(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    told = Told()
    wished: list[tuple[str, tuple[str, str]]] = []
    filters = ["#", "a/#", "a/+", "a/b", "a/b/c", "+/b", "b", "$x/#", "+/#"]
    predicates = [parse(f"v > {number}") for number in range(3)]
    for _ in range(100):
        if wished and random.random() < 0.45:
            told.needs.remove(*wished.pop(random.randrange(len(wished))))
        else:
            pattern = random.choice(filters)
            number = random.randrange(-1, 3)
            condition = NONE if number < 0 else (f"v > {number}", "")
            told.needs.add(pattern, condition, None if number < 0 else predicates[number])
            wished.append((pattern, condition))
        if random.random() < 0.5:
            told.hear()
        told.now_us += random.randrange(2 * SETTLE_US)
    told.hear()
    for pattern, condition in reversed(wished):
        told.needs.remove(pattern, condition)
    assert told.hear() == []


@pytest.mark.parametrize("seed", range(20))
def test_filters_cover_as_their_channels_say(seed: int) -> None:
    """A filter is compared with all channels of up to three levels from a small alphabet."""
    random = Random(seed)  # noqa: S311
    levels = ["a", "b", "$s"]
    channels = ["/".join(random.choice(levels) for _ in range(count)) for count in (1, 2, 3) * 30]
    made = ["/".join(random.choice(["a", "b", "+"]) for _ in range(random.randrange(1, 4)))]
    for _ in range(40):
        made.append("/".join([*made[-1].split("/")[:2], random.choice(["#", "+", "a"])]))
        made.append(
            "/".join(random.choice(["a", "+", "$s"]) for _ in range(random.randrange(1, 3)))
        )
    for wide in made:
        for narrow in made:
            if filter_covers(wide, narrow):
                for channel in channels:
                    assert filter_selects(wide, channel) or not filter_selects(narrow, channel)


def test_however_much_clients_need_a_node_can_tell_everything_else() -> None:
    overlay = Overlay("a", 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
    for number in range(3_000):
        overlay.add_interest(f"mal/{number}", NONE, None)
        if number % 500 == 0:
            overlay.advance(number)
    overlay.add_interest("x/1", NONE, None)
    overlay.advance(4_000)
    told = [decode(value, type=Interest) for value in overlay.store.of("a", INTEREST).values()]
    assert told == [Interest("mal/#"), Interest("x/1")]
    assert overlay.store.put("channel", "new", b"x" * 60_000)
    assert overlay.store.put("link", "b", b"x")
    assert overlay.store.counts.refused == 0
    overlay.check_invariants()
