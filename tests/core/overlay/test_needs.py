from __future__ import annotations

from random import Random

import pytest

from accord.core.model.channels import filter_covers, filter_selects
from accord.core.overlay.needs import MANY, Need, Needs
from accord.core.predicates.predicate import Predicate, parse

NONE = ("", "")


def where(text: str) -> tuple[tuple[str, str], Predicate]:
    return (text, ""), parse(text)


class Told:
    """What others know after each change."""

    def __init__(self) -> None:
        self.needs = Needs()
        self.known: dict[str, Need] = {}

    def hear(self) -> list[Need]:
        for key, need in self.needs.changes():
            if need is None:
                del self.known[key]
            else:
                assert key not in self.known
                self.known[key] = need
        self.needs.check_invariants()
        return sorted(self.known.values(), key=lambda need: (need.filter, need.where))


def test_what_several_wish_is_said_once() -> None:
    told = Told()
    told.needs.add("uav/imagery", NONE, None)
    told.needs.add("uav/imagery", NONE, None)
    assert told.hear() == [Need("uav/imagery")]
    told.needs.remove("uav/imagery", NONE)
    assert told.hear() == [Need("uav/imagery")]
    told.needs.remove("uav/imagery", NONE)
    assert told.hear() == []


def test_a_wider_filter_takes_the_place_of_narrower_ones_while_it_is_there() -> None:
    told = Told()
    told.needs.add("uav/imagery", NONE, None)
    told.needs.add("uav/+", *where("altitude_m > 300"))
    told.needs.add("sea", NONE, None)
    told.needs.add("uav/#", NONE, None)
    assert told.hear() == [Need("sea"), Need("uav/#")]
    told.needs.remove("uav/#", NONE)
    assert told.hear() == [Need("sea"), Need("uav/+", "altitude_m > 300"), Need("uav/imagery")]


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
    assert told.hear() == [Need("uav", "altitude_m > 100")]
    told.needs.remove("uav", ("altitude_m > 100", ""))
    assert told.hear() == [Need("uav", "altitude_m > 200")]
    told.needs.add("uav", NONE, None)
    assert told.hear() == [Need("uav")]


def test_many_predicates_become_the_filter_alone() -> None:
    told = Told()
    texts = [f"number = {number}" for number in range(MANY + 5)]
    for text in texts:
        told.needs.add("uav", *where(text))
    assert told.hear() == [Need("uav")]
    for text in texts[: MANY // 2]:
        told.needs.remove("uav", (text, ""))
    assert len(told.hear()) == MANY + 5 - MANY // 2


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
