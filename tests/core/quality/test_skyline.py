"""Checked against the definition: nobody is as good in all and better in one."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.quality.profiles import Vector
from accord.core.quality.skyline import Skyline, at_least, dominates

OWNERS = "abcdefgh"


def owner_of(key: str) -> str:
    return key.partition(".")[0]


def brute_force(vectors: dict[str, Vector], depth: int) -> set[str]:
    return {
        key
        for key, vector in vectors.items()
        if len({owner_of(k) for k, other in vectors.items() if dominates(other, vector)}) < depth
    }


class Watched:
    """A skyline, what should be in it, and what somebody knows who only hears of changes."""

    def __init__(self, columns: int, depth: int) -> None:
        self.skyline: Skyline[str] = Skyline(columns, depth)
        self.truth: dict[str, Vector] = {}
        self.heard: dict[str, Vector] = {}
        self.represented: set[str] = set()

    def set(self, key: str, vector: Vector) -> None:
        self.truth[key] = vector
        self.skyline.set(key, owner_of(key), vector)
        self.check()

    def remove(self, key: str) -> None:
        del self.truth[key]
        self.skyline.remove(key)
        self.check()

    def check(self) -> None:
        self.skyline.check_invariants()
        members = brute_force(self.truth, self.skyline.depth)
        assert self.skyline.members() == {key: self.truth[key] for key in members}
        for key in self.skyline.take_changes():
            self.heard.pop(key, None)
            self.represented.discard(key)
            if key in self.skyline:
                self.heard[key] = self.skyline.vector(key)
            if self.skyline.represents(key):
                self.represented.add(key)
        assert self.heard == self.skyline.members()
        assert self.represented == set(self.skyline.representatives())
        assert len(self.skyline) == len(self.truth)


def test_a_better_vector_takes_the_place_of_what_it_dominates() -> None:
    watched = Watched(2, 1)
    watched.set("P1", (3.0, 1.0))
    watched.set("P2", (1.0, 3.0))
    watched.set("P3", (1.0, 1.0))
    assert set(watched.heard) == {"P1", "P2"}
    watched.set("P4", (3.0, 3.0))
    assert set(watched.heard) == {"P4"}
    watched.remove("P4")
    assert set(watched.heard) == {"P1", "P2"}
    watched.remove("P1")
    watched.remove("P2")
    assert set(watched.heard) == {"P3"}


def test_equal_vectors_stand_together_and_one_represents_them() -> None:
    watched = Watched(2, 1)
    for key in ("P1", "P2", "P3"):
        watched.set(key, (1.0, 1.0))
    assert set(watched.heard) == {"P1", "P2", "P3"}
    assert watched.represented == {"P1"}
    watched.remove("P1")
    assert watched.represented == {"P2"}


def test_with_a_depth_of_two_the_second_best_counts_too() -> None:
    watched = Watched(1, 2)
    for number in range(4):
        watched.set(f"P{number}", (float(number),))
    assert set(watched.heard) == {"P3", "P2"}
    watched.set("P4", (3.0,))
    assert set(watched.heard) == {"P3", "P4"}, "two are better than P2 now"
    watched.remove("P3")
    assert set(watched.heard) == {"P4", "P2"}


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(OWNERS), st.integers(0, 2), st.integers(0, 255))),
)
def test_it_is_the_skyline_after_every_step(
    columns: int, depth: int, steps: list[tuple[str, int, int]]
) -> None:
    watched = Watched(columns, depth)
    for owner, copy, number in steps:
        key = f"{owner}.{copy}" if depth > 1 else f"{owner}{copy}.0"
        if number % 5 == 4:
            if key in watched.truth:
                watched.remove(key)
        else:
            watched.set(key, tuple(float(number >> 2 * c & 3) for c in range(columns)))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_it_is_the_skyline_in_long_random_runs(depth: int) -> None:
    random = Random(depth)  # noqa: S311
    watched = Watched(3, depth)
    for _ in range(400):
        key = f"P{random.randrange(60)}"
        if key in watched.truth and random.random() < 0.3:
            watched.remove(key)
        elif key in watched.truth and random.random() < 0.5:
            vector = tuple(x + random.choice((-1.0, 0.0, 1.0)) for x in watched.truth[key])
            watched.set(key, vector)
        else:
            watched.set(key, tuple(float(random.randrange(12)) for _ in range(3)))


@pytest.mark.parametrize("depth", [1, 2])
def test_all_at_once_is_the_same_as_one_after_the_other(depth: int) -> None:
    random = Random(7)  # noqa: S311
    vectors = {
        f"P{number}": tuple(float(random.randrange(9)) for _ in range(3)) for number in range(300)
    }
    together: Skyline[str] = Skyline(3, depth)
    together.set_all((key, key, vector) for key, vector in vectors.items())
    together.check_invariants()
    single: Skyline[str] = Skyline(3, depth)
    for key, vector in vectors.items():
        single.set(key, key, vector)
    assert together.members() == single.members()
    assert set(together.take_changes()) == set(together.members())


def test_changes_that_change_nothing_are_not_compared_with_the_skyline() -> None:
    random = Random(3)  # noqa: S311
    skyline: Skyline[int] = Skyline(3)
    keys = range(500)
    skyline.set_all((key, str(key), tuple(random.random() for _ in range(3))) for key in keys)
    skyline.take_changes()
    outside = [key for key in keys if key not in skyline]
    assert len(outside) > 300
    looks = skyline.rotation
    for key in outside:
        skyline.set(key, str(key), tuple(x * 0.999 for x in skyline.vector(key)))
    for key in skyline.members():  # the same again
        skyline.set(key, str(key), skyline.vector(key))
    assert skyline.rotation == looks
    assert skyline.take_changes() == []
    skyline.check_invariants()


def test_comparing() -> None:
    assert at_least((1.0, 2.0), (1.0, 2.0))
    assert not dominates((1.0, 2.0), (1.0, 2.0))
    assert dominates((1.0, 3.0), (1.0, 2.0))
    assert not dominates((2.0, 1.0), (1.0, 2.0))


def test_many_that_lose_their_guard_are_compared_with_the_skyline_at_once() -> None:
    random = Random(5)  # noqa: S311
    skyline: Skyline[int] = Skyline(2)
    skyline.set(0, "one", (3.0, 2.0))
    for key in range(2, 1_000):  # all are below the one, and nobody else
        skyline.set(key, str(key), (random.random(), random.random()))
    skyline.set(1, "other", (2.0, 3.0))
    looks = skyline.rotation
    skyline.remove(0)
    assert list(skyline.members()) == [1]
    assert skyline.rotation == looks + 1
    skyline.check_invariants()
