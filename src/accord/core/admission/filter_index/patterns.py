"""Relations of channel filters, decided for many at once.

The kind of a filter is the filter without its names: one letter per level. Whether two filters can
be related follows from their kinds alone, except that their names must be equal at some levels. A
query on a million filters thus tests a few kinds and compares columns of names.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

NAME: Final = "n"
SYSTEM: Final = "$"  # a first level that wildcards do not match
ONE: Final = "+"
REST: Final = "#"


class Relation(IntEnum):
    """Relation of other filters to the one that is looked up."""

    COVERED = 0  # match only what it matches
    COVERING = 1  # match all that it matches
    INTERSECTING = 2  # can match some of what it matches


Levels = tuple[int, ...]  # at which the names must be equal


def kind_of(pattern: str) -> str:
    levels = pattern.split("/")
    letters = [level if level in (ONE, REST) else NAME for level in levels]
    if letters[0] == NAME and levels[0].startswith("$"):
        letters[0] = SYSTEM
    return "".join(letters)


def names_of(pattern: str) -> list[str]:
    """Return the names in a filter, in order."""
    return [level for level in pattern.split("/") if level not in (ONE, REST)]


def is_name(letter: str) -> bool:
    return letter in (NAME, SYSTEM)


def relate(relation: Relation, asking: str, other: str) -> Levels | None:
    """Return the levels at which names must be equal for these kinds to be related; None: never."""
    return _RELATE[relation](asking, other)


def intersects(one: str, other: str) -> bool:
    """Check whether some channel is selected by both of these valid filters."""
    same = relate(Relation.INTERSECTING, kind_of(one), kind_of(other))
    if same is None:
        return False
    left, right = one.split("/"), other.split("/")
    return all(left[level] == right[level] for level in same)


def _covered(wide: str, narrow: str) -> Levels | None:
    if wide[0] in (ONE, REST) and narrow[0] == SYSTEM:
        return None
    same: list[int] = []
    for level, letter in enumerate(wide):
        if letter == REST:
            return tuple(same)
        if level == len(narrow) or narrow[level] == REST:
            return None
        if letter == ONE:
            continue
        if narrow[level] == ONE:
            return None
        same.append(level)
    return tuple(same) if len(wide) == len(narrow) else None


def _covering(narrow: str, wide: str) -> Levels | None:
    return _covered(wide, narrow)


def _intersecting(one: str, other: str) -> Levels | None:
    if SYSTEM in (one[0], other[0]) and not (is_name(one[0]) and is_name(other[0])):
        return None
    same: list[int] = []
    for level in range(max(len(one), len(other)) + 1):
        left, right = one[level : level + 1], other[level : level + 1]
        if REST in (left, right) or left == right == "":
            return tuple(same)
        if not left or not right:
            return None
        if ONE not in (left, right):
            same.append(level)
    return None


_RELATE: Final[dict[Relation, Callable[[str, str], Levels | None]]] = {
    Relation.COVERED: _covered,
    Relation.COVERING: _covering,
    Relation.INTERSECTING: _intersecting,
}
