from __future__ import annotations

from random import Random

import pytest

from accord.core.overlay.change_log import ChangeLog, DeltaLimits

Log = ChangeLog[str, int]


def log_of(changes: int = 100, size: int = 1_000, gone: int = 100) -> Log:
    return ChangeLog(DeltaLimits(changes, size, gone), lambda key, _: len(key))


def apply(log: Log, known: dict[str, int], version: int) -> int:
    version, changes = log.delta_after(version)
    for _, key, value in changes:
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value
    return version


def test_of_each_key_only_the_last_change_is_told() -> None:
    log = log_of()
    log.put("a", 1)
    log.put("b", 2)
    log.put("a", 3)
    assert log.delta_after(0) == (3, [(2, "b", 2), (3, "a", 3)])
    assert log.delta_after(2) == (3, [(3, "a", 3)])
    assert log.delta_after(3) == (3, [])
    assert (log.get("a"), log.values(), len(log)) == (3, {"b": 2, "a": 3}, 2)


def test_who_knows_nothing_is_not_told_what_was_taken_back() -> None:
    log = log_of()
    log.put("a", 1)
    log.put("b", 2)
    log.put("a", None)
    assert log.delta_after(0) == (3, [(2, "b", 2)])
    assert log.delta_after(1) == (3, [(2, "b", 2), (3, "a", None)])
    assert (log.get("a"), len(log)) == (None, 1)


def test_what_all_know_to_be_gone_is_forgotten() -> None:
    log = log_of()
    for key in "abc":
        log.put(key, 1)
    log.put("a", None)
    log.put("b", None)
    log.acknowledge_through(4)
    log.check_invariants(4)
    assert log.floor == 4
    assert log.delta_after(4) == (5, [(5, "b", None)])
    log.put("a", 7)
    assert log.delta_after(5) == (6, [(6, "a", 7)])


def test_there_is_only_so_much_room_for_what_is_gone() -> None:
    log = log_of(gone=2)
    for key in "abc":
        log.put(key, 1)
        log.put(key, None)
        log.check_invariants()
    assert log.floor == 2
    assert [change[1:] for change in log.delta_after(3)[1]] == [("b", None), ("c", None)]


def test_a_message_has_room_for_so_many_changes_and_bytes() -> None:
    log = log_of(changes=3, size=10)
    for key in ("a", "b", "c", "d", "e" * 9, "f" * 99, "g"):
        log.put(key, 1)
    assert [len(log.delta_after(base)[1]) for base in range(7)] == [3, 3, 2, 2, 1, 1, 1]
    assert log.delta_after(0)[0] == 3
    assert log.delta_after(4)[0] == 5


def test_no_more_is_told_than_up_to_a_version() -> None:
    log = log_of()
    for key in "abc":
        log.put(key, 1)
    assert log.delta_after(0, 2) == (2, [(1, "a", 1), (2, "b", 1)])
    assert log.delta_after(2, 2) == (2, [])


@pytest.mark.parametrize("seed", range(10))
def test_who_is_told_again_and_again_knows_all_in_the_end(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    log = log_of(changes=3, size=5, gone=8)
    versions = {"x": 0, "y": 0}
    known: dict[str, dict[str, int]] = {"x": {}, "y": {}}
    for _ in range(400):
        log.put(random.choice("abcdefghijklmnop"), random.choice((None, 1, 2, 3)))
        who = random.choice("xxy")
        if 0 < versions[who] < log.floor:
            versions[who], known[who] = 0, {}
        versions[who] = apply(log, known[who], versions[who])
        log.acknowledge_through(min(versions.values()))
        log.check_invariants(min(versions.values()))
    for who, version in versions.items():
        if 0 < version < log.floor:
            version, known[who] = 0, {}  # noqa: PLW2901
        while version < log.version:
            version = apply(log, known[who], version)  # noqa: PLW2901
    assert known == {"x": log.values(), "y": log.values()}
