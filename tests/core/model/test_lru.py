from __future__ import annotations

import pytest

from accord.core.model.bounded import LruMap, find_evictable


def test_what_was_used_lately_stays() -> None:
    recent: LruMap[str, int] = LruMap(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert list(recent) == ["a", "c"]
    assert "b" not in recent
    assert recent.get("b") is None


def test_what_is_put_in_again_displaces_nothing() -> None:
    recent: LruMap[str, int] = LruMap(2)
    recent.put("a", 1)
    recent.put("b", 2)
    recent.put("a", 3)
    assert (list(recent), recent.get("a"), len(recent)) == (["b", "a"], 3, 2)


def test_there_must_be_room_for_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LruMap(0)


def test_those_that_can_not_give_way_go_to_the_end() -> None:
    values = {"a": 1, "b": 2, "c": 3, "d": 4}
    assert find_evictable(values, lambda value: value > 2, 2) is None
    assert list(values) == ["c", "d", "a", "b"]
    assert find_evictable(values, lambda value: value == 4, 2) == "d"
    assert list(values) == ["d", "a", "b", "c"]
    assert values == {"a": 1, "b": 2, "c": 3, "d": 4}
