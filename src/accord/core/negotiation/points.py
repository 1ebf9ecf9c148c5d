"""Points that stand for vectors, and how they compare."""

from __future__ import annotations

from collections.abc import Hashable
from operator import ge
from typing import Generic, TypeVar

from accord.core.negotiation.profiles import Vector

K = TypeVar("K", bound=Hashable)


class Point(Generic[K]):
    """Keys with the same vector, and whose they are: what belongs to one owner counts once."""

    __slots__ = ("ceiling", "guards", "keys", "row", "vector", "wards")

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.keys: dict[K, str] = {}
        self.row = -1  # outside
        self.guards: tuple[Point[K], ...] = ()
        self.wards: dict[Point[K], bool] = {}
        self.ceiling: Vector | None = None  # what is as good as this is as good as all wards


def at_least(one: Vector, other: Vector) -> bool:
    return all(map(ge, one, other))


def dominates(one: Vector, other: Vector) -> bool:
    return one != other and at_least(one, other)


def raise_ceiling(guard: Point[K], vector: Vector) -> None:
    ceiling = guard.ceiling
    if ceiling is None:
        guard.ceiling = vector
    elif not at_least(ceiling, vector):
        guard.ceiling = tuple(map(max, ceiling, vector))
