"""Differences of JSON objects as JSON merge patches (RFC 7396).

A merge patch has the members that changed; null removes a member, so the objects themselves hold no
null: a member without a value is left out. `apply_patch(before, diff(before, after))` is `after`.
Arrays are replaced as a whole.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def diff(before: Object, after: Object) -> Object:
    """Return the patch that makes `after` of `before`; empty if they are equal."""
    patch: Object = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            patch[name] = value
            continue
        old = before[name]
        if type(old) is dict and type(value) is dict:
            if inner := diff(old, value):
                patch[name] = inner
        elif not _is_same(old, value):
            patch[name] = value
    return patch


def apply_patch(target: Object, patch: Object) -> Object:
    """Return `target` with `patch` applied; neither is changed."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif type(value) is dict:
            inner = result.get(name)
            result[name] = apply_patch(inner if type(inner) is dict else {}, value)
        else:
            result[name] = value
    return result


def without_nulls(value: Any) -> Any:
    """Return `value` without the members of its objects that are null."""
    if type(value) is dict:
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    if type(value) is list:
        return [without_nulls(each) for each in value]
    return value


def _is_same(old: Any, new: Any) -> bool:
    """Whether both are the same JSON; to Python, true is also 1."""
    if type(old) is not type(new):
        is_number = type(old) in (int, float) and type(new) in (int, float)
        return is_number and bool(old == new)
    if type(old) is list:
        return len(old) == len(new) and all(map(_is_same, old, new))
    if type(old) is dict:
        return old.keys() == new.keys() and all(_is_same(old[name], new[name]) for name in old)
    return bool(old == new)
