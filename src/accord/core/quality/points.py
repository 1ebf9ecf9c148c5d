"""Points of a skyline: vectors with their keys, and comparison of vectors."""

from __future__ import annotations

from collections.abc import Hashable
from operator import ge
from typing import Generic, TypeVar

from accord.core.quality.profiles import Vector

K = TypeVar("K", bound=Hashable)


class Point(Generic[K]):
    """Keys with the same vector, and their owners; several keys of one owner count once.

    `row` is a row of the skyline's table or of the table outside it.
    """

    __slots__ = ("is_inside", "keys", "row", "vector")

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.keys: dict[K, str] = {}
        self.is_inside = False
        self.row = -1


def at_least(one: Vector, other: Vector) -> bool:
    return all(map(ge, one, other))


def dominates(one: Vector, other: Vector) -> bool:
    return one != other and at_least(one, other)
