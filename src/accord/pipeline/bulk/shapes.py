"""A million predicates read as a few: texts that differ in their constants only have one shape.

Parsing a text costs about a millisecond, and large sets of predicates are made by programs from a
few patterns. So each text is split at its numbers and strings; what is left is its *shape*, which
is parsed once, with marks in place of the constants. Where a shape turns out to be a plain
conjunction (attributes equal to constants, and numbers within bounds) the constants of all its
texts are turned into bounds by columns. All other texts are left to the parser.

A shape counts as plain only if each mark is found exactly once where a constant is expected:
whatever else the text does with it (arithmetic, patterns, lists) makes it another kind of shape.
Constants that are not written in the plainest way are left to the parser too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accord.core.model.errors import PredicateError
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate, parse
from accord.core.predicates.tree import TRUE, And, Attribute, Compare, CompareOp, Expr, Literal

Floats = NDArray[np.float64]

# What is put aside: a delimited name (which belongs to the shape), a string, a number.
_SPLIT: Final = re.compile(
    r"""("(?:[^"]|"")+"|'(?:[^']|'')*'"""
    r"""|(?<![\w$.])(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
    r"""[lLfFdD]?)"""
)
# So few digits that a float tells it from every other integer.
_PLAIN_NUMBER: Final = re.compile(r"(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,17})?")
_MARK: Final = 7_000_003
_MAX_LENGTH: Final = 4_096
_MAX_SHAPES: Final = 10_000
# With a wildcard: a pattern without one would be taken for what it equals.
_TEXT_MARK: Final = "mark {}%"


@dataclass(frozen=True, slots=True)
class Point:
    """An attribute that equals a constant: the one in `slot`, or `value` in all texts."""

    name: str
    kind: str  # string, number or boolean
    slot: int = -1
    sign: int = 1
    value: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """A number on one side of a constant."""

    name: str
    op: CompareOp
    slot: int
    sign: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a plain shape asks for."""

    points: tuple[Point, ...]
    bounds: tuple[Bound, ...]
    slots: int

    @property
    def point_names(self) -> tuple[tuple[str, str], ...]:
        return tuple((point.name, point.kind) for point in self.points)

    @property
    def range_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(bound.name for bound in self.bounds))


@dataclass(slots=True)
class Family:
    """The texts of one shape: their places in what was given, and all their constants in a row."""

    plan: Plan
    places: list[int] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)

    def column(self, slot: int) -> list[str]:
        """The constants in `slot`, of all texts."""
        return self.constants[slot :: self.plan.slots]


def sort_texts(
    texts: Sequence[str], skip: Sequence[bool] | None = None
) -> tuple[list[Family], list[int]]:
    """Texts of plain shapes in families, and the places of those that need the parser.

    Those to `skip` need it anyway.
    """
    families: dict[tuple[str, ...], Family | None] = {}
    others: list[int] = []
    for place, text in enumerate(texts):
        split = None if skip is not None and skip[place] else split_text(text)
        if split is None:
            others.append(place)
            continue
        shape, constants = split
        family = families.get(shape)
        if family is None:
            if shape not in families and len(families) < _MAX_SHAPES:
                plan = plan_of(shape)
                family = families[shape] = None if plan is None else Family(plan)
            if family is None:
                others.append(place)
                continue
        family.places.append(place)
        family.constants += constants
    return [family for family in families.values() if family is not None], others


def split_text(text: str) -> tuple[tuple[str, ...], list[str]] | None:
    """The shape of `text` and its constants; None where it has none, or one written specially.

    In the shape a constant is just `'` or `0`, which can't be confused with what stands between.
    """
    if len(text) > _MAX_LENGTH:
        return None
    parts = _SPLIT.split(text)
    constants: list[str] = []
    for place in range(1, len(parts), 2):
        part = parts[place]
        first = part[0]
        if first == '"':
            continue
        constants.append(part)
        if first == "'":
            parts[place] = "'"
        elif _PLAIN_NUMBER.fullmatch(part):
            parts[place] = "0"
        else:
            return None
    return tuple(parts), constants


def plan_of(shape: Sequence[str]) -> Plan | None:
    """What the texts of `shape` ask for, or None where that is no plain conjunction."""
    marks = 0
    pieces: list[str] = []
    for place, piece in enumerate(shape):
        if not place % 2 or piece[0] == '"':
            pieces.append(piece)
            continue
        pieces.append(f"'{_TEXT_MARK.format(marks)}'" if piece == "'" else str(_MARK + marks))
        marks += 1
    try:
        tree = parse("".join(pieces)).tree
    except PredicateError:
        return None  # the parser will say what is wrong, with the text as it is
    return _Planner(marks).plan(tree)


