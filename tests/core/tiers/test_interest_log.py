from __future__ import annotations

from random import Random

import pytest

from accord.core.overlay.interests import Interest
from accord.core.tiers.messages import InterestDelta, InterestLog

ALL = 1 << 30
PLAIN = ("", "")


def apply(known: dict[str, Interest], wants: InterestDelta | None) -> int:
    assert wants is not None
    for key, need in wants.changes:
        if need is None:
            known.pop(key, None)
        else:
            known[key] = need
    return wants.version


def test_only_differences_are_told() -> None:
    log = InterestLog(1)
    log.interests.add("a", PLAIN, None)
    assert log.update(0)
    assert log.since(0, ALL) == InterestDelta(1, 0, 1, (("1", Interest("a")),))
    log.interests.add("b", PLAIN, None)
    log.interests.remove("a", PLAIN)
    log.update(0)
    wants = log.since(1, ALL)
    assert wants is not None
    assert sorted(wants.changes) == [("1", None), ("2", Interest("b"))]
    assert log.since(3, ALL) is None


def test_who_knows_nothing_is_not_told_what_was_taken_back() -> None:
    log = InterestLog(1)
    log.interests.add("a", PLAIN, None)
    log.update(0)
    log.interests.remove("a", PLAIN)
    log.interests.add("b", PLAIN, None)
    log.update(0)
    wants = log.since(0, ALL)
    assert wants is not None
    assert [need for _, need in wants.changes] == [Interest("b")]


def test_no_more_is_told_than_up_to_a_version() -> None:
    log = InterestLog(1)
    for name in "abc":
        log.interests.add(name, PLAIN, None)
        log.update(0)
    wants = log.since(0, 2)
    assert wants is not None
    assert (wants.version, len(wants.changes)) == (2, 2)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_changes_all_is_known_in_the_end(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    log = InterestLog(1)
    wished: list[str] = []
    known: dict[str, Interest] = {}
    version = 0
    for step in range(400):
        if wished and random.random() < 0.4:
            log.interests.remove(wished.pop(random.randrange(len(wished))), PLAIN)
        else:
            wished.append(f"channel/{random.randrange(150)}")
            log.interests.add(wished[-1], PLAIN, None)
        log.update(0)
        if step % 100 == 0:
            log.check_invariants()
        if version < log.version and random.random() < 0.02:
            version = apply(known, log.since(version, ALL))
        if random.random() < 0.02:
            log.acknowledge_through(version)
            assert log.floor <= version
    while version < log.version:
        version = apply(known, log.since(version, ALL))
    assert sorted(need.filter for need in known.values()) == sorted(set(wished))
    log.acknowledge_through(version)
    whole: dict[str, Interest] = {}
    version = 0
    while version < log.version:
        version = apply(whole, log.since(version, ALL))
    assert whole == known
