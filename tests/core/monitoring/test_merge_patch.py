from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from accord.core.monitoring.merge_patch import apply_patch, diff, without_nulls

NAMES = st.sampled_from("abc")
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(0, 2), st.sampled_from([0.0, 1.0, 0.5]), NAMES
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3).map(without_nulls)


def text(value: Any) -> bytes:
    """JSON in which numbers are written alike, and true differs from 1."""
    return msgspec.json.encode(_floats(value), order="deterministic")


def _floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _floats(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_floats(each) for each in value]
    return float(value) if type(value) is int else value


@given(OBJECTS, OBJECTS)
def test_a_patch_makes_one_object_of_the_other(before: Any, after: Any) -> None:
    assert text(apply_patch(before, diff(before, after))) == text(after)


@given(OBJECTS, OBJECTS)
def test_there_is_a_patch_only_if_something_changed(before: Any, after: Any) -> None:
    assert (diff(before, after) == {}) == (text(before) == text(after))


@given(OBJECTS, OBJECTS)
def test_neither_object_is_changed(before: Any, after: Any) -> None:
    texts = text(before), text(after)
    apply_patch(before, diff(before, after))
    assert (text(before), text(after)) == texts


@given(OBJECTS, OBJECTS, OBJECTS)
def test_patches_follow_each_other(first: Any, second: Any, third: Any) -> None:
    state = apply_patch(first, diff(first, second))
    assert text(apply_patch(state, diff(second, third))) == text(third)


def test_members_are_added_changed_and_removed() -> None:
    before = {"rows": {"a": {"n": 1, "old": 2}, "gone": {"n": 3}}, "total": 2}
    after = {"rows": {"a": {"n": 5}, "new": {}}, "total": 2}
    assert diff(before, after) == {"rows": {"a": {"n": 5, "old": None}, "gone": None, "new": {}}}


def test_the_examples_of_the_standard() -> None:
    """Those of RFC 7396 whose target and result are objects without null."""
    assert apply_patch({"a": "b"}, {"a": "c"}) == {"a": "c"}
    assert apply_patch({"a": "b"}, {"b": "c"}) == {"a": "b", "b": "c"}
    assert apply_patch({"a": "b", "b": "c"}, {"a": None}) == {"b": "c"}
    assert apply_patch({"a": ["b"]}, {"a": "c"}) == {"a": "c"}
    assert apply_patch({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}) == {"a": {"b": "d"}}
    assert apply_patch({}, {"a": {"bb": {"ccc": None}}}) == {"a": {"bb": {}}}