class _Planner:
    def __init__(self, marks: int) -> None:
        self._marks = marks
        self._by_text = {_TEXT_MARK.format(mark): mark for mark in range(marks)}

    def plan(self, tree: Expr) -> Plan | None:
        points: list[Point] = []
        bounds: list[Bound] = []
        for item in _items(tree):
            found = self._item(item)
            if isinstance(found, Point):
                points.append(found)
            elif found is not None:
                bounds.append(found)
            else:
                return None
        slots = [point.slot for point in points if point.slot >= 0]
        slots += [bound.slot for bound in bounds]
        if sorted(slots) != [*range(self._marks)]:
            return None
        names = [point.name for point in points]
        if len(set(names)) < len(names) or {bound.name for bound in bounds} & set(names):
            return None
        return Plan(tuple(sorted(points, key=lambda point: point.name)), tuple(bounds), self._marks)

    def _item(self, item: Expr) -> Point | Bound | None:
        if not isinstance(item, Compare) or item.op == "<>":
            return None
        if not isinstance(item.left, Attribute) or not isinstance(item.right, Literal):
            return None
        name, value = item.left.name, item.right.value
        if isinstance(value, bool):
            return Point(name, "boolean", value=value)
        if isinstance(value, str):
            slot = self._by_text.get(value, -1)
            return Point(name, "string", slot) if item.op == "=" and slot >= 0 else None
        if not isinstance(value, int) or not 0 <= abs(value) - _MARK < self._marks:
            return None
        slot, sign = abs(value) - _MARK, 1 if value > 0 else -1
        if item.op == "=":
            return Point(name, "number", slot, sign)
        return Bound(name, item.op, slot, sign)


def _items(tree: Expr) -> Sequence[Expr]:
    if isinstance(tree, And):
        return tree.items
    return () if tree == TRUE else (tree,)


@dataclass(frozen=True, slots=True)
class Clauses:
    """The texts of one family as columns; those that no event can match are left out.

    `points` has a list of values for each of the plan's points; `lows` and `highs` a row for each
    of its ranges, `low <= value < high`.
    """

    places: NDArray[np.int64]
    points: tuple[list[Value], ...]
    lows: Floats
    highs: Floats


def to_clauses(family: Family) -> Clauses:
    plan = family.plan
    count = len(family.places)
    names = {name: row for row, name in enumerate(plan.range_names)}
    lows = np.full((len(names), count), -np.inf)
    highs = np.full((len(names), count), np.inf)
    for bound in plan.bounds:
        values = bound.sign * np.array(family.column(bound.slot)).astype(np.float64)
        row = names[bound.name]
        # The next float after a value begins what is above it.
        edge = np.nextafter(values, np.inf) if bound.op in (">", "<=") else values
        if bound.op in (">", ">="):
            lows[row] = np.maximum(lows[row], edge)
        else:
            highs[row] = np.minimum(highs[row], edge)
    kept = np.flatnonzero((lows < highs).all(axis=0))
    points = tuple(_values(point, family, kept) for point in plan.points)
    return Clauses(np.array(family.places, np.int64)[kept], points, lows[:, kept], highs[:, kept])


def _values(point: Point, family: Family, kept: NDArray[np.int64]) -> list[Value]:
    if point.slot < 0:
        return [point.value] * len(kept)
    texts = family.column(point.slot)
    if point.kind == "string":
        return [_unquoted(texts[place]) for place in kept.tolist()]
    # Adding zero makes one zero of the two that floats have.
    return [point.sign * float(texts[place]) + 0.0 for place in kept.tolist()]


def trees_of(family: Family) -> Iterator[tuple[int, Expr]]:
    """The same predicates as trees, each with its place."""
    width = family.plan.slots
    for number, place in enumerate(family.places):
        constants = family.constants[number * width : (number + 1) * width]
        items = [_tree_of(point, constants) for point in family.plan.points]
        items += [_tree_of(bound, constants) for bound in family.plan.bounds]
        yield place, Predicate(And(tuple(items)) if items else TRUE).tree


def _tree_of(item: Point | Bound, constants: Sequence[str]) -> Expr:
    op = item.op if isinstance(item, Bound) else "="
    value: Value
    if item.slot < 0:
        assert isinstance(item, Point)
        value = item.value
    elif isinstance(item, Point) and item.kind == "string":
        value = _unquoted(constants[item.slot])
    else:
        value = item.sign * float(constants[item.slot])
    return Compare(op, Attribute(item.name), Literal(value))


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
